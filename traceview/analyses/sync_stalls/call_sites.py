"""The line of the program behind each wait, and what it called there."""

from __future__ import annotations

import numpy as np

from traceview import groups
from traceview.analyses.sync_stalls.call_chains import chain_hints
from traceview.facts.operations.blocking_calls import waits
from traceview.records import record
from traceview.tables import NULL, Array, Integers, Mask, Table, Texts, constant
from traceview.trace import Trace, fact


@record
class CallSites:
    """The call site of each wait, one row per wait; each column absent where it is not known.

    `site` is `train.py:31 in step`, `file` and `line` (0 if absent) its parts, `source` the text of
    that line, `hint` the call of the program, such as `Tensor.item`.
    """

    site: Texts
    file: Texts
    line: Integers
    source: Texts
    hint: Texts

    def take(self, rows: Integers) -> CallSites:
        """The call sites of these waits."""
        return CallSites(
            self.site.take(rows),
            self.file.take(rows),
            self.line[rows],
            self.source.take(rows),
            self.hint.take(rows),
        )


@fact
def wait_sites(trace: Trace) -> CallSites:
    """Call sites from the program's marks where there are some; hints else from call chains."""
    marks = trace.recorded("call_sites")
    every = waits(trace)
    row = open_marks(marks, every.thread, every.start_ns)
    line = marks["line"][np.maximum(row, 0)] if len(marks) else np.zeros(len(row), np.int64)
    return CallSites(
        site=_site_texts(marks, row),
        file=_marked(marks.texts("file"), row),
        line=np.where((row >= 0) & (line != NULL), line, 0).astype(np.int64),
        source=_marked(marks.texts("source"), row),
        hint=_hints(_marked(marks.texts("hint"), row), _hints_of_chains(trace, every.call)),
    )


def open_marks(marks: Table, thread: Array, time: Integers) -> Integers:
    """Row of the mark that is open on a thread at a time, or −1. Marks of a thread never nest."""
    result = np.full(len(time), -1, np.int64)
    start, end = marks["start_ns"], marks["end_ns"]
    for number in groups.different(marks["thread"]):
        own = np.flatnonzero(marks["thread"] == number)
        of_thread = np.flatnonzero(thread == number)
        last = np.searchsorted(start[own], time[of_thread], side="right") - 1
        row = own[np.maximum(last, 0)]
        open_: Mask = (last >= 0) & ((end[row] == NULL) | (time[of_thread] < end[row]))
        result[of_thread] = np.where(open_, row, -1)
    return result


def _marked(texts: Texts, row: Integers) -> Texts:
    """The text of each row, absent where the row is −1."""
    codes = np.append(texts.codes, np.int32(-1))
    return Texts(codes[row], texts.values)


def _site_texts(marks: Table, row: Integers) -> Texts:
    """`train.py:31 in step` of each row."""
    file, line, function = marks.texts("file"), marks["line"], marks.texts("function")
    sites: list[str | None] = [None] * (len(marks) + 1)
    for number in groups.different(row[row >= 0]).tolist():
        if file[number] is not None:
            sites[number] = f"{file[number]}:{line[number]} in {function[number]}"
    return _marked(Texts.of(sites), row)


def _hints(marked: Texts, chained: Texts) -> Texts:
    """The hint of the mark, else that of the call chain; an empty one counts as absent."""
    every = Texts.of([*(text or None for text in marked.values), *chained.values])
    places = np.append(every.codes, np.int32(-1))
    of_mark = places[marked.codes]
    shifted = np.where(chained.codes < 0, -1, chained.codes + len(marked.values))
    return Texts(np.where(of_mark >= 0, of_mark, places[shifted]), every.values)


def _hints_of_chains(trace: Trace, call: Integers) -> Texts:
    ids, hints = chain_hints(trace)
    chain = trace.recorded("api_calls")["callchain_id"][call]
    if not len(ids):
        return Texts(constant(-1, len(chain), np.int32), hints.values)
    place = np.minimum(np.searchsorted(ids, chain), len(ids) - 1)
    return _marked(hints, np.where(ids[place] == chain, place, -1))
