"""Code that runs inside the recorded program: this folder is put on its PYTHONPATH.

The program may run another Python, 3.9 or newer, without traceview. So this code imports only the
standard library and itself.
"""
