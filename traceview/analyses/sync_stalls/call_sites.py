"""The line of the program behind each wait, and what it called there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceview import groups
from traceview.analyses.sync_stalls.call_chains import chain_hints
from traceview.facts.operations.blocking_calls import waits
from traceview.tables import NULL, Array, Integers, Mask, Table, Texts
from traceview.trace import Trace, fact


@dataclass(frozen=True)
class Sites:
    """One row a wait. `place` is `train.py:31 in step`, `source` the text of that line, `hint` the
    call: each absent where the recording does not tell.
    """

    place: Texts
    source: Texts
    hint: Texts

    def take(self, rows: Integers) -> Sites:
        """The sites of these waits."""
        return Sites(self.place.take(rows), self.source.take(rows), self.hint.take(rows))


@fact
def wait_sites(trace: Trace) -> Sites:
    """From the marks of the program where there are some; the hint else from the call chain."""
    marks = trace.recorded("call_sites")
    found = waits(trace)
    row = _marked(marks, found.thread, found.start_ns)
    hint = [None] * len(row) if not len(marks) else _of(marks.texts("hint"), row)
    chains = _chain_hints(trace, found.call)
    return Sites(
        place=_places(marks, row),
        source=Texts.of(_of(marks.texts("source"), row)),
        hint=Texts.of(mark or chain for mark, chain in zip(hint, chains, strict=True)),
    )


def _marked(marks: Table, thread: Array, time: Integers) -> Integers:
    """Row of the mark that is open on a thread at a time, or −1. Marks of a thread never nest."""
    result = np.full(len(time), -1, np.int64)
    start, end = marks["start_ns"], marks["end_ns"]
    for number in groups.different(marks["thread"]):
        mine = np.flatnonzero(marks["thread"] == number)
        asked = np.flatnonzero(thread == number)
        last = np.searchsorted(start[mine], time[asked], side="right") - 1
        row = mine[np.maximum(last, 0)]
        open_: Mask = (last >= 0) & ((end[row] == NULL) | (time[asked] < end[row]))
        result[asked] = np.where(open_, row, -1)
    return result


def _of(texts: Texts, row: Integers) -> list[str | None]:
    return [texts[number] if number >= 0 else None for number in row.tolist()]


def _places(marks: Table, row: Integers) -> Texts:
    """`train.py:31 in step` of each row."""
    file, line, function = marks.texts("file"), marks["line"], marks.texts("function")
    known = {}
    for number in groups.different(row[row >= 0]).tolist():
        if file[number] is not None:
            known[number] = f"{file[number]}:{line[number]} in {function[number]}"
    return Texts.of(known.get(number) for number in row.tolist())


def _chain_hints(trace: Trace, call: Integers) -> list[str | None]:
    ids, hints = chain_hints(trace)
    chain = trace.recorded("api_calls")["callchain_id"][call]
    if not len(ids):
        return [None] * len(chain)
    place = np.minimum(np.searchsorted(ids, chain), len(ids) - 1)
    same = ids[place] == chain
    return [hints[int(p)] if ok else None for p, ok in zip(place, same, strict=True)]
