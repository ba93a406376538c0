"""Samples of the Python stacks of threads."""
