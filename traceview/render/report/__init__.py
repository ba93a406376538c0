"""The report on one recording as text, JSON, Markdown, CSV and a page."""
