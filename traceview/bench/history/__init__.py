"""What an earlier `traceview bench` measured, and how this one differs from it."""
