"""numpy without the threads of its linear algebra, of which a report does none.

OpenBLAS starts one thread per core when numpy is imported. Each spins for some 30 ms before it
sleeps: a tenth of the time of a short report on two cores, seconds of all cores on a large machine.
"""

from __future__ import annotations

import os
from importlib import import_module

_VARIABLE = "OPENBLAS_NUM_THREADS"


def import_numpy() -> None:
    """Import numpy so, unless the user says how many threads there are. The variable does not stay,
    as programs that are started later may need theirs.
    """
    if _VARIABLE in os.environ:
        return
    os.environ[_VARIABLE] = "1"
    try:
        import_module("numpy")
    finally:
        del os.environ[_VARIABLE]
