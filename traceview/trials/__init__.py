"""Measuring: benchmarks of operations, and remedies tried on programs."""
