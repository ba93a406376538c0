"""Recordings: making, reading, analysing and comparing them."""
