"""Tables that `traceview record` adds to a trace: kernel code, source lines, samples, the run."""
