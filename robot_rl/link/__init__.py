"""The actor-learner link: ZeroMQ + CURVE, msgpack headers, raw tensor frames.

auth (who may speak) -> frames (what is said) -> server (learner) and session/client (actor).
"""
