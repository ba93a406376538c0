"""Class of each kernel of a trace (GEMM, attention, elementwise …), decided by its name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from traceview import groups
from traceview.facts.operations.operations import Kind, kernel_operations, operations
from traceview.tables import Mask, Texts
from traceview.trace import Trace, fact_without_ranges
from traceview.vocabulary.kernel_words import CUFFT, KernelClass, KernelOwner
from traceview.vocabulary.libraries import classify, owner_of

__all__ = ["CUFFT", "KernelClass", "KernelOwner", "classify", "owner_of"]


@fact_without_ranges
def kernel_classes(trace: Trace) -> npt.NDArray[np.uint8]:
    """The class of each row of kernels, a `KernelClass`; each distinct name is classified once."""
    return classes_of(trace.recorded("kernels").texts("name"))


def classes_of(names: Texts) -> npt.NDArray[np.uint8]:
    """The class of each of these kernel names, as a `KernelClass`."""
    return _by_name(names, classify, KernelClass.OTHER)


def _by_name(
    names: Texts, rule: Callable[[str], int], absent: KernelClass | KernelOwner
) -> npt.NDArray[np.uint8]:
    # The values may be all texts of a trace: only those of kernels are classified.
    by_code = np.full(len(names.values) + 1, absent, np.uint8)
    for code in groups.different(names.codes[names.codes >= 0]).tolist():
        by_code[code] = rule(str(names.values[code]))
    result: npt.NDArray[np.uint8] = by_code[names.codes]
    return result


@fact_without_ranges
def communication_kernels(trace: Trace) -> Mask:
    """True for the rows of kernels that exchange data between GPUs (NCCL, NVSHMEM …)."""
    result: Mask = kernel_classes(trace) == KernelClass.COMMUNICATION
    return result


@fact_without_ranges
def communication_operations(trace: Trace) -> Mask:
    """True for the operations that are communication kernels or copies between GPUs."""
    ops = operations(trace)
    result = np.zeros(len(ops), bool)
    result[kernel_operations(trace)[communication_kernels(trace)]] = True
    copies = np.flatnonzero(ops.kind == Kind.COPY)
    directions = trace.recorded("copies").texts("direction")
    result[copies] = directions.isin(["P2P"])[ops.row[copies]]
    return result


# Who wrote each kernel of a trace: the program, a compiler or a library, decided by its name.
#
# A program chooses the blocks of its own kernels. Those of a compiler or a library change only
# with the shapes, types and options of the operation that launches them.


@fact_without_ranges
def kernel_owners(trace: Trace) -> npt.NDArray[np.uint8]:
    """The owner of each row of kernels, a `KernelOwner`; each distinct name is classified once."""
    return _by_name(trace.recorded("kernels").texts("name"), owner_of, KernelOwner.LIBRARY)
