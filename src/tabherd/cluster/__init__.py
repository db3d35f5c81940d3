"""Several nodes on one PostgreSQL: who is there, what lives where, and how they know each other."""
