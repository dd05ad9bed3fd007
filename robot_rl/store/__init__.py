"""The step store: SQLite, append-only rows with identities, replication cursors."""
