"""The answer for a job of many ranks as text, JSON, Markdown and a page."""
