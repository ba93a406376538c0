"""The compiled reader of events, which makes no objects of Python."""
