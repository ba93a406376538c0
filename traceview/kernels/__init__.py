"""Compiled kernels: reading, compiling and judging them. Knows no trace."""
