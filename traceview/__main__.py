"""`python -m traceview` is the command `traceview`."""

from traceview.cli import main

main()
