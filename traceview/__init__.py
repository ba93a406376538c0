"""Read a GPU trace, ask it where the time went and why, show the answers."""
