"""Remedies for a grid that does not fill the GPU, by the owner of the kernel.

A program chooses its blocks. A library cuts the result of a GEMM, an attention or a convolution
into tiles, so that shapes decide; of its other kernels the grid cannot be changed.
"""

from __future__ import annotations

import re

from traceview.analyses.framework_wording import is_compiled
from traceview.facts.operations.frameworks import framework
from traceview.facts.operations.kernel_classes import KernelClass, classify
from traceview.facts.operations.kernel_owners import KernelOwner, owner_of
from traceview.hardware.waves import Waves
from traceview.records import record
from traceview.trace import Trace
from traceview.vocabulary.amounts import WARP_THREADS


@record
class GridRemedy:
    """A template over the values of the finding, and whether the remedy saves the claimed time.

    Where `sure` is False the finding is for information.
    """

    template: str
    sure: bool = True


_TILED = (KernelClass.GEMM, KernelClass.ATTENTION, KernelClass.CONVOLUTION)
# Compiled, these are kernels of Inductor, with grids of their own.
_COMPILED_AWAY = (KernelClass.NORMALIZATION, KernelClass.REDUCTION, KernelClass.SOFTMAX)
_CUPY_SUM = re.compile(r"^cupy_(?:cub_)?(?:sum|mean|count_nonzero)(?:_|$)")
_FILL = "{fewer_blocks} or {more_blocks} blocks"


def grid_remedy(trace: Trace, name: str, waves: Waves, threads: int) -> GridRemedy | None:
    """The remedy for a kernel of that name, in blocks of so many `threads`.

    None where nothing in the program changes its grid.
    """
    kind, owner = classify(name), owner_of(name)
    if owner is KernelOwner.PROGRAM:
        small = _OWN_SMALL if threads > WARP_THREADS else _OWN_FEW_THREADS
        return GridRemedy(_own_partial_wave(waves) if waves.whole > 1 else small)
    if owner is KernelOwner.LIBRARY and kind in _TILED:
        return GridRemedy(_tiled_partial_wave(waves) if waves.whole > 1 else _TILED_SMALL)
    if waves.whole == 1 and _CUPY_SUM.search(name):
        return GridRemedy(
            "Write it as a matrix product, with a vector of ones or the mask as one factor: CuPy "
            "reduces each value in one block, cuBLAS splits the sum over all SMs."
        )
    eager = "at::native::" in name and not is_compiled(trace) and framework(trace) == "torch"
    if eager and kind in _COMPILED_AWAY:
        template = "Try torch.compile, which replaces it: the grid of torch's own kernel is fixed."
        return GridRemedy(template, sure=False)
    return None


_OWN_SMALL = (
    "Make the blocks smaller, or split the work along another dimension, where possible: {sms} "
    "blocks give each SM one, {better_blocks} are better."
)
_OWN_FEW_THREADS = (
    "Spread the work over more threads and blocks: blocks of 128 or 256 threads suit most kernels; "
    "{sms} blocks give each SM one, {better_blocks} are better."
)
_TILED_SMALL = (
    "Use a larger batch, or put several of these operations into one batched call: the library "
    "cuts a result of this size into {blocks:block}."
)


def _fills(waves: Waves) -> str:
    return _FILL if len(waves.fills) > 1 else "{more_blocks} blocks"


def _own_partial_wave(waves: Waves) -> str:
    return (
        f"Use {_fills(waves)} instead of {{blocks}}: another tile or block size, padded shapes, or "
        "{wave_blocks} blocks that loop over the tiles."
    )


def _tiled_partial_wave(waves: Waves) -> str:
    return (
        f"Try nearby shapes that give {_fills(waves)} instead of {{blocks}}: another batch, "
        "sequence length or width, padded where it pays."
    )
