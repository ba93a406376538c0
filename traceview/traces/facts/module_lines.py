"""Modules of a torch model: the line that calls each, and the work of each, forward and backward.

The program noted the line when it called the module; work belongs to the range of the module that
was open at its launch. Layers that differ in their numbers alone are one: `h.#.attn`.
"""

from __future__ import annotations

import re
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from traceview.base import groups
from traceview.base.findings import Subject
from traceview.base.records import record
from traceview.base.tables import Integers, RowNumbers, picked
from traceview.base.units import Value
from traceview.traces.facts.kernel_classes import kernel_labels
from traceview.traces.facts.operations import kernel_operations
from traceview.traces.facts.python_events import MODULE, events_of
from traceview.traces.facts.ranges.origins import added_ranges
from traceview.traces.facts.ranges.ranges import attributed_operations, range_tree
from traceview.traces.facts.steps.steps import steady_kernels
from traceview.traces.trace import Trace, fact

_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")
_FORWARD = "forward "


class ModuleLine(NamedTuple):
    """A module, or layers alike, and the line of the program that calls it."""

    module: str
    file: str
    line: int
    function: str
    source: str | None

    @property
    def place(self) -> str:
        """Such as `model.py:42`."""
        return Subject.of_line(self.file, self.line).name


@record
class ModuleWork:
    """`lines` are the modules alike of which a line is known, `of_range` that of each row of the
    range tree and `of_operation` that of each operation: numbers of `lines`, −1 without one.
    """

    lines: tuple[ModuleLine, ...]
    of_range: Integers
    of_operation: Integers


@fact
def module_work(trace: Trace) -> ModuleWork:
    """The innermost module around each range and operation."""
    ranges, tree, called = trace.recorded("ranges"), range_tree(trace), _called(trace)
    lines = {line: number for number, line in enumerate(dict.fromkeys(called.values()))}
    names = ranges.texts("name")
    number = np.full(len(names.values) + 1, -1, np.int64)
    if called:
        code = {text: code for code, text in enumerate(names.values.tolist())}
        for path in code.keys() & called.keys():
            number[code[path]] = lines[called[path]]
    own = np.where(added_ranges(trace), number[names.codes], -1)
    of_range = tree.own_or_inherited(picked(own, tree.row).astype(np.int32))
    opened = attributed_operations(trace).range
    at = np.append(of_range, -1)[opened] if len(tree.row) else np.full(len(opened), -1)
    return ModuleWork(tuple(lines), of_range.astype(np.int64), at.astype(np.int64))


def _called(trace: Trace) -> dict[str, ModuleLine]:
    """The modules by their path, without those called from several lines, and what is in these."""
    events = events_of(trace, MODULE)
    known: dict[str, set[tuple[str, int, str, str | None]]] = {}
    for row in events.rows():
        if row["reason"] and row["file"] and row["line"]:
            source = None if row["source"] is None else str(row["source"])
            place = str(row["file"]), int(row["line"]), str(row["function"]), source
            known.setdefault(str(row["reason"]), set()).add(place)
    several = {path for path, places in known.items() if len(places) > 1}
    # The path of a module begins with those of the modules around it.
    return {
        path: ModuleLine(_NUMBER.sub("#", path.removeprefix(_FORWARD)), *next(iter(places)))
        for path, places in known.items()
        if several.isdisjoint(accumulate(path.split("."), "{}.{}".format))
    }


def most_time(
    trace: Trace, operations: RowNumbers | Integers, time_ns: Integers
) -> tuple[ModuleLine, int] | None:
    """The module with most of the time of some operations, and that time; None if none has half."""
    work = module_work(trace)
    if not work.lines:
        return None
    sums = groups.added(work.of_operation[operations], time_ns, len(work.lines))
    most = int(np.argmax(sums))
    if not 2 * int(sums[most]) >= int(time_ns.sum()) > 0:
        return None
    return work.lines[most], int(sums[most])


@record
class KernelModule:
    """The module that launches most of a kernel's time after warm-up; `label` names the kernel."""

    module: ModuleLine
    label: str
    time_ns: int

    @property
    def values(self) -> dict[str, Value]:
        """The figures of a finding, of which a sentence may speak."""
        named: dict[str, Value] = {"module_kernel": self.label, "module": self.module.module}
        return {**named, "called": self.module.place, "module_ns": self.time_ns}


def most_of_kernel(trace: Trace, name: str) -> KernelModule | None:
    """The module with half or more of the time of the kernels of one name, if any."""
    if not module_work(trace).lines:
        return None
    kernels = trace.recorded("kernels")
    rows = np.flatnonzero(kernels.texts("name").isin([name]) & steady_kernels(trace))
    found = most_time(trace, kernel_operations(trace)[rows], kernels.duration_ns[rows])
    return (
        KernelModule(found[0], str(kernel_labels(trace)[int(rows[0])]), found[1]) if found else None
    )
