"""Ranges that a text selects, and the text that selects one range alone.

A text selects the ranges with that name or path. A path that several ranges have, with a count, as
in `step_0 (6)`, selects the sixth of these in order of time. Any other text is a glob.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

import numpy as np

from traceview import groups
from traceview.facts.ranges.ranges import RangeTree, range_tree
from traceview.records import record
from traceview.tables import (
    Array,
    Integers,
    Mask,
    RowNumbers,
    Texts,
    TextValues,
    object_array,
    picked,
)
from traceview.trace import Trace

_COUNTED = re.compile(r"(.*) \(([1-9]\d{0,17})\)", re.DOTALL)


def matching_ranges(trace: Trace, text: str) -> Mask:
    """True for the ranges of the tree that the text selects."""
    tree = range_tree(trace)
    if not len(tree.row):
        return np.zeros(0, bool)
    names, paths = trace.recorded("ranges").texts("name"), tree.paths
    exact = names.take(tree.of_table).isin([text])
    exact |= np.isin(tree.path, paths.called(text))
    if exact.any():
        return exact
    counted = _COUNTED.fullmatch(text)
    if counted and (called := paths.called(counted[1])):
        return _counted(trace, called[0], int(counted[2]))
    by_name = np.array([fnmatchcase(str(name), text) for name in names.values], bool)
    by_path = np.array([fnmatchcase(path, text) for path in paths], bool)
    result: Mask = by_name[picked(names.codes, tree.of_table)] | by_path[tree.path]
    return result


def _counted(trace: Trace, path: int, number: int) -> Mask:
    """True for the `number`-th range, in order of time, among those of a path."""
    tree = range_tree(trace)
    rows = np.flatnonzero(tree.path == path)
    number_of = _number_by_path(rows, tree.path[rows], tree.nesting.start[rows])
    result = np.zeros(len(tree.row), bool)
    result[rows[number_of == number]] = True
    return result


def _number_by_path(rows: Integers, path: Array, start: Integers) -> Integers:
    """Number of each range among those of its path in order of time, from 1; `rows` ascend."""
    order = np.lexsort((start, path))
    ordered = path[order]
    first = np.append(True, ordered[1:] != ordered[:-1])
    number = np.zeros(len(rows), np.int64)
    index = np.arange(len(rows))
    number[order] = index - np.maximum.accumulate(np.where(first, index, 0)) + 1
    return number


@record
class RangeNames:
    """The shortest text that selects each range alone: its name, path, or path and count."""

    names: Texts
    unique: Mask
    """True where no other range has the name."""
    paths: Texts
    number: RowNumbers
    """Number among the ranges of its path in order of time, 0 for the only one."""

    def __len__(self) -> int:
        return len(self.names)

    @property
    def every(self) -> TextValues:
        return self.some(np.arange(len(self)))

    def some(self, codes: Array) -> TextValues:
        """The texts of some of the ranges."""
        result = np.full(len(codes), None, object)
        unique = self.unique[codes]
        result[unique] = self.names.take(codes[unique]).decode()
        paths = self.paths.take(codes[~unique]).decode().tolist()
        counts = self.number[codes[~unique]].tolist()
        result[~unique] = object_array(
            [
                f"{path} ({count})" if count else path
                for path, count in zip(paths, counts, strict=True)
            ]
        )
        return result


def selecting_texts(trace: Trace, rows: Array) -> RangeNames:
    """Texts with which --range selects each of these ranges alone."""
    tree = range_tree(trace)
    every = trace.recorded("ranges").texts("name")
    names = every.take(tree.row[rows])
    codes = picked(every.codes, tree.of_table)
    counts = groups.frequencies(codes, int(codes.max(initial=0)) + 1)
    unique = counts[names.codes] == 1
    number = _numbers(tree, rows, np.flatnonzero(~unique))
    return RangeNames(names, unique, tree.paths.texts(tree.path[rows]), number)


def _numbers(tree: RangeTree, rows: Array, asked: Integers) -> RowNumbers:
    """Number of each of the rows `asked` among the ranges of its path; 0 if it is the only one."""
    number = np.zeros(len(rows), np.int32)
    paths = np.zeros(len(tree.paths), bool)
    paths[tree.path[rows[asked]]] = True
    alike = [np.flatnonzero(paths[tree.path[p]]) + p.start for p in groups.parts(len(tree.path))]
    several = np.concatenate([np.zeros(0, np.int64), *alike])
    own = groups.group(tree.path[several])
    several = several[groups.count(own)[own.ids] > 1]
    if not len(several):
        return number
    counted = _number_by_path(several, tree.path[several], tree.nesting.start[several])
    place = np.minimum(np.searchsorted(several, rows[asked]), len(several) - 1)
    number[asked] = np.where(several[place] == rows[asked], counted[place], 0)
    return number
