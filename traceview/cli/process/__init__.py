"""The process that the command line runs in: its allocator, its streams and what it writes."""
