"""Which ranges a text means, and the text that means one range alone.

A text means the ranges that have it as name or path. A path that several have, with a count,
`step_0 (6)`, means the sixth of these in order of time. Any other text is a glob.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np

from traceview.facts.ranges.ranges import range_tree
from traceview.tables import (
    Array,
    Integers,
    Mask,
    RowNumbers,
    Texts,
    TextValues,
    object_array,
    row_numbers,
)
from traceview.trace import Trace

_COUNTED = re.compile(r"(.*) \(([1-9]\d{0,17})\)", re.DOTALL)


def meant(trace: Trace, text: str) -> Mask:
    """True for the ranges of the tree that the text means."""
    tree = range_tree(trace)
    if not len(tree.row):
        return np.zeros(0, bool)
    names, paths = trace.recorded("ranges").texts("name"), list(tree.paths)
    exact = np.array([str(name) == text for name in names.values], bool)[names.codes[tree.row]]
    exact |= np.array([path == text for path in paths], bool)[tree.path]
    if exact.any():
        return exact
    counted = _COUNTED.fullmatch(text)
    if counted and counted[1] in paths:
        return _counted(trace, paths.index(counted[1]), int(counted[2]))
    by_name = np.array([fnmatchcase(str(name), text) for name in names.values], bool)
    by_path = np.array([fnmatchcase(path, text) for path in paths], bool)
    result: Mask = by_name[names.codes[tree.row]] | by_path[tree.path]
    return result


def _counted(trace: Trace, path: int, number: int) -> Mask:
    """True for the range of that path that is the given one in order of time, if there is one."""
    tree = range_tree(trace)
    rows = np.flatnonzero(tree.path == path)
    place = _places(rows, tree.path[rows], tree.nesting.start[rows])
    result = np.zeros(len(tree.row), bool)
    result[rows[place == number]] = True
    return result


def _places(rows: Integers, path: Array, start: Integers) -> Integers:
    """Which of the ranges of its path each is in order of time, from 1; `rows` ascend."""
    order = np.lexsort((start, path))
    ordered = path[order]
    first = np.append(True, ordered[1:] != ordered[:-1])
    place = np.zeros(len(rows), np.int64)
    every = np.arange(len(rows))
    place[order] = every - np.maximum.accumulate(np.where(first, every, 0)) + 1
    return place


@dataclass(frozen=True)
class RangeNames:
    """For some ranges the shortest text that means each alone: name, path, or path and count."""

    names: Texts
    alone: Mask
    """True where no other range has the name."""
    paths: Texts
    place: RowNumbers
    """Which of the ranges of its path each is in order of time, 0 for one that is alone there."""

    def __len__(self) -> int:
        return len(self.names)

    @property
    def every(self) -> TextValues:
        return self.some(np.arange(len(self)))

    def some(self, codes: Array) -> TextValues:
        """The texts of some of the ranges."""
        result = np.full(len(codes), None, object)
        alone = self.alone[codes]
        result[alone] = self.names.take(codes[alone]).decode()
        paths = self.paths.take(codes[~alone]).decode().tolist()
        counts = self.place[codes[~alone]].tolist()
        result[~alone] = object_array(
            [
                f"{path} ({count})" if count else path
                for path, count in zip(paths, counts, strict=True)
            ]
        )
        return result


def names_of(trace: Trace, rows: Array) -> RangeNames:
    """Texts by which --range selects each of some ranges alone."""
    tree = range_tree(trace)
    names = trace.recorded("ranges").texts("name").take(tree.row)
    alone = np.bincount(names.codes)[names.codes[rows]] == 1 if len(rows) else np.zeros(0, bool)
    asked = np.zeros(len(tree.paths), bool)
    asked[tree.path[rows[~alone]]] = True
    asked &= np.bincount(tree.path, minlength=len(asked)) > 1
    several = np.flatnonzero(asked[tree.path])
    place = np.zeros(len(tree.row), np.int64)
    place[several] = _places(several, tree.path[several], tree.nesting.start[several])
    return RangeNames(
        names.take(rows), alone, tree.paths.texts(tree.path[rows]), row_numbers(place[rows])
    )
