"""Answers for agents and editors, by the Model Context Protocol: read-only, within one folder."""
