"""Charts: their layout from declared columns, drawn as matplotlib figures or SVG."""
