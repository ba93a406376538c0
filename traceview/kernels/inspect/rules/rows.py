"""Rows of different lengths, such as those of a sparse matrix, that warps take one by one."""

from __future__ import annotations

from collections.abc import Iterator

from traceview.base.vocabulary.amounts import WARP_THREADS
from traceview.kernels.inspect.kernel_context import KernelContext
from traceview.kernels.inspect.kernel_report import line_name
from traceview.kernels.inspect.rules.engine import CodeClaim, Diagnosis
from traceview.kernels.ptx.addresses.slicing import Slices, reads
from traceview.kernels.ptx.model import Instruction

_BY_WARP = Diagnosis(
    "The lanes of a warp take the elements of a row, from one loaded bound to the next, at {line}: "
    f"of a row with fewer than {WARP_THREADS} elements, the other lanes wait",
    "Where most rows are shorter, give each to as many lanes as it has elements (2, 4, 8 or 16), "
    "or let a warp take the elements of several rows at once and sum them by row in shared memory; "
    "give rows that are far longer than the rest to a block each",
)


def rows_by_warp(kernel: KernelContext) -> Iterator[CodeClaim]:
    """A loop of a warp's lanes over elements between two loaded bounds, summed by shuffles."""
    ptx, provenance = kernel.code.ptx, kernel.provenance
    code = ptx.instructions if ptx else ()
    if provenance is None or not any(each.opcode.startswith(("shfl", "redux")) for each in code):
        return
    tests = (each for each in code if each.opcode.startswith(("setp.ge.", "setp.lt.")))
    found = next((each for each in tests if _is_of_row(each, provenance.slices)), None)
    if found and kernel.compiled.is_cuda(found.source):
        yield CodeClaim(
            _BY_WARP,
            {"line": line_name(found.source), "proven": True},
            "PTX: a loaded value and the thread's index are compared with a value loaded from the "
            "same array; how long rows are is not known",
            found.source,
        )


def _is_of_row(test: Instruction, slices: Slices) -> bool:
    """Whether it compares a loaded bound plus the thread's index with a bound of the same array."""
    sides = [slices.origin([register]) for register in reads(test)]
    if len(sides) != 2:
        return False
    element, bound = sides
    same = bool(element.loaded_from) and element.loaded_from == bound.loaded_from
    return same and element.loaded and element.per_thread and bound.loaded and not bound.per_thread
