"""Kernels, copies, memsets and graphs of all GPUs: their calls, classes and owners."""
