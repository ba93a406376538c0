"""A benchmark as text, JSON, flame graph and speedscope profile."""
