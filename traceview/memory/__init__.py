"""The memory of this process: what is free, what is kept, and when Python looks for garbage."""
