"""Imported by every recorded Python at startup, because its folder is on PYTHONPATH.

Installs the hooks requested by the environment, then runs the sitecustomize that it shadows. Uses
only syntax that any Python 3 can parse.
"""

import sys

if __name__ == "sitecustomize":
    shadowed_module = None
    try:
        from traceview_injected import shadowed_module  # type: ignore[import-not-found,no-redef]

        if sys.version_info >= (3, 9):  # noqa: UP036 (not the Python that runs traceview)
            from traceview_injected import start

            start.begin()
    except Exception:  # noqa: S110 (a failed hook must not affect the program)
        pass
    # Outside the try: errors of the shadowed module belong to the program.
    if shadowed_module is not None:
        shadowed_module.run(__name__, __file__)
