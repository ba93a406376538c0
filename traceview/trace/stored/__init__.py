"""Traces in SQLite files of traceview's own layout: written, and read back."""
