"""Durable rows behind one protocol: memory, SQLite, and room for PostgreSQL."""
