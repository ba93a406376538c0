"""Import numpy without its BLAS threads: a report does no linear algebra.

OpenBLAS starts one thread per core when numpy is imported. Each spins for some 30 ms before it
sleeps: a tenth of the time of a short report on two cores, seconds of all cores on a large machine.
"""

from __future__ import annotations

import os
from importlib import import_module

_VARIABLE = "OPENBLAS_NUM_THREADS"


def import_numpy() -> None:
    """Import numpy with one BLAS thread, unless the user has set OPENBLAS_NUM_THREADS.

    The variable is removed afterwards, because programs started later may need their threads.
    """
    if _VARIABLE in os.environ:
        return
    os.environ[_VARIABLE] = "1"
    try:
        import_module("numpy")
    finally:
        del os.environ[_VARIABLE]
