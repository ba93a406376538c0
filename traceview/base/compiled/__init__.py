"""The C library: the door to it, and the sources of what tables, groups and intervals call."""
