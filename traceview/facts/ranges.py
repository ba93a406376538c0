"""NVTX ranges as a tree, and the range that a call belongs to."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from traceview import groups
from traceview.facts.nesting import Nesting, nest
from traceview.facts.operations import operations
from traceview.tables import NULL, Array, Integers, Mask, Texts, object_array
from traceview.trace import Trace, fact

UNATTRIBUTED = "(unattributed)"
_NUMBER = re.compile(r"\d+")
PATH_CHARACTERS = 4000
NEVER_NS = np.iinfo(np.int64).max // 4


@dataclass(frozen=True)
class RangeTree:
    """Ranges that last, sorted by (thread, start, −end). `row` is their row in ranges.

    `path` numbers the paths: a path is the names from the outermost range down, equal for all
    instances of that place. `path_parent` is −1 at the top. `path_pattern` numbers the patterns:
    paths that differ in their numbers only, such as the steps of a series, have one pattern.
    """

    nesting: Nesting
    row: Integers
    process: Array
    path: Integers
    path_parent: Integers
    path_text: Array
    path_pattern: Integers
    pattern_text: Array


def pattern_of(text: str) -> str:
    """A range's name or path with its numbers as #, the same for all steps of a series."""
    return _NUMBER.sub("#", text)


@fact
def range_tree(trace: Trace) -> RangeTree:
    """The tree of all push/pop and start/end ranges. A range that never ended lasts for ever."""
    ranges = trace.recorded("ranges")
    end = np.where(ranges["end_ns"] == NULL, NEVER_NS, ranges["end_ns"])
    lasting = (end > ranges["start_ns"]) & ~ranges.texts("kind").isin(["mark"])
    rows = np.flatnonzero(lasting)
    order = np.lexsort((-end[rows], ranges["start_ns"][rows], ranges["thread"][rows]))
    rows = rows[order]
    last = _last_time(trace)
    nesting = nest(ranges["thread"][rows], ranges["start_ns"][rows], np.minimum(end[rows], last))
    names = ranges.texts("name").take(rows)
    path, path_parent, path_text = _paths(nesting, names)
    pattern, _, pattern_text = _paths(nesting, names.map([pattern_of(n) for n in names.values]))
    path_pattern = np.zeros(len(path_text), np.int64)
    path_pattern[path] = pattern
    process = ranges["process"][rows]
    return RangeTree(
        nesting, rows, process, path, path_parent, path_text, path_pattern, pattern_text
    )


def _last_time(trace: Trace) -> int:
    """A time after everything, near enough to keep (thread, time) keys within 64 bits."""
    last = 0
    for name in ("ranges", "api_calls", "kernels", "copies", "sets", "graph_launches"):
        table = trace.recorded(name)
        for column in ("start_ns", "end_ns"):
            if len(table):
                last = max(last, int(table[column].max()))
    return last + 1


def _paths(nesting: Nesting, names: Texts) -> tuple[Integers, Integers, Array]:
    """Number the distinct paths, level by level: a path is its parent's and one name more."""
    name, values = names.codes, names.values
    path = np.full(len(name), -1, np.int64)
    parents: list[int] = []
    texts: list[str] = []
    for level in range(int(nesting.depth.max()) + 1 if len(name) else 0):
        mine = np.flatnonzero(nesting.depth == level)
        above = nesting.parent[mine]
        parent = np.where(above >= 0, path[above], -1)
        found = groups.group(parent, name[mine])
        path[mine] = found.ids + len(texts)
        for first in found.first.tolist():
            up, text = int(parent[first]), str(values[name[mine[first]]])
            parents.append(up)
            texts.append(_bounded(f"{texts[up]}/{_bounded(text)}" if up >= 0 else _bounded(text)))
    return path, np.array(parents, np.int64), object_array(texts)


def _bounded(text: str) -> str:
    """The text, its middle left out where it is absurdly long (deep recursion, hostile names)."""
    half = PATH_CHARACTERS // 2
    return text if len(text) <= PATH_CHARACTERS else f"{text[:half]}…{text[-half:]}"


@dataclass(frozen=True)
class Attribution:
    """For each asked place, its row in the range tree (−1: none) and how it was found.

    `inferred` is True where the thread itself had no range open, and the range is the one open
    on another thread of the process: autograd and worker threads launch for the main thread.
    """

    range: Integers
    inferred: Mask

    def path(self, tree: RangeTree) -> Integers:
        """Path of each place, −1 where there is none."""
        if not len(tree.path):
            return np.full(len(self.range), -1, np.int64)
        return np.where(self.range >= 0, tree.path[self.range], -1)


def attribute(trace: Trace, thread: Array, process: Array, time: Integers) -> Attribution:
    """The innermost range at each (thread, time).

    A thread without an open range gets that of the process's main thread, or, if the main thread
    has none either, of the only other thread that has one; where several have, it gets none.
    """
    tree = range_tree(trace)
    found = tree.nesting.innermost(thread, time)
    inferred = np.zeros(len(found), bool)
    for number in np.unique(process[found < 0]) if len(tree.row) else ():
        asked = np.flatnonzero((found < 0) & (process == number))
        found[asked] = _from_other_threads(trace, tree, int(number), time[asked])
        inferred[asked] = found[asked] >= 0
    return Attribution(found, inferred)


def _from_other_threads(trace: Trace, tree: RangeTree, process: int, time: Integers) -> Integers:
    chosen = np.full(len(time), -1, np.int64)
    main = np.full(len(time), -1, np.int64)
    having = np.zeros(len(time), np.int64)
    process_id = trace.processes["process_id"][process]
    for thread in np.unique(tree.nesting.track[tree.process == process]).tolist():
        here = tree.nesting.innermost(np.full(len(time), thread), time)
        having += here >= 0
        chosen = np.where(here >= 0, here, chosen)
        if trace.threads["thread_id"][thread] == process_id:
            main = here
    return np.where(main >= 0, main, np.where(having == 1, chosen, -1))


@fact
def attributed_operations(trace: Trace) -> Attribution:
    """The range of each operation: the one its launch call was made in."""
    done = operations(trace)
    calls = trace.recorded("api_calls")
    known = np.flatnonzero(done.launched)
    call = done.call[known]
    part = attribute(trace, calls["thread"][call], calls["process"][call], calls["start_ns"][call])
    whole = np.full(len(done), -1, np.int64)
    inferred = np.zeros(len(done), bool)
    whole[known], inferred[known] = part.range, part.inferred
    return Attribution(whole, inferred)
