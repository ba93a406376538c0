"""Hooks in the recorded program. They use only the standard library and never make it fail."""
