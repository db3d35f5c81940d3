"""Durable rows behind one protocol: memory, SQLite and PostgreSQL."""
