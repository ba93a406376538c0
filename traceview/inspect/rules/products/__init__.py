"""Rules on matrix products."""
