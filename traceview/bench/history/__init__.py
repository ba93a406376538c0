"""Results of earlier `traceview bench` runs, and the difference to this one."""
