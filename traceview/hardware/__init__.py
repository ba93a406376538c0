"""Limits and rates of GPUs by compute capability, each with its source."""
