"""Versions of kernels side by side: matched, with what is equal and what differs."""
