"""The memory of this process: what is free, what malloc keeps, and garbage collection."""
