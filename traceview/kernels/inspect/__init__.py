"""What `traceview ptx` reports on kernels: targets, occupancy, rules, comparisons, expectations.

Sentences about kernels are written here, sentences about recordings in `analyses`.
"""
