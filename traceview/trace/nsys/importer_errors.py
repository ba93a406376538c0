"""Errors of nsys while it imported its recorded events, as found among its diagnostics."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from traceview.tables import Table

_FAILED = re.compile(r"error when processing events|not all CUDA events might have been", re.I)
INCOMPLETE = re.compile(r"not all (?P<kind>.+) events might have been collected", re.I)
"""Message about a process that ended, or outlived the recording, before it sent all events."""
_PRODUCED = re.compile(r"Number of CUPTI events produced:\s*(\d+)")
_OF_CUPTI = ("kernels", "copies", "sets", "api_calls", "synchronizations", "memory_events")
_LEAST_IMPORTED = 0.8
_REASON = re.compile(r"tag_message\*\] = (.+)")


def import_error(messages: Iterable[str]) -> str | None:
    """The first import error among diagnostic messages, in one line; None without any."""
    failed = [text for text in messages if _FAILED.search(text)]
    if not failed:
        return None
    reasons = [match[1] for text in failed if (match := _REASON.search(text))]
    return (reasons or [text.strip().splitlines()[0] for text in failed])[0].strip()[:200]


def imported_events(tables: Mapping[str, Table]) -> tuple[int, int]:
    """Rows in the tables of CUPTI events, and the number of CUPTI events that nsys counted.

    The count is 0 where nsys reports none. It includes CUDA events and contexts, which are not in
    these tables: in recordings imported without an error, the rows are 83 to 100 % of the count.
    """
    messages = tables["diagnostics"].texts("text").decode()
    produced = (match for text in messages if (match := _PRODUCED.search(str(text))))
    rows = sum(len(tables[name]) for name in _OF_CUPTI if name in tables)
    return rows, sum(int(match[1]) for match in produced)


def lacks_events(tables: Mapping[str, Table]) -> bool:
    """Whether an import that reported an error lost CUPTI events, or there is no count to tell.

    nsys also reports errors of single events, such as names that a child process of JAX registered.
    """
    rows, produced = imported_events(tables)
    return rows < _LEAST_IMPORTED * produced or not produced
