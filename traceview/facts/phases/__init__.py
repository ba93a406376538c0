"""Compilation of a program, and the trials of algorithms and configurations at its start."""
