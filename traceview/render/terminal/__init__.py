"""One screen in the terminal: the report cut to what matters, and explanations."""
