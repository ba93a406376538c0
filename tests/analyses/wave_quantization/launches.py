"""Kernels of a number of blocks on a GPU whose full wave is known."""

from tests.build import Export
from traceview.traces.analyses.base import Result

MS = 1_000_000
# On the H200 that `Export` describes: 132 SMs of 64 warps and 65,536 registers.
BIG = {"blockX": 1024, "registersPerThread": 32}  # two blocks per SM, 264 at once
ALONE = {"blockX": 1024, "registersPerThread": 64}  # one block per SM, 132 at once


def kernel(export: Export, took: int, blocks: int, *, at: int = 0, **columns: object) -> Export:
    return export.kernel_without_launch((at, at + took), gridX=blocks, **columns)


def only(result: Result) -> dict[str, object]:
    [row] = result.tables["kernels"].rows()
    return row
