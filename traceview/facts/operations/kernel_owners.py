"""Who wrote each kernel of a trace: the program, a compiler or a library, decided by its name.

A program chooses the blocks of its own kernels. Those of a compiler or a library change only with
the shapes, types and options of the operation that launches them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from traceview import groups
from traceview.trace import Trace, fact_without_ranges
from traceview.vocabulary.kernel_words import CUFFT, KernelOwner
from traceview.vocabulary.libraries import owner_of



@fact_without_ranges
def kernel_owners(trace: Trace) -> npt.NDArray[np.uint8]:
    """The owner of each row of kernels, a `KernelOwner`; each distinct name is classified once."""
    names = trace.recorded("kernels").texts("name")
    by_code = np.full(len(names.values) + 1, KernelOwner.LIBRARY, np.uint8)
    for code in groups.different(names.codes[names.codes >= 0]).tolist():
        by_code[code] = owner_of(str(names.values[code]))
    result: npt.NDArray[np.uint8] = by_code[names.codes]
    return result
