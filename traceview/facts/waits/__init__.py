"""Waits of the CPU for the GPU: what each leaves idle, and where the program makes it."""
