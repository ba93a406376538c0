"""What `traceview ptx` reports on kernels: targets, occupancy, rules, comparisons, expectations.

Sentences on kernels are written here, and in `analyses` those on a recording.
"""
