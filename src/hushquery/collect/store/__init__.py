"""The collector's tables on SQLite and PostgreSQL, and what goes wrong with them."""
