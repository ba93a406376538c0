"""Display of the public types in a Python shell and in a notebook."""
