"""Edits replayed one after the other: the time per step with each, its error, and what is left."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import overload

import numpy as np

from traceview import display
from traceview.edits import gpu_work, launches, pauses, waits
from traceview.edits.limits import GpuTime, gpu_time
from traceview.edits.requests import KINDS, EditRequest
from traceview.edits.scope import AppliedEdit, EditScope
from traceview.errors import InputError
from traceview.facts.dependencies.forecast import Model, StepForecast
from traceview.facts.dependencies.replay import Changed, Edit
from traceview.records import record
from traceview.trace import Trace
from traceview.version import __version__

APPLY: Mapping[str, Callable[[EditScope, EditRequest], AppliedEdit]] = {
    "kernel": gpu_work.kernels,
    "no-sync": waits.no_sync,
    "graph": launches.graph,
    "cpu": pauses.cpu,
    "copy": gpu_work.copies,
    "link": gpu_work.link,
    "gpu": gpu_work.gpu,
    "no-recorder": launches.no_recorder,
}
"""What finds the items of each kind of edit."""
assert APPLY.keys() == KINDS.keys()


@record
class EditOutcome:
    """An edit, the forecast with it and all before it, and what it adds to their saving."""

    applied: AppliedEdit
    forecast: StepForecast
    saved_ns: int


@record
class ReplayQuality:
    """How far a replay can be trusted.

    `is_exact` is True where a replay without edits is the recording to the nanosecond. Of the idle
    time of the GPU, `inferred_idle_pct` rests on edges that are inferred. `items` are the calls and
    operations of the graph, of `recorded_items`; those of a long recording are its middle steps.
    """

    is_exact: bool
    inferred_idle_pct: float
    items: int
    recorded_items: int


@record
class NextLimit:
    """What the program gains, with all edits, from a tenth less GPU work or CPU time, per step.

    GPU work is that of all operations, CPU time that of calls, without waits, and between them.
    """

    gpu_ns: int
    cpu_ns: int


@dataclass(frozen=True, repr=False)
class WhatIfReport(display.Drawn):
    """What edits of a program would win, in the order given, each on top of those before it.

    Times are per measured step, or of the run as a whole where `steps` is 0. `before` and `after`
    are the time of the GPU as recorded and with all edits, `next` what limits the program then.
    """

    path: str
    gpus: tuple[str, ...]
    ranges: tuple[str, ...]
    excluded_ranges: tuple[str, ...]
    steps: int
    recorded_ns: int
    edits: tuple[EditOutcome, ...]
    before: GpuTime
    after: GpuTime
    next: NextLimit
    quality: ReplayQuality

    @property
    def forecast(self) -> StepForecast:
        """The forecast with all edits."""
        return self.edits[-1].forecast

    @property
    def name(self) -> str:
        """The file of the recording."""
        return PurePath(self.path).name

    @overload
    def to_html(self, path: None = None, *, force: bool = False) -> str: ...
    @overload
    def to_html(self, path: str | Path, *, force: bool = False) -> Path: ...
    def to_html(self, path: str | Path | None = None, *, force: bool = False) -> str | Path:
        """The answer as one HTML page; with a path, write it there and return the path.

        Raises OutputExistsError if the file exists and not `force`.
        """
        return display.output(lambda: display.show(self, "page", __version__), path, force)

    @overload
    def to_json(self, path: None = None, *, force: bool = False) -> str: ...
    @overload
    def to_json(self, path: str | Path, *, force: bool = False) -> Path: ...
    def to_json(self, path: str | Path | None = None, *, force: bool = False) -> str | Path:
        """The answer as JSON, as `traceview what-if --json` prints it; with a path, write it there.

        Raises OutputExistsError if the file exists and not `force`.
        """
        return display.output(lambda: display.show(self, "json", __version__), path, force)

    @overload
    def to_markdown(self, path: None = None, *, force: bool = False) -> str: ...
    @overload
    def to_markdown(self, path: str | Path, *, force: bool = False) -> Path: ...
    def to_markdown(self, path: str | Path | None = None, *, force: bool = False) -> str | Path:
        """The answer as Markdown, for an issue or a pull request; with a path, write it there.

        Raises OutputExistsError if the file exists and not `force`.
        """
        return display.output(lambda: display.show(self, "markdown"), path, force)


def replayed(
    trace: Trace,
    requests: Sequence[EditRequest],
    ranges: Sequence[str] = (),
    excluded_ranges: Sequence[str] = (),
) -> WhatIfReport:
    """The answer for a recording with steps. Raises InputError for an edit that touches nothing."""
    if not requests:
        raise InputError("no edits were given", f"name one or more of: {', '.join(KINDS)}")
    scope = EditScope.of(trace, ranges, excluded_ranges)
    model = scope.model
    if not len(model.graph.operation):
        raise InputError(
            f"{PurePath(trace.path).name} has no GPU work to replay",
            "record the program where it uses a GPU",
        )
    applied = [APPLY[each.kind](scope, each) for each in requests]
    outcomes = _outcomes(model, applied)
    before, is_exact = _recorded(model)
    changes = [each.change for each in applied]
    return WhatIfReport(
        trace.path,
        tuple(str(name) for name in trace.devices.texts("name").decode() if name),
        tuple(ranges),
        tuple(excluded_ranges),
        scope.steps,
        outcomes[0].forecast.recorded_ns,
        outcomes,
        before,
        _with(model, changes),
        _next(model, changes, outcomes[-1].forecast.saved_ns),
        ReplayQuality(is_exact, before.inferred_pct, len(model.graph), _items(trace)),
    )


def _outcomes(model: Model, applied: Sequence[AppliedEdit]) -> tuple[EditOutcome, ...]:
    result: list[EditOutcome] = []
    saved = 0
    for number, each in enumerate(applied, 1):
        forecast = model.forecast(*(edit.change for edit in applied[:number]))
        result.append(EditOutcome(each, forecast, forecast.saved_ns - saved))
        saved = forecast.saved_ns
    return tuple(result)


def _recorded(model: Model) -> tuple[GpuTime, bool]:
    """The time of the GPU without edits, and whether the replay is the recording."""
    changed = Changed(model.graph)
    times = changed.replay()
    same = np.array_equal(times.start_ns, model.graph.start_ns)
    same = same and np.array_equal(times.end_ns, model.graph.end_ns)
    return gpu_time(model, changed, times), bool(same)


def _with(model: Model, edits: Sequence[Edit]) -> GpuTime:
    changed = Changed(model.graph)
    for edit in edits:
        edit(changed)
    return gpu_time(model, changed, changed.replay())


def _next(model: Model, edits: Sequence[Edit], saved_ns: int) -> NextLimit:
    calls, items = model.graph.calls, len(model.graph)

    def less_gpu(changed: Changed) -> None:
        changed.scale(np.arange(calls, items), 0.9)

    def less_cpu(changed: Changed) -> None:
        changed.scale(np.arange(calls), 0.9)
        changed.scale_pause(np.arange(calls), 0.9)

    return NextLimit(
        model.saved_ns(*edits, less_gpu) - saved_ns, model.saved_ns(*edits, less_cpu) - saved_ns
    )


def _items(trace: Trace) -> int:
    return sum(
        len(trace.recorded(name))
        for name in ("api_calls", "kernels", "copies", "sets", "graph_launches")
    )
