"""Rules on shared memory: bank conflicts, narrow accesses, conversions, reductions in loops."""
