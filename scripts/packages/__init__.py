"""The files that a release consists of: the source distribution and the wheels."""
