"""GPU memory: its level over time, its growth, and the calls that allocate and free it."""
