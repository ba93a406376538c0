"""Columns of SQLite files, read-only: decoded from pages in C, else through sqlite3."""
