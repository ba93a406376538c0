"""Kernels of `traceview ptx` as text, JSON and a page; versions of them side by side."""
