"""What runs inside the recorded program: this folder is put on its PYTHONPATH.

The recorded Python may be another than ours, 3.9 at least, and has no traceview: nothing in here
imports anything but the standard library and its own neighbours.
"""
