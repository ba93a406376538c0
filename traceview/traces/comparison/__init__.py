"""Two sides of recordings: what changed, by how much, and whether that is noise."""
