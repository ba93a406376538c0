"""SQLite files, read-only: columns from their pages, in C, numpy, or through sqlite3."""
