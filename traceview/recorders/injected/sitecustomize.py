"""Imported by every recorded Python as it starts, because its folder is on PYTHONPATH.

It prepares what the environment asks for, then gives way to the sitecustomize that it hides.
Any Python 3 must be able to parse it: so no newer syntax here.
"""

import sys

if __name__ == "sitecustomize":
    shadowed_module = None
    try:
        from traceview_injected import shadowed_module  # type: ignore[import-not-found,no-redef]

        if sys.version_info >= (3, 9):  # noqa: UP036 (not the Python that runs traceview)
            from traceview_injected import start

            start.begin()
    except Exception:  # noqa: S110 (the user's program runs as if we were not there)
        pass
    # The shadowed one may fail as it would have without us: nothing of that is caught.
    if shadowed_module is not None:
        shadowed_module.run(__name__, __file__)
