"""Expectations of a kernel as text in tests and CI, and their verdicts."""
