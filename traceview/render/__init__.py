"""Drawing a report: text, JSON, HTML. Draws any result from its declared columns."""
