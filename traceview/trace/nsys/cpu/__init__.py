"""CPU activity in an nsys export: stacks, call chains, threads, sync-site marks."""
