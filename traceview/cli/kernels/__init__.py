"""Parts of `traceview ptx` and `traceview bench`: targets, and what is printed and written."""
