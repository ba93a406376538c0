"""The figures of the ranks of one recording."""
