"""Texts of the table of grids. It may have as many rows as launches: only those shown are built."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from traceview import units
from traceview.analyses.wave_quantization.findings import FEW_BLOCKS_PER_SM
from traceview.facts.waves.grid_waves import VERDICTS, LaunchedGrids
from traceview.hardware.waves import filling_sizes
from traceview.records import record
from traceview.tables import Array, Integers, Mask, Texts, TextsOneByOne, TextValues, object_array


@record
class GridTexts:
    """Columns of text about grids; `rows` are the grids in the order of the table."""

    grids: LaunchedGrids
    rows: Integers

    @property
    def grid(self) -> Texts:
        """Blocks along x, y and z."""
        return self._made(lambda rows: _sides(self.grids.configurations.grid[rows]))

    @property
    def block(self) -> Texts:
        """Threads per block along x, y and z."""
        return self._made(lambda rows: _sides(self.grids.configurations.block[rows]))

    @property
    def fills(self) -> Texts:
        """Nearest grid sizes that fill whole waves."""

        return self._made(lambda rows: _fills(self.grids, rows), self.grids.known)

    @property
    def notes(self) -> Texts:
        return self._made(lambda rows: _notes(self.grids, rows), _noted(self.grids))

    def _made(self, texts: Callable[[Array], Iterable[str]], there: Mask | None = None) -> Texts:
        codes = self.rows.astype(np.int32)
        if there is not None:
            codes = np.where(there[self.rows], codes, np.int32(-1))
        return TextsOneByOne(codes, _TextPerGrid(len(self.grids), texts))


@record
class _TextPerGrid:
    count: int
    texts: Callable[[Array], Iterable[str]]

    def __len__(self) -> int:
        return self.count

    @property
    def every(self) -> TextValues:
        return self.some(np.arange(self.count))

    def some(self, codes: Array) -> TextValues:
        return object_array(list(self.texts(codes)))


def _sides(sides: Integers) -> list[str]:
    return [f"{x}x{y}x{z}" for x, y, z in sides.tolist()]


def _fills(grids: LaunchedGrids, rows: Array) -> Iterator[str]:
    """Yield the nearest sizes that fill whole waves; empty where a grid's waves are unknown."""
    columns = (column[rows].tolist() for column in (grids.known, grids.blocks, grids.at_once))
    for known, blocks, at_once in zip(*columns, strict=True):
        yield units.either(filling_sizes(blocks, at_once)) if known else ""


class _NotedGrid(NamedTuple):
    """The properties of a grid that notes are about: a row of LaunchedGrids."""

    known: bool
    concurrent: bool
    beside_ns: int
    total_ns: int
    green_sms: int
    persistent_gemm: bool
    blocks: int
    sm_count: int
    whole: int
    idle_fraction: float
    idle_sms: int
    verdict: int


def _notes(grids: LaunchedGrids, rows: Array) -> Iterator[str]:
    of = grids.configurations
    columns = (
        *(grids.known, grids.concurrent, of.beside_ns, of.total_ns, of.green_sms),
        *(grids.persistent_gemm, grids.blocks, grids.sm_count, grids.whole),
        *(grids.idle_fraction, grids.idle_sms, grids.verdict),
    )
    noted = _noted(grids)[rows].tolist()
    every = map(_NotedGrid, *(column[rows].tolist() for column in columns))
    for each, says in zip(every, noted, strict=True):
        yield "; ".join(_remarks(each)) if says else ""


def _noted(grids: LaunchedGrids) -> Mask:
    """True for the grids on which `_remarks` has a remark."""
    tail = grids.idle_fraction > 0
    few = (grids.whole == 1) | (grids.blocks / grids.sm_count < FEW_BLOCKS_PER_SM)
    shape = grids.persistent_gemm | (grids.idle_sms > 0) | (tail & few)
    others = grids.concurrent | (grids.configurations.green_sms != 0) | (grids.verdict > 0)
    mask: Mask = ~grids.known | shape | others
    return mask


def _remarks(each: _NotedGrid) -> Iterator[str]:
    if not each.known:
        yield "blocks per SM unknown"
        return
    if each.concurrent:
        part = units.percent(100 * each.beside_ns / each.total_ns)
        yield f"concurrent: other kernels run beside it for {part} of its time"
    if each.green_sms:
        yield f"in a green context of {units.counted(each.green_sms, 'SM')}"
    per_sm, one_wave = each.blocks / each.sm_count, each.whole == 1
    if each.persistent_gemm:
        yield "persistent: each block computes several tiles (see tiles)"
    elif one_wave and each.idle_fraction and each.blocks % each.sm_count == 0:
        yield f"one wave, {units.counted(round(per_sm), 'block')} on each SM"
    elif each.idle_sms:
        yield f"smaller than the GPU: {each.idle_sms} of {each.sm_count} SMs idle"
    elif one_wave and each.idle_fraction:
        yield f"one wave, {per_sm:.1f} blocks per SM: no SM idle"
    elif each.idle_fraction and per_sm < FEW_BLOCKS_PER_SM:
        yield f"{per_sm:.1f} blocks per SM, fewer than {FEW_BLOCKS_PER_SM}"
    if each.verdict:
        yield f"measured: {VERDICTS[each.verdict]}"
