"""The storage engine: immutable SQLite templates and copy-on-write replicas of them."""
