"""The process that the command line runs in: its memory allocator and its standard streams."""
