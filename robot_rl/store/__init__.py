"""The step store: SQLite, append-only rows with identities, replication cursors.

codec (tensors <-> bytes) -> rows (Row <-> typed columns) -> store (tables) -> writer (thread).
"""
