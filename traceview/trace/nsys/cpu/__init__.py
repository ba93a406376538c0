"""What the CPU did, from an nsys export: stacks, call chains, threads, marked calls."""
