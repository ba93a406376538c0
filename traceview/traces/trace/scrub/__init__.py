"""Copy a trace without private data, which is blanked in texts and in code."""
