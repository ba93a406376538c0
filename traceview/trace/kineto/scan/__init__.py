"""The compiled reader of events, which creates no Python objects."""
