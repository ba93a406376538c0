"""Compiled kernels: reading, compiling and judging them."""
