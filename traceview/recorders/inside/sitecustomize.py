"""Imported by every recorded Python as it starts, because its folder is on PYTHONPATH.

It prepares what the environment asks for, then gives way to the sitecustomize that it hides.
Any Python 3 must be able to parse it: so no newer syntax here.
"""

import sys

if __name__ == "sitecustomize":
    hidden = None
    try:
        from traceview_inside import hidden  # type: ignore[import-not-found,no-redef]

        if sys.version_info >= (3, 9):  # noqa: UP036 (not the Python that runs traceview)
            from traceview_inside import start

            start.begin()
    except Exception:  # noqa: S110 (the user's program runs as if we were not there)
        pass
    # The hidden one may fail as it would have without us: nothing of that is caught.
    if hidden is not None:
        hidden.run(__name__, __file__)
