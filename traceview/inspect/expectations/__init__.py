"""What a kernel is expected to be, as text in tests and CI, and whether it is."""
