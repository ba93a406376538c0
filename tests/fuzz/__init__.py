"""Damaged inputs by the hundred: `python -m tests.fuzz --help`."""
