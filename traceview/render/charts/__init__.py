"""Charts: their layout from declared columns, and matplotlib figures of it."""
