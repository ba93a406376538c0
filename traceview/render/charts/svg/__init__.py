"""Charts as HTML and SVG for pages, drawn without matplotlib."""
