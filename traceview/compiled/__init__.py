"""The library written in C, and the numbering of texts that it serves."""
