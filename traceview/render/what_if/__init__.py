"""What edits would win, as text, JSON, HTML and Markdown."""
