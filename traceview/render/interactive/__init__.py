"""What the public types show of themselves in a Python shell and in a notebook."""
