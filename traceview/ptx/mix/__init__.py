"""Instructions of a kernel counted by class: per loop, and per source line."""
