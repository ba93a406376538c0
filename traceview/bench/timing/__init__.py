"""Clocks, measurements of one call, and fits of how a time grows with a size."""
