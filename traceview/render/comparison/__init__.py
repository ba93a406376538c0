"""A comparison of runs as text, JSON, Markdown and a page."""
