"""The figures of one rank that the answer for a job uses, packed to be sent between processes.

A rank is a GPU of a process that has GPU work. Times are int64 nanoseconds on the clock of the
rank's own recording, NULL where absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from typing import Any, Literal

import numpy as np

from traceview.base.findings import Severity
from traceview.base.intervals import Timed
from traceview.base.records import record
from traceview.base.tables import Array, ColumnRecord, Integers, Mask
from traceview.base.vocabulary.causes import CAUSE_NAMES
from traceview.traces.facts.idle.first_calls import ColdPasses
from traceview.traces.ranks.sent import RankGraph, SentColumn, SentTable, SentTexts

KINDS = (
    *("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "reduce"),
    *("gather", "scatter", "send", "receive", "send-receive", "barrier", "dispatch", "combine"),
    "other",
)
ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, BROADCAST, REDUCE = range(6)
GATHER, SCATTER, SEND, RECEIVE, SEND_RECEIVE, BARRIER = range(6, 12)
DISPATCH, COMBINE, OTHER = range(12, len(KINDS))
OF_EXPERTS = (ALL_TO_ALL, DISPATCH, COMBINE)
POINT_TO_POINT = (SEND, RECEIVE, SEND_RECEIVE)
UNKNOWN = -1

Numbered = Literal["recording", "file name", "communicator", "order"]
"""The source of a rank's number."""


@record
class RankCollectives(Timed, ColumnRecord):
    """The collectives and messages of a rank, one row each, in order of start.

    `kind` is an index into KINDS. `communicator` is a number equal on all members, NULL where
    unknown. `bytes` (of the larger buffer) and `bus_bytes` are −1 where unknown, `members` (the
    number of ranks in the communicator) is 0 where unknown. `peer` is the rank within the
    communicator that a message goes to or comes from, −1 for none or if unknown. `exposed_ns` is
    the time of the collective without compute on the same GPU. `step` is a row of RankSteps, −1 for
    none.

    The other columns describe the time between the previous collective's end and this start:
    `work_ns` is busy time without communication, `idle_ns` idle time by cause, shape
    (collectives, len(CAUSES)). `place` is a row of RankFigures.places, −1 where unknown: the
    program was there for `place_ns` of that idle time.
    """

    start_ns: Integers
    end_ns: Integers
    kind: Array
    communicator: Integers
    bytes: Integers
    bus_bytes: Integers
    members: Integers
    peer: Integers
    stream: Integers
    exposed_ns: Integers
    step: Integers
    work_ns: Integers
    idle_ns: Integers
    place: Integers
    place_ns: Integers

    def __getstate__(self) -> dict[str, Any]:
        # Differences pack into fewer bytes.
        apart = {"end_ns": self.duration_ns, "exposed_ns": self.duration_ns - self.exposed_ns}
        return _packed({**vars(self), **apart})

    def __setstate__(self, state: dict[str, Any]) -> None:
        columns = _unpacked(state)
        columns["exposed_ns"] = columns["end_ns"] - columns["exposed_ns"]
        columns["end_ns"] += columns["start_ns"]
        vars(self).update(columns)


@record
class RankSteps:
    """The steps of a rank's main loop, one row each, in order; none where no steps were found.

    `number` is the N of `step_N`, else the position in the loop. The parts of a step are disjoint:
    `compute_ns`, communication without compute (`exposed_ns`), copies and memsets without kernels
    (`copies_ns`), and `idle_ns` by cause, shape (steps, len(CAUSES)), add up to its duration.
    `hidden_ns` is communication under compute, which `compute_ns` includes. `cpu_ns` is the time
    that the CPU needs for the step, outside of waits for the GPU; None where calls were not
    recorded.
    """

    names: tuple[str, ...]
    number: Integers
    begin_ns: Integers
    end_ns: Integers
    warm_up: Mask
    compute_ns: Integers
    exposed_ns: Integers
    hidden_ns: Integers
    copies_ns: Integers
    idle_ns: Integers
    cpu_ns: Integers | None = None

    def __len__(self) -> int:
        return len(self.names)

    def __getstate__(self) -> dict[str, Any]:
        apart = {"end_ns": self.duration_ns, "names": SentTexts.of(self.names)}
        return _packed({**vars(self), **apart})

    def __setstate__(self, state: dict[str, Any]) -> None:
        columns = _unpacked(state)
        columns["end_ns"] += columns["begin_ns"]
        vars(self).update(columns)

    @property
    def duration_ns(self) -> Integers:
        return self.end_ns - self.begin_ns


@record
class Place:
    """A place of the program while its GPU idles: a source line, a range path, or both.

    `what` is the call there, such as `time.sleep`, or the activity. Unknown fields are empty, an
    unknown `line` is 0.
    """

    file: str = ""
    line: int = 0
    function: str = ""
    range_path: str = ""
    what: str = ""

    @property
    def text(self) -> str:
        """`data.py:40`, or the range path."""
        name = self.file.replace("\\", "/").rpartition("/")[2]
        return f"{name}:{self.line}" if self.file and self.line else name or self.range_path


@record
class WorkPart:
    """Kernels of one class in the steady steps; `kind` is the class name as in kernel-share.

    `blocks` counts the blocks of all grids, 0 where unknown.
    """

    kind: str
    calls: int
    time_ns: int
    blocks: int = 0


@record
class RankName:
    """The identity of a rank; `clock` is equal for ranks that read the same clock.

    `numbered` is the source of the number.
    """

    rank: int
    local_rank: int | None = None
    world_size: int | None = None
    host: str = ""
    clock: str = ""
    device_id: int = 0
    gpu: str = ""
    numbered: Numbered = "order"


@record
class RankFinding:
    """A finding of the rank's own report, as text."""

    analysis: str
    severity: Severity
    message: str
    action: str
    time_at_stake_ns: int
    share_of_step_pct: float | None
    cause: str = ""


@record
class RankFigures:
    """The figures of one rank in the answer for its job.

    `clock_offset_ns` added to the rank's times gives ns since 1970; None if not recorded.
    `communicators` has (size, own rank in it) by number; an own rank of −1 is unknown.
    `group_names` has torch's descriptions of process groups, `group_ranks` their global ranks, by
    communicator and where recorded. `work` and the times in ns cover the steady steps, or without
    steps the steady time: `span_ns` is that time, `idle_ns` its idle time by cause.
    `link_bytes_per_s` is the GPU's NVLink rate in one direction, `host_bytes_per_s` its PCIe rate,
    None where unknown. `cpu_place_ns` is the sampled CPU time at `cpu_places` in each step, shape
    (steps, places). `findings` are the first ones of the rank's own report. `graph` is what savings
    are replayed on, None where launches were not recorded.
    """

    name: RankName
    path: str
    recorder: str
    digest: str
    clock_offset_ns: int | None
    collectives: RankCollectives
    steps: RankSteps
    communicators: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    group_names: Mapping[int, str] = field(default_factory=dict)
    group_ranks: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    places: tuple[Place, ...] = ()
    cpu_places: tuple[Place, ...] = ()
    cpu_place_ns: Integers | None = None
    work: tuple[WorkPart, ...] = ()
    step_median_ns: int | None = None
    busy_pct: float = 0.0
    span_ns: int = 0
    compute_ns: int = 0
    exposed_ns: int = 0
    hidden_ns: int = 0
    copies_ns: int = 0
    idle_ns: Mapping[str, int] = field(default_factory=dict)
    peak_memory_bytes: int | None = None
    link_bytes_per_s: int | None = None
    host_bytes_per_s: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    verdict: str = ""
    limit: str = "unknown"
    findings: tuple[RankFinding, ...] = ()
    cold: ColdPasses | None = None
    warnings: tuple[str, ...] = ()
    graph: RankGraph | None = None

    def __getstate__(self) -> dict[str, Any]:
        return _packed(vars(self))

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(_unpacked(state))


def _packed(state: dict[str, Any]) -> dict[str, Any]:
    """The fields of a dataclass with their arrays packed, to send them between processes."""
    packed = dict(state)
    for name, value in state.items():
        if isinstance(value, np.ndarray):
            packed[name] = SentTable.of(value) if value.ndim == 2 else SentColumn.of(value)
    return packed


def _unpacked(state: dict[str, Any]) -> dict[str, Any]:
    unpacked = dict(state)
    for name, value in state.items():
        if isinstance(value, SentColumn | SentTable | SentTexts):
            unpacked[name] = value.unpacked()
    return unpacked


def no_collectives() -> RankCollectives:
    """The empty collectives of a rank that exchanges nothing."""
    columns: dict[str, Any] = {
        column.name: np.zeros(0, np.int64) for column in fields(RankCollectives)
    }
    columns["kind"] = np.zeros(0, np.int8)
    columns["idle_ns"] = np.zeros((0, len(CAUSE_NAMES)), np.int64)
    return RankCollectives(**columns)


def no_steps() -> RankSteps:
    """The empty steps of a rank without a loop."""
    none = np.zeros(0, np.int64)
    idle = np.zeros((0, len(CAUSE_NAMES)), np.int64)
    return RankSteps((), none, none, none, none.astype(bool), none, none, none, none, idle)
