"""Collectives and messages between GPUs: what they move, which belong together, who waits."""
