"""Ranges of the program as trees: paths, nesting, owners, and which of them are selected."""
