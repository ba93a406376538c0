"""Places of work and of idle time: range patterns, relative to the step, and source lines."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np

from traceview import groups
from traceview.comparison.extraction.window import step_pattern, window_work
from traceview.facts.idle.gaps import every_gap
from traceview.facts.idle.lines import idle_samples
from traceview.facts.idle.stack_sites import stack_sites
from traceview.facts.operations.blocking_calls import waits
from traceview.facts.ranges.origins import program_ranges
from traceview.facts.ranges.ranges import attributed_calls, attributed_operations, range_tree
from traceview.facts.waits.call_sites import wait_sites
from traceview.tables import Array, Integers, Mask, RowNumbers, Texts, object_array
from traceview.trace import Trace, fact
from traceview.vocabulary.activities import CPU

LONG_NS = 1_000_000
"""Samples of a stack come about once per millisecond: they hit a shorter gap by chance."""


@fact
def work_places(trace: Trace) -> Integers:
    """The pattern of the range of each operation of `window_work`, −1 for none."""
    ranges = attributed_operations(trace).range[window_work(trace).rows]
    return _patterns(trace, ranges)


def _patterns(trace: Trace, ranges: Array) -> Integers:
    """The path pattern of the innermost range of the program around these ranges, −1 for none.

    Ranges of operators and libraries, thousands per step, would split each part into many.
    """
    tree = range_tree(trace)
    innermost = np.append(_ranges_of_program(trace), np.int32(-1))[ranges]
    return tree.pattern_of_paths(tree.path_of_ranges(innermost)).astype(np.int64)


@fact
def _ranges_of_program(trace: Trace) -> RowNumbers:
    """For each row of the range tree the innermost range of the program around it, −1 for none."""
    tree = range_tree(trace)
    own = program_ranges(trace)[tree.row]
    return tree.own_or_inherited(np.where(own, np.arange(len(own)), -1).astype(np.int32))


def place_texts(trace: Trace, place: Array) -> list[str]:
    """The texts of range patterns, empty for −1; the path below the step where it is in one."""
    patterns, step = range_tree(trace).patterns, step_pattern(trace)
    texts = {-1: ""}
    for number in set(place.tolist()) - {-1}:
        path = patterns[number]
        if step:
            path = "" if path == step else path.removeprefix(f"{step}/")
        texts[number] = path
    return [texts[number] for number in place.tolist()]


def gap_places(trace: Trace, rows: Integers) -> tuple[Texts, Texts]:
    """The place of the program in each of these gaps, and a hash of its code, absent for ranges.

    The line of the synchronization behind a gap, or the line that the launching thread was at in
    most of a long gap; else the range of the synchronization or of the work that ended the gap. The
    hash is equal for the same code at another line of the file.
    """
    every = np.ones(len(idle_samples(trace).gap), bool)
    # A thread that sleeps or waits for data after a synchronization loses the time there.
    off_cpu = idle_samples(trace).doing != CPU
    sources = [
        _ranges(trace, rows),
        _sampled_lines(trace, rows, every),
        _wait_lines(trace, rows),
        _sampled_lines(trace, rows, off_cpu),
    ]
    places, codes = zip(*sources, strict=True)
    return _last_known(places, len(rows)), _last_known(codes, len(rows))


def _last_known(columns: Sequence[Texts], count: int) -> Texts:
    """For each row, the text of the last of the columns that has one."""
    values = list(dict.fromkeys(str(text) for column in columns for text in column.values))
    number = {text: code for code, text in enumerate(values)}
    result = np.full(count, -1, np.int32)
    for column in columns:
        common = np.array([*(number[str(text)] for text in column.values), -1], np.int32)
        result = np.where(column.codes >= 0, common[column.codes], result)
    return Texts(result, object_array(values))


def _ranges(trace: Trace, rows: Integers) -> tuple[Texts, Texts]:
    every = every_gap(trace)
    ranges = attributed_operations(trace).range[every.after[rows]]
    waited = np.flatnonzero(every.wait[rows] >= 0)
    call = waits(trace).call[every.wait[rows[waited]]]
    ranges[waited] = attributed_calls(trace).range[call]
    pattern = _patterns(trace, ranges)
    by = groups.group(pattern)
    texts = place_texts(trace, pattern[by.first])
    place = Texts(by.ids.astype(np.int32), object_array(texts))
    return place, Texts(np.full(len(rows), -1, np.int32), object_array([]))


def _wait_lines(trace: Trace, rows: Integers) -> tuple[Texts, Texts]:
    """Line and code hash of the synchronization that caused each gap, absent where unknown."""
    wait, sites = every_gap(trace).wait[rows], wait_sites(trace)
    waited = np.flatnonzero(wait >= 0)
    waited = waited[sites.file.codes[wait[waited]] >= 0]
    site = sites.take(wait[waited])
    return _lines(len(rows), waited, site.file, site.line, site.source)


def _sampled_lines(trace: Trace, rows: Integers, chosen: Mask) -> tuple[Texts, Texts]:
    """Line and code hash of the function with most idle time of one cause in each long gap, by the
    chosen samples.

    Absent for other gaps. A cause has several parts of a gap, such as one per call: they count as
    one. The line is that of the function with most time in all such gaps, whichever of its lines a
    sample happened to hit.
    """
    samples, sites, every = idle_samples(trace), stack_sites(trace), every_gap(trace)
    of_rows = groups.group(every.gap[rows], every.cause[rows])
    idle_ns = groups.sums(of_rows, every.idle_ns[rows])
    number = np.full(len(every), -1, np.int64)
    number[rows] = of_rows.ids
    known = np.append(idle_ns >= LONG_NS, False)[number]
    python = (sites.function_number >= 0) & ~sites.native
    samples = samples.take(chosen & known[samples.gap] & python[samples.site])
    function = sites.function_number[samples.site]
    pairs = groups.group(number[samples.gap], function)
    time, part = groups.sums(pairs, samples.time_ns), number[samples.gap[pairs.first]]
    most = np.flatnonzero(2 * time > idle_ns[part])
    # The site with most of a function's time, which is the last to be written.
    usual = np.full(int(function.max(initial=-1)) + 1, -1, np.int64)
    by = groups.group(function, samples.site)
    order = by.first[np.argsort(groups.sums(by, samples.time_ns), kind="stable")]
    usual[function[order]] = samples.site[order]
    site = usual[function[pairs.first[most]]]
    whole = sites.function.take(site)
    # Code outside of functions has one function number per line, so its source is hashed.
    source = where(sites.source.take(site), whole.isin(["<module>"]))
    text = _last_known([whole, source], len(site))
    # To all rows of these gaps and causes.
    place = np.full(of_rows.size, -1, np.int64)
    place[part[most]] = np.arange(len(most))
    own = np.flatnonzero(place[of_rows.ids] >= 0)
    at = place[of_rows.ids[own]]
    files, line = sites.file.take(site).take(at), sites.line[site][at]
    return _lines(len(rows), own, files, line, text.take(at))


def where(texts: Texts, kept: Mask) -> Texts:
    """The texts of the rows that are kept; absent elsewhere."""
    return Texts(np.where(kept, texts.codes, -1).astype(np.int32), texts.values)


def _lines(
    count: int, rows: Integers, file: Texts, line: Array, text: Texts
) -> tuple[Texts, Texts]:
    """`train.py:75` and a hash of the code there, for the `rows` of `count`; absent elsewhere."""
    by = groups.group(file.codes, line, text.codes)
    names, codes = [], []
    files, texts = (column.take(by.first).decode() for column in (file, text))
    for path, number, code in zip(files, line[by.first].tolist(), texts, strict=True):
        name = str(path).replace("\\", "/").rpartition("/")[2]
        names.append(f"{name}:{number}")
        codes.append(hash_of(f"{name}:{code or number}"))
    number_of = np.full(count, -1, np.int32)
    number_of[rows] = by.ids
    return Texts(number_of, object_array(names)), Texts(number_of, object_array(codes))


def hash_of(text: str) -> str:
    """A short hash, equal for equal texts of all recordings."""
    return blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()
