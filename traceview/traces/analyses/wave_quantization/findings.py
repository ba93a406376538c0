"""Findings of wave-quantization, and the texts of those rows of its table that are shown.

Remedies differ by the owner of the kernel. A program chooses its blocks. A library cuts the
result of a GEMM, an attention or a convolution into tiles, so that shapes decide; of its other
kernels the grid cannot be changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from traceview.base import units
from traceview.base.findings import Finding, Severity, Subject
from traceview.base.hardware.occupancy import Waves, filling_sizes
from traceview.base.records import record
from traceview.base.tables import Texts, TextsOneByOne
from traceview.base.tables.arrays import Array, Integers, Mask, object_array, row_numbers
from traceview.base.units import Value
from traceview.base.vocabulary.amounts import WARP_THREADS
from traceview.traces.analyses.wave_quantization import losses
from traceview.traces.analyses.wording import is_compiled
from traceview.traces.facts import delays, grid_waves, launch_configurations
from traceview.traces.facts.idle.gaps import steady_span_ns
from traceview.traces.facts.kernel_classes import (
    KernelClass,
    KernelOwner,
    classify,
    framework,
    owner_of,
    terms,
)
from traceview.traces.facts.work import variants
from traceview.traces.rules import FindingRule, TimeClaim, finding_of
from traceview.traces.trace import Trace


@record
class GridRemedy:
    """A template over the values of the finding, and whether the remedy saves the claimed time.

    Where `sure` is False the finding is for information. `outside` is as in `Finding`.
    """

    template: str
    sure: bool = True
    outside: bool = False


# The time of a product with one vector is that of reading its matrix, whatever the last wave holds.
_OF_VECTOR = re.compile(r"(?i)gemv|gevm")
_TILED = (KernelClass.GEMM, KernelClass.ATTENTION, KernelClass.CONVOLUTION)
# Compiled, these are kernels of Inductor, with grids of their own.
_COMPILED_AWAY = (KernelClass.NORMALIZATION, KernelClass.REDUCTION, KernelClass.SOFTMAX)
_CUPY_SUM = re.compile(r"^cupy_(?:cub_)?(?:sum|mean|count_nonzero)(?:_|$)")


def grid_remedy(trace: Trace, name: str, waves: Waves, threads: int) -> GridRemedy | None:
    """The remedy for a kernel of that name, in blocks of so many `threads`.

    None where nothing in the program changes its grid.
    """
    kind, owner = classify(name), owner_of(name)
    fills = "{fewer_blocks} or {more_blocks}" if len(waves.fills) > 1 else "{more_blocks}"
    if owner is KernelOwner.PROGRAM:
        small = _OWN_SMALL if waves.blocks > 1 else _OWN_ONE_BLOCK
        small = small if threads > WARP_THREADS else _OWN_FEW_THREADS
        serial = waves.blocks == threads == 1
        if serial and (parallel := terms(trace).parallel):
            return GridRemedy(parallel)
        partial_wave = (
            "Launch whole waves: {wave_blocks} blocks that loop over the tiles, or a tile or block "
            f"size that gives {fills} blocks instead of {{blocks}}."
        )
        return GridRemedy(partial_wave if waves.whole > 1 else small)
    if owner is KernelOwner.LIBRARY and kind in _TILED and not _OF_VECTOR.search(name):
        partial_wave = (
            f"Try nearby shapes that give {fills} blocks instead of {{blocks}}: another batch, "
            "sequence length or width, padded where it pays."
        )
        return GridRemedy(partial_wave) if waves.whole > 1 else _TILED_SMALL
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
_OWN_ONE_BLOCK = (
    "Spread the work over more blocks: {sms} give each SM one, {better_blocks} are better."
)
_OWN_FEW_THREADS = (
    "Spread the work over more threads and blocks: blocks of 128 or 256 threads suit most kernels; "
    "{sms} blocks give each SM one, {better_blocks} are better."
)
_MAY_DELAY = GridRemedy(
    "If it only waits (a delay that shows an overlap), leave it. If it computes, spread the work "
    "over blocks of 128 or 256 threads: {sms} blocks give each SM one.",
    sure=False,
)
"""A delay is as long in more blocks."""
_MAY_NOT_COUNT = GridRemedy(
    "Measure it before you change the grid, with {wave_blocks} blocks that loop over the tiles: "
    "they leave no partial wave.",
    sure=False,
)
_MAY_NOT_COUNT_IN_LIBRARY = GridRemedy(
    "Measure nearby shapes before you change anything: another batch, sequence length or width.",
    sure=False,
)
_TILED_SMALL = GridRemedy(
    "Use a larger batch, or put several of these operations into one batched call: the library "
    "cuts a result of this size into {blocks:block}.",
    outside=True,
)


MOST_FINDINGS = 5
# A rule of thumb: with fewer blocks per SM, the last one to end weighs heavily.
FEW_BLOCKS_PER_SM = 4


def costliest(trace: Trace) -> list[tuple[int, Finding]]:
    """The costliest findings, each with the number of its kernel's launches in warm-up.

    Of a kernel that several GPUs run in one grid, that of the GPU which loses most: a program
    changes the grid of all.
    """
    reported = [
        (int(claim.figures["early_calls"] or 0), finding)
        for rule in (PARTIAL_WAVES, SMALL_GRIDS, IDLE_LANES, TILE_WAVES)
        for claim in rule.claims(trace)
        if (finding := finding_of(trace, rule, claim))
    ]
    costly: dict[tuple[Value, ...], tuple[int, Finding]] = {}
    for pair in sorted(reported, key=lambda pair: -pair[1].time_at_stake_ns):
        row = {**pair[1].evidence.row, "total_ns": None}
        costly.setdefault((pair[1].evidence.table, *row.values()), pair)
    return [*costly.values()][:MOST_FINDINGS]


def _claim(
    trace: Trace,
    loss: losses.Loss[Any],
    of: launch_configurations.Configuration,
    values: Mapping[str, Value],
    words: Mapping[str, str] | None = None,
) -> TimeClaim:
    """A claim on what a kernel loses; `of` is its costliest configuration."""
    times = {"lost_ns": loss.lost_ns, "saved_ns": loss.saved_ns, "total_ns": loss.steady_ns}
    is_run = loss.saved_ns == loss.lost_ns and loss.steady_ns >= _ALL * steady_span_ns(trace)
    return TimeClaim(
        Subject("kernel", of.name),
        {**values, **times},
        "kernels",
        {
            # The cells by which a configuration is found in the table of kernels.
            "name": of.name,
            "grid": "x".join(map(str, of.grid)),
            "block": "x".join(map(str, of.block)),
            "registers_per_thread": of.registers,
            "shared_memory_bytes": of.static_bytes + of.dynamic_bytes,
            "total_ns": of.total_ns,
        },
        loss.saved_ns,
        loss.lost_ns,
        steady_span_ns(trace),
        edit=loss.gain.edit if loss.gain else None,
        error_ns=loss.gain.error_ns if loss.gain else None,
        figures={"early_calls": loss.early_calls},
        words={"can": "" if is_run else _CAN_BE_SAVED, **(words or {})},
    )


_ALSO = (
    "",
    " {other_kernel} leaves SMs idle, too.",
    " {other_kernel} and {more_kernels:other kernel} leave SMs idle, too.",
)
_CAN_BE_SAVED = " Up to {lost_ns} of {total_ns} can be saved."
_OF_IDLE_SMS = " Idle SMs alone cost up to {lost_ns} of {total_ns}."
_ALL = 0.95
"""Of a kernel that is this part of the steady time, the finding's saving says the same."""


def _grids(trace: Trace, several: bool) -> Iterator[TimeClaim]:
    for loss in losses.grid_losses(trace):
        worst, waves, of = loss.worst, loss.worst.waves, loss.worst.configuration
        if waves is None or (waves.whole > 1) is not several:
            continue
        remedy = grid_remedy(trace, of.name, waves, of.threads)
        kernels = trace.recorded("kernels")
        own = kernels.texts("name").isin([of.name]) & (kernels["device"] == of.device)
        launched = row_numbers(np.flatnonzero(own))
        if delays.may_delay(trace, launched):
            remedy = _MAY_DELAY
        if remedy is None:
            continue
        doubt = _doubt(trace, worst, int(launched[0])) if several else None
        if doubt is not None:
            own = owner_of(of.name) is KernelOwner.PROGRAM
            remedy = _MAY_NOT_COUNT if own else _MAY_NOT_COUNT_IN_LIBRARY
        few = " of {threads:thread}" if of.threads < WARP_THREADS else ""
        rise = " Measured times rise in such steps." if worst.verdict and not worst.factor else ""
        values = _grid_values(worst, waves, several)
        others = loss.kernels[1:]
        values |= {"kernel": of.label, "other_grids": 0 if others else loss.parts - 1}
        values |= {"other_kernel": others[0], "more_kernels": len(others) - 1} if others else {}
        also = _ALSO[min(len(others), 2)]
        claim = _claim(trace, loss, of, values, {"few": few, "rise": rise, "also": also})
        if values.get("warps") and claim.words["can"]:
            claim = replace(claim, words={**claim.words, "can": _OF_IDLE_SMS})
        if remedy is _MAY_DELAY:
            beside_ns = delays.beside_others_ns(trace, launched) or None
            values = {**claim.values, "lost_ns": None, "beside_ns": beside_ns}
            claim = replace(claim, values=values, saved_ns=0, lost_ns=None, edit=None)
            claim = replace(claim, severity="info", words={**claim.words, "can": ""})
        if doubt is not None:
            values = {**claim.values, "lost_ns": None, **doubt.values}
            claim = replace(claim, values=values, saved_ns=0, lost_ns=None, edit=None)
            claim = replace(claim, severity="info", words={**claim.words, "can": doubt.text})
        most: Severity = "high" if remedy.sure else "info"
        yield replace(claim, remedy=remedy.template, at_most=most, outside=remedy.outside)


def _grid_values(worst: grid_waves.LaunchedGrid, waves: Waves, several: bool) -> dict[str, Value]:
    """The figures of a grid: of its last wave, or of the SMs that a single one leaves idle."""
    of, values = worst.configuration, dict[str, Value]({"blocks": waves.blocks})
    if several:
        values |= {
            "wave_blocks": waves.at_once,
            "waves": waves.whole,
            "last_blocks": waves.blocks - (waves.whole - 1) * waves.at_once,
            "unused_pct": 100 * waves.idle_fraction,
            "fewer_blocks": waves.fills[0],
            "more_blocks": waves.fills[-1],
        }
        if worst.factor:
            values |= {"measured_factor": worst.factor, "neighbour_blocks": worst.smaller_blocks}
        return values
    values |= {
        "threads": of.threads,
        "sms": waves.sm_count,
        "idle_sms": waves.idle_sms - of.beside_blocks,
        "beside_blocks": of.beside_blocks or None,
        "better_blocks": FEW_BLOCKS_PER_SM * waves.sm_count,
    }
    if warps := losses.few_warps(worst):
        values |= {"warps": warps[0], "most_warps": warps[1]}
    return values


class _Doubt(NamedTuple):
    """Why unused slots of the last wave may cost a kernel nothing, and its figures."""

    text: str
    values: Mapping[str, Value]


def _doubt(trace: Trace, grid: grid_waves.LaunchedGrid, launched: int) -> _Doubt | None:
    """Why a last wave may cost less than its slots; None where it is known, or likely, not to."""
    waves, occupancy, took_ns = grid.waves, grid.occupancy, grid.configuration.median_ns
    if waves is None or occupancy is None or grid.verdict == "step" or grid.factor:
        return None
    others = variants.of_same_grid(trace, launched)
    its = next((each.words for each in others if launched in each.rows), None)
    alike = [each for each in others if each.words == its] if its else []
    least_ns = min((each.usual_ns for each in alike), default=took_ns)
    if took_ns >= _FAR_SLOWER * least_ns:
        return _Doubt(_OF_ITS_CODE, {"variant_ns": least_ns})
    if took_ns < _SHORT_WAVE_NS * waves.whole:
        return _Doubt(_OF_ITS_START, {"wave_ns": round(took_ns / waves.whole)})
    if occupancy.blocks_per_sm >= FEW_BLOCKS_PER_SM:
        return _Doubt(_SHARED, {"blocks_per_sm": occupancy.blocks_per_sm})
    return None


_FAR_SLOWER, _SHORT_WAVE_NS = 2.0, 10_000
"""Blocks of a kernel start and end 2 to 3 µs apart, a good part of such a wave: an update of cloth
of 6 waves of 6.5 µs, near its bandwidth, is as fast in any grid (a public recording)."""
_SHARED = (
    " That need not cost time: {blocks_per_sm} blocks share an SM, and those of the last wave run "
    "faster when fewer do."
)
_OF_ITS_START = (
    " That need not cost time: a wave takes {wave_ns}, and blocks start and end some µs apart."
)
_OF_ITS_CODE = (
    " That is not what limits it: a kernel of a like name and of the same grid takes {variant_ns}."
)


def _idle_lanes(trace: Trace) -> Iterator[TimeClaim]:
    """Blocks of the program's own kernels that leave lanes of their warps idle."""
    for loss in losses.block_losses(trace):
        of, occupancy = loss.worst.configuration, loss.worst.occupancy
        if owner_of(of.name) is not KernelOwner.PROGRAM:
            continue
        lanes = -(-of.threads // WARP_THREADS) * WARP_THREADS
        values: dict[str, Value] = {
            "kernel": of.label,
            "threads": of.threads,
            "lanes": lanes,
            "idle_lanes": lanes - of.threads,
            "warp_threads": WARP_THREADS,
        }
        if occupancy and losses.full_of_blocks(loss.worst):
            values["blocks_per_sm"] = occupancy.blocks_per_sm
        warps = {"warps": "its warp" if lanes == WARP_THREADS else "its warps"}
        # All blocks run at once: fewer warps save only the time that they take from each other.
        at_once = occupancy is not None and occupancy.waves.whole <= 1
        claim = _claim(trace, loss, of, values, warps)
        yield replace(claim, at_most="medium" if at_once else "high")


def _tile_waves(trace: Trace) -> Iterator[TimeClaim]:
    for loss in losses.tile_losses(trace):
        worst, of, gemm = loss.worst, loss.worst.gemm, loss.worst.gemm.gemm
        kernel = worst.grid.configuration
        sizes: dict[str, Value] = {"batch": gemm.batch, "m": gemm.m, "n": gemm.n}
        values: dict[str, Value] = {
            "kernel": kernel.label,
            **sizes,
            "tiles": of.tiles,
            "tile_m": of.tile.columns,
            "tile_n": of.tile.rows,
            "blocks": of.blocks,
            "tile_waves": worst.whole,
            "last_tiles": worst.last_tiles,
            "unused_pct": 100 * worst.idle_fraction,
            "fewer_tiles": worst.fills[0],
            "more_tiles": worst.fills[-1],
            "other_gemms": loss.parts - 1,
        }
        words = {
            "of_batch": "{batch} GEMMs of " if gemm.batch > 1 else "",
            "fills": "{fewer_tiles} or {more_tiles}" if len(worst.fills) > 1 else "{more_tiles}",
        }
        yield replace(
            _claim(trace, loss, kernel, values, words),
            table="tiles",
            row={"name": kernel.name, **sizes, "k": gemm.k, "total_ns": of.total_ns},
        )


PARTIAL_WAVES = FindingRule(
    partial(_grids, several=True),
    "{kernel} launches {blocks} blocks where the GPU holds {wave_blocks} at once. The last of "
    "{waves} waves has {last_blocks:block} and leaves {unused_pct} of all block slots unused"
    "[ ({other_grids:other grid size} too)].{can}[ {blocks} blocks take "
    "{measured_factor} the time of {neighbour_blocks}.]{rise}",
)
SMALL_GRIDS = FindingRule(
    partial(_grids, several=False),
    "{kernel} launches {blocks:block}{few} for {sms} SMs[, beside {beside_blocks:block} of other "
    "launches]: {idle_sms:SM} {idle_sms?stays|stay} idle[, and the others hold {warps} of "
    "{most_warps} warps][ ({other_grids:other grid size} too)].{also}[ Other work runs beside it "
    "for {beside_ns} of its {total_ns}.]{can}",
)
IDLE_LANES = FindingRule(
    _idle_lanes,
    "{kernel} launches blocks of {threads:thread}: each leaves {idle_lanes} of the {lanes} lanes "
    "of {warps} idle[, and an SM holds no more than {blocks_per_sm} blocks].{can}",
    "Launch fewer and larger blocks, of a multiple of {warp_threads} threads: 128 or 256 suit most "
    "kernels.",
)
TILE_WAVES = FindingRule(
    _tile_waves,
    "{kernel} cuts {of_batch}{m} × {n} into {tiles} tiles of {tile_m} × {tile_n} for {blocks} "
    "persistent blocks. The last of {tile_waves} tile waves has {last_tiles:tile} and leaves "
    "{unused_pct} of all tile slots unused[ ({other_gemms:other GEMM size} too)].{can}",
    "Try nearby sizes that fill whole tile waves, {fills} tiles instead of {tiles}: another batch, "
    "sequence length or width, padded where it pays.",
)


@record
class GridTexts:
    """Columns of text about grids; `rows` are the grids in the order of the table."""

    grids: grid_waves.LaunchedGrids
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
        return TextsOneByOne(codes, len(self.grids), lambda of: object_array(list(texts(of))))


def _sides(sides: Integers) -> list[str]:
    return [f"{x}x{y}x{z}" for x, y, z in sides.tolist()]


def _fills(grids: grid_waves.LaunchedGrids, rows: Array) -> Iterator[str]:
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


def _notes(grids: grid_waves.LaunchedGrids, rows: Array) -> Iterator[str]:
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


def _noted(grids: grid_waves.LaunchedGrids) -> Mask:
    """True for the grids on which `_remarks` has a remark."""
    tail = grids.idle_fraction > 0
    few = (grids.whole == 1) | (grids.blocks / grids.sm_count < FEW_BLOCKS_PER_SM)
    shape = grids.persistent_gemm | (grids.idle_sms > 0) | (tail & few)
    others = grids.concurrent | (grids.configurations.green_sms != 0) | (grids.verdict > 0)
    return ~grids.known | shape | others


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
        yield f"measured: {grid_waves.VERDICTS[each.verdict]}"
