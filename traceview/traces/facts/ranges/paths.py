"""Paths of ranges: the names from the outermost range down, numbered.

A training run has as many paths as steps times ranges in a step, and a report shows a handful: so
paths are numbers, and the text of one is made when it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from ctypes import Structure, c_int64, c_void_p
from functools import cached_property

import numpy as np

from traceview.base import groups
from traceview.base.compiled import library
from traceview.base.compiled.library import address
from traceview.base.records import record
from traceview.base.tables import (
    Array,
    Integers,
    MadeTexts,
    Mask,
    RowNumbers,
    Texts,
    TextValues,
    object_array,
    picked,
    row_numbers,
)
from traceview.base.vocabulary.amounts import NAME_CHARACTERS
from traceview.traces.facts.ranges.nesting import depths, inherited

UNATTRIBUTED = "(unattributed)"
_HALF = NAME_CHARACTERS // 2
_DEEP = 256
"""Names in a path from which its text is made alone, and not with those of all paths around it."""


@record
class Paths:
    """All paths, one row per path, each after its parent.

    `parent` is the path without the last name, −1 at the top; `name` is the code of the last name
    in `naming`, `depth` the number of names before it.
    """

    parent: RowNumbers
    name: RowNumbers
    depth: RowNumbers
    naming: Texts

    @property
    def names(self) -> TextValues:
        """The texts of the names, by code."""
        return self.naming.values

    def __len__(self) -> int:
        return len(self.parent)

    def __getitem__(self, path: int) -> str:
        """The names of a path joined by /, with the middle left out of an absurdly long one."""
        names, characters = list[str](), 0
        while path >= 0 and characters <= NAME_CHARACTERS:
            names.append(self._own(path))
            characters += len(names[-1]) + 1
            path = int(self.parent[path])
        text = "/".join(reversed(names))
        if path < 0:
            return _bounded(text)
        return f"{f'{self._beginning(path)}/{text}'[:_HALF]}…{text[-_HALF:]}"

    def _beginning(self, path: int) -> str:
        """The first characters of the text of a path, half of those that are shown.

        All ancestors are kept: thousands of paths can lie in one another.
        """
        above, known = list[int](), self._beginnings
        while path >= 0 and path not in known:
            above.append(path)
            path = int(self.parent[path])
        text = known.get(path)
        for each in reversed(above):
            if text is None or len(text) < _HALF:
                own = self._own(each)
                text = (own if text is None else f"{text}/{own}")[:_HALF]
            known[each] = text
        return text or ""

    @cached_property
    def _beginnings(self) -> dict[int, str]:
        return {}

    def _own(self, path: int) -> str:
        return _bounded(self.naming.value(int(self.name[path])))

    def __iter__(self) -> Iterator[str]:
        return iter(self.every[:-1].tolist())

    def called(self, text: str) -> list[int]:
        """The paths whose text is `text`, ascending; does not make the texts of all paths."""
        if len(text) >= NAME_CHARACTERS:
            return [path for path, each in enumerate(self) if each == text]
        inside = np.fromiter(map(text.__contains__, self.names), bool, len(self.names))
        near, matches = np.flatnonzero(inside[self.name]), list[int]()
        # For each path that is a prefix of the text, where it ends therein.
        ends = {-1: -1}
        while ends:
            below = near[np.isin(self.parent[near], list(ends))]
            every = {path: self._end(path, ends, text) for path in below.tolist()}
            ends = {path: end for path, end in every.items() if end is not None}
            matches += [path for path, end in ends.items() if end == len(text)]
        return sorted(matches)

    def _end(self, path: int, ends: Mapping[int, int], text: str) -> int | None:
        name, begin = self.naming.value(int(self.name[path])), ends[int(self.parent[path])] + 1
        end = begin + len(name)
        whole = text.startswith(name, begin) and text[end : end + 1] in ("", "/")
        return end if whole and text[max(begin - 1, 0) : begin] in ("", "/") else None

    def add_up(self, numbers: Integers) -> None:
        """Add, in place, the number of each path to all paths above it."""
        library.call("traceview_add_to_parents", self.parent, len(self), numbers)

    def with_name(self, paths: Array, matches: Callable[[str], bool]) -> Mask:
        """True for those of some paths of which a name matches."""
        around = self._with_ancestors(paths)
        used = groups.different(self.name[around])
        hit = np.fromiter(map(matches, self.naming.values_of(used)), bool, len(used))
        own = np.full(len(self), -1, np.int32)
        own[around[hit[np.searchsorted(used, self.name[around])]]] = 0
        return inherited(own, self.parent)[paths] >= 0

    def texts(self, path: Array) -> Texts:
        """A column of paths, made when it is read; UNATTRIBUTED for −1."""
        code = row_numbers(np.where(path < 0, np.int32(len(self)), path))
        return MadeTexts(code, len(self), self.some, lambda: self.every)

    def some(self, codes: Array) -> TextValues:
        """The texts of a few paths; UNATTRIBUTED for the code after the last path."""
        paths = codes[codes < len(self)]
        if self.depth[paths].max(initial=0) > _DEEP:
            deep = {len(self): UNATTRIBUTED}
            for path in groups.different(paths).tolist():
                above = deep.get(int(self.parent[path]))
                deep[path] = _bounded(f"{above}/{self._own(path)}") if above else self[path]
            return object_array([deep[code] for code in codes.tolist()])
        paths = self._with_ancestors(paths)
        used = groups.different(self.name[paths])
        own = dict(zip(used.tolist(), map(_bounded, self.naming.values_of(used)), strict=True))
        texts, parents = {len(self): UNATTRIBUTED}, self.parent[paths].tolist()
        for path, above, name in zip(
            paths.tolist(), parents, self.name[paths].tolist(), strict=True
        ):
            texts[path] = _bounded(f"{texts[above]}/{own[name]}") if above >= 0 else own[name]
        return object_array([texts[code] for code in codes.tolist()])

    def _with_ancestors(self, paths: Array) -> Array:
        """The distinct paths and all their ancestors, each after its parent."""
        levels, above = [np.zeros(0, np.int32)], groups.different(paths)
        while len(above):
            levels.append(above)
            above = groups.different(self.parent[above])
            above = above[above >= 0]
        # A path has a higher number than its parent.
        return groups.different(np.concatenate(levels))

    @cached_property
    def every(self) -> TextValues:
        """The texts of all paths, and UNATTRIBUTED."""
        own = [_bounded(str(name)) for name in self.names]
        texts: list[str] = []
        for above, name in zip(self.parent.tolist(), self.name.tolist(), strict=True):
            texts.append(_bounded(f"{texts[above]}/{own[name]}") if above >= 0 else own[name])
        return object_array([*texts, UNATTRIBUTED])


def _bounded(text: str) -> str:
    """The text, with its middle cut if it is very long (deep recursion, hostile names)."""
    return text if len(text) <= NAME_CHARACTERS else f"{text[:_HALF]}…{text[-_HALF:]}"


def number_paths(around: RowNumbers, names: Texts) -> tuple[RowNumbers, Paths]:
    """The path of each range, and all distinct paths as they first appear.

    `around` is the row of the range around each one, −1 at the top.
    """
    found = _by_search(around, names.codes) or _by_appearance(
        *_by_level(around, depths(around), names.codes)
    )
    path, parent, name, levels = found
    # Only the texts are needed from here on, not that of each range.
    return path, Paths(parent, name, levels, names.take(np.zeros(0, np.int32)))


def by_pattern(paths: Paths, pattern: Texts) -> tuple[RowNumbers, Paths]:
    """The pattern of each path, and all distinct patterns, level by level.

    `pattern` has the patterns of the names.
    """
    own = pattern.take(paths.name)
    found = _by_search(paths.parent, own.codes)
    # Of the distinct patterns there are few to sort.
    appeared, around, codes, depth = found or (None, paths.parent, own.codes, paths.depth)
    place, parent, name, levels = _by_level(around, depth, codes)
    of_paths = place if appeared is None else picked(place, appeared)
    return of_paths, Paths(parent, name, levels, own.take(np.zeros(0, np.int32)))


_Numbered = tuple[RowNumbers, RowNumbers, RowNumbers, RowNumbers]
"""The path of each range, and the parent, name and depth of each path."""
_FEW_PER_LEVEL = 16
"""Ranges per level, on average, below which Python sorts a level in less time than numpy."""
_MOST_STEPS = 16
"""Siblings to search per range, on average, until sorting all levels takes less time."""


class _CPaths(Structure):
    _fields_ = (
        *((name, c_void_p) for name in ("parent", "name", "depth")),
        *((name, c_void_p) for name in ("last_found", "next", "with_name")),
        ("count", c_int64),
        ("steps", c_int64),
    )


def _by_search(around: RowNumbers, name: RowNumbers) -> _Numbered | None:
    """The paths as they first appear; None where searching their siblings would take long."""
    rows, least = len(name), int(name.min(initial=0))
    # Names from 0: code −1 stands for none.
    number, path = name - least if least else name, np.full(rows, -1, np.int32)
    columns = [np.empty(rows, np.int32) for _ in range(3)]
    lists = [np.empty(rows + 1, np.int32) for _ in range(2)]
    with_name = np.full(int(number.max(initial=0)) + 1, -1, np.int32)
    of = _CPaths(*map(address, (*columns, *lists, with_name)), 0, _MOST_STEPS * (rows + 64))
    library.call("traceview_number_paths", around, number, rows, path, of)
    if of.steps <= 0:
        return None
    for column in columns:
        # Gives back the rest without a copy.
        column.resize(of.count, refcheck=False)
    parent, code, depth = columns
    code += least
    return path, parent, code, depth


def _by_level(around: RowNumbers, depth: RowNumbers, codes: Array) -> _Numbered:
    if len(depth) < _FEW_PER_LEVEL * int(depth.max(initial=0)):
        return _by_small_levels(around, depth, codes)
    path = np.full(len(codes), -1, np.int32)
    parents, names, levels = ([np.zeros(0, np.int32)] for _ in range(3))
    known = 0
    for level, rows in groups.rows_of(depth).items():
        parent = picked(path, picked(around, rows)) if level else np.full(len(rows), -1, np.int32)
        name = picked(codes, rows)
        each = groups.group(parent, name)
        path[rows] = each.ids + known
        parents.append(parent[each.first])
        names.append(name[each.first])
        levels.append(np.full(each.size, level, np.int32))
        known += each.size
    parent, name, level_of = (np.concatenate(each) for each in (parents, names, levels))
    return path, parent, name, level_of


def _by_small_levels(around: RowNumbers, depth: RowNumbers, codes: Array) -> _Numbered:
    """As `_by_level`, without a sort by numpy for each of very many levels."""
    path, above, names = [-1] * len(codes), around.tolist(), codes.tolist()
    made: list[tuple[int, int, int]] = []
    for level, rows in groups.rows_of(depth).items():
        every = rows.tolist()
        keys = [(path[above[row]] if level else -1, names[row]) for row in every]
        number = {key: len(made) + place for place, key in enumerate(sorted(set(keys)))}
        made.extend((*key, level) for key in number)
        for row, key in zip(every, keys, strict=True):
            path[row] = number[key]
    parent, name, level_of = np.array(made, np.int32).reshape(-1, 3).T.copy()
    return row_numbers(np.array(path)), parent, name, level_of


def _by_appearance(
    path: RowNumbers, parent: RowNumbers, name: RowNumbers, depth: RowNumbers
) -> _Numbered:
    """The same paths, numbered as the ranges with them, or in them, first appear."""
    first = np.full(len(parent), len(path), np.int64)
    np.minimum.at(first, path, np.arange(len(path)))
    # A range may come before the one around it.
    for level in range(int(depth.max(initial=0)), 0, -1):
        below = np.flatnonzero(depth == level)
        np.minimum.at(first, parent[below], first[below])
    order = np.lexsort((depth, first))
    number = np.empty(len(order), np.int32)
    number[order] = np.arange(len(order), dtype=np.int32)
    above = np.append(number, np.int32(-1))
    return picked(number, path), above[parent[order]], name[order], depth[order]
