"""Bench runs compared with earlier ones."""
