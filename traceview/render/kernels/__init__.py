"""Kernels of `traceview ptx`, and comparisons of their versions, as text, JSON and a page."""
