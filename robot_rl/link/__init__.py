"""The actor-learner link: ZeroMQ + CURVE, msgpack headers, raw tensor frames."""
