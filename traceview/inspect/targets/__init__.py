"""The targets of `traceview ptx`: each kind of file or name, and the kernels that it holds."""
