"""Sync-site marks among the NVTX ranges of an nsys export: source lines that may wait.

`traceview record` wraps each call that can wait for the GPU in an NVTX range. These marks are
separated from the ranges of the program itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from traceview import groups
from traceview.tables import NULL, Integers, Mask, Texts, rows_of
from traceview.trace.nsys.added_ranges import in_own_domain, is_added, starting
from traceview.trace.nsys.rows import Staged

DOMAIN = "traceview"
PREFIX = "traceview:sync:"
CLOCK = "traceview:clock:"
"""Prefix of the marks that hold the wall-clock time, for samples taken in the program."""
NOTED = "sync_sites"
"""Name in TRACEVIEW_RUN, which is present if the recorder requested marks."""

# For example: train.py:31 in step: loss.item() [Tensor.item]. Longer texts are not marks.
_LONGEST = 2_000
_MARK = re.compile(r"(.+):(\d{1,9}) in (\S.*?): (.*?) ?\[([^\[\]]*)\]")
_TIMES = ("start_ns", "end_ns", "thread", "process")


class Mark(NamedTuple):
    """The parts of a mark; a text of another form is all `source`."""

    file: str | None
    line: int | None
    function: str | None
    source: str
    hint: str | None


def parsed(text: str) -> Mark:
    """The parts of a mark's text."""
    match = _MARK.fullmatch(text) if len(text) <= _LONGEST else None
    if not match:
        return Mark(None, None, None, text, None)
    file, line, function, source, hint = match.groups()
    return Mark(file, int(line), function, source, hint or None)


def split_marks(
    ranges: Staged | None, run: Mapping[str, str]
) -> tuple[Staged | None, Staged | None]:
    """Split ranges into those of the program and marks (None if no marks were requested).

    Ranges that the recorder added to the program stay, in a domain of their own.
    """
    if ranges is None:
        return None, None
    marked = _is_mark(_texts(ranges, "name"), _texts(ranges, "domain"))
    if not marked.any():
        return in_own_domain(ranges), _sites(ranges, marked) if NOTED in run else None
    names = _texts(ranges, "name")
    clock = names.isin([str(text) for text in names.values if str(text).startswith(CLOCK)])
    sites = marked & ~clock
    known = sites.any() or NOTED in run
    return in_own_domain(_taken(ranges, ~marked)), _sites(ranges, sites) if known else None


def _is_mark(name: Texts, domain: Texts) -> Mask:
    prefixed = starting(name, PREFIX, CLOCK)[name.codes]
    marks: Mask = (domain.isin([DOMAIN]) & ~is_added(name, domain)) | (
        (domain.codes < 0) & prefixed
    )
    return marks


def _sites(ranges: Staged, marked: Mask) -> Staged:
    taken = _taken({name: ranges[name] for name in (*_TIMES, "name")}, marked)
    names = _texts(taken, "name")
    used = groups.different(names.codes[names.codes >= 0])
    marks = {int(code): parsed(str(names.values[code]).removeprefix(PREFIX)) for code in used}
    return {
        **{name: taken[name] for name in _TIMES},
        "file": _part(names, marks, "file"),
        "line": _lines(names, marks),
        "function": _part(names, marks, "function"),
        "source": _part(names, marks, "source"),
        "hint": _part(names, marks, "hint"),
    }


def _part(names: Texts, marks: Mapping[int, Mark], name: str) -> Texts:
    return names.map(
        [getattr(marks[code], name) if code in marks else None for code in range(len(names.values))]
    )


def _lines(names: Texts, marks: Mapping[int, Mark]) -> Integers:
    lines = np.full(len(names.values) + 1, NULL, np.int64)
    for code, mark in marks.items():
        lines[code] = NULL if mark.line is None else mark.line
    return lines[names.codes]


def _taken(staged: Staged, rows: Mask) -> Staged:
    return {name: rows_of(values, rows) for name, values in staged.items()}


def _texts(staged: Staged, name: str) -> Texts:
    values = staged[name]
    assert isinstance(values, Texts)
    return values
