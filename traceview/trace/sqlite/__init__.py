"""Columns of SQLite files, read-only: decoded from pages in C or numpy, else through sqlite3."""
