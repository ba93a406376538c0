"""Which source files belong to the user's program, and which to Python and to libraries."""

from __future__ import annotations

import re

_LIBRARY = (
    r"(^|/)(site|dist)-packages/|/lib(64)?/python[\d.]+(\.zip)?/|/bin/[^/]*$"
    # The last of these is how networkx names what it generates.
    r"|^\(unnamed\)$|^<(frozen|eval_with_key|torch|__array|attrs|decorator|class )|/torchinductor_"
    # Wrappers that `traceview record` puts around the program's calls.
    r"|/traceview_injected/"
    # Source builds, and templates that PyTorch Geometric writes to the temporary folder.
    r"|(^|/)torch/(nn|optim|autograd|utils|cuda|_\w+)/|/torch_geometric\.[\w.]+\.py$"
)


def is_library(file: str) -> bool:
    """Whether a file, as Python names it, is outside the user's program, or has no name.

    nsys writes `[Unknown]` for a file whose name it lost.
    """
    return file.strip() in ("", "[Unknown]") or bool(re.search(_LIBRARY, file))
