"""The figures of one run that comparisons use, small enough to be kept as a baseline, and the means
of a side over its runs.

A run is one recording. Everything a comparison or a gate needs is here, so that the recording
itself can be deleted. Times are those of the GPU with the longest steady span, inside its steps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from fractions import Fraction
from typing import Literal

from traceview.base.records import record

AT_START = "at-start"
"""The idle time before the first GPU work of all, as the steps analysis calls it."""
PartKind = Literal["kernel", "communication", "copy", "memset", "graph", "idle"]
"""Idle parts are named by the cause of the gap, all others by the operation."""


@record
class KernelShape:
    """The launch configuration of a kernel and what it loads, as its launches have it most often.

    `load_bits` and `store_bits` are the bits per thread per instruction of the accesses that move
    most, `waves` the blocks by those that the GPU holds at once; None where it is not recorded.
    `dtype` is the type in the name of a library's kernel.
    """

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    registers: int | None = None
    shared_bytes: int | None = None
    waves: float | None = None
    load_bits: int | None = None
    dtype: str | None = None
    store_bits: int | None = None


@record
class StepPart:
    """Exclusive time of one kind of work, or of idleness, in the steps of a run.

    The parts of a run are disjoint and sum to `RunFigures.window_ns`: at each instant the GPU's
    time belongs to one operation (compute before communication before copies before memsets; among
    equals the one that started first), or to the cause of the idle gap.

    `group` is the class of a kernel, the direction of a copy, the collective of communication;
    for idle time it is empty. `name` is the short name of a kernel, or the cause of idle time.
    `place` is where the program does it: a range path, or `file.py:12`; empty where unknown.
    `busy_ns` is the time of the operations themselves, which may overlap others. `symbol` is a hash
    of the full name of a kernel, since a kernel's label may differ between recordings; for idle
    time at a line, a hash of the code there, which may move within its file.
    """

    kind: PartKind
    group: str
    name: str
    place: str
    time_ns: int
    busy_ns: int
    calls: int
    shape: KernelShape | None = None
    symbol: str = ""


@record
class RunFigures:
    """The figures of one recording in a comparison.

    `digest` is equal only for the same capture. `environment` has what may explain a difference:
    `gpu`, `driver`, `cuda`, `torch`, `sm_clock_mhz`, `power_limit_w`, `traceview` and so on, as far
    as recorded. `step_ns` has the duration of each step after warm-up, in order, without idle time
    for first uses of kernels and compilation; `window_ns` is their sum, and the sum of `parts`.
    Without steps `step_ns` has one entry, the steady window, and `has_steps` is False. `counts` are
    totals over the window (`synchronizations`, `launches`, `kernels`, `copies`, `copied_bytes`,
    `allocations`, …): divided by the steps they are exact.
    `figures` are the numbers a gate may name, see below. `sequence` lists, for a typical step, the
    parts in the order in which the GPU ran them, as indices of `parts`; it tells a renamed kernel
    from a new one. `sequence_ns` has the exclusive time of each entry of `sequence`.

    Figures: `step_ns` (mean), `step_median_ns`, `gpu_busy_pct`, `gpu_idle_pct`, `gpu_idle_ns`,
    `exposed_communication_pct`, `exposed_communication_ns`, `exposed_copies_pct`,
    `exposed_copies_ns` (copies and memsets), `peak_memory_bytes`, `memory_growth_bytes_per_step`,
    each count as `synchronizations_per_step` and so on; by cause `idle_ns[sync-drain]`, by class
    `class_ns[gemm]`, by kernel `kernel_ns[NAME]` (overlapping others or not),
    `calls_per_step[NAME]`, `load_bits[NAME]`, `store_bits[NAME]` (the narrowest of its launches),
    `waves[NAME]` and `registers[NAME]`, with the name of a part. Times are per step. What is not
    recorded is absent.

    `loops` has the number of steps after warm-up and their median, by the name of the loop, that
    which is compared first. `cold` is True for a recording of a start and first calls alone.
    """

    name: str
    digest: str
    recorder: str
    environment: Mapping[str, str]
    devices: int
    has_steps: bool
    step_ns: tuple[int, ...]
    window_ns: int
    parts: tuple[StepPart, ...]
    counts: Mapping[str, int] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)
    sequence: tuple[int, ...] = ()
    sequence_ns: tuple[int, ...] = ()
    warnings: tuple[str, ...] = ()
    loops: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    cold: bool = False

    @property
    def steps(self) -> int:
        """Steps in the window, at least 1."""
        return len(self.step_ns)

    @property
    def mean_step_ns(self) -> Fraction:
        return Fraction(self.window_ns, self.steps)


PartKey = tuple[str, ...]


@record
class SidePart:
    """A part of the step on one side: mean time and calls per step over the runs.

    `part` is that of the run with the median step among those that have it.
    """

    part: StepPart
    time_ns: Fraction
    calls: Fraction


def step_mean_ns(runs: Sequence[RunFigures]) -> Fraction:
    """Time per step, the mean over the runs."""
    return total(run.mean_step_ns for run in runs) / len(runs)


def side_parts(runs: Sequence[RunFigures]) -> list[SidePart]:
    """The parts of a side; their times add up to `step_mean_ns`."""
    by_key: defaultdict[PartKey, list[tuple[StepPart, int]]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.mean_step_ns):
        for part in run.parts:
            by_key[part_key(part)].append((part, run.steps))
    return [
        SidePart(
            parts[len(parts) // 2][0],
            total(Fraction(part.time_ns, steps) for part, steps in parts) / len(runs),
            total(Fraction(part.calls, steps) for part, steps in parts) / len(runs),
        )
        for parts in by_key.values()
    ]


def part_key(part: StepPart) -> PartKey:
    """The key of a part, equal for the same part in other runs of the program."""
    return (part.kind, part.group, part.symbol or part.name, configuration(part.shape), part.place)


def configuration(shape: KernelShape | None) -> str:
    """Grid and block of a launch configuration."""
    return "" if shape is None else f"{shape.grid}{shape.block}"


def longest(parts: Sequence[SidePart]) -> StepPart | None:
    """The part with most time; None without any."""
    return max(parts, key=lambda side: side.time_ns).part if parts else None


def total(values: Iterable[Fraction]) -> Fraction:
    """The exact sum."""
    return sum(values, Fraction(0))
