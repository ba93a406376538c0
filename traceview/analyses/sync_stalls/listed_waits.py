"""The waits that `sync-stalls` lists, each with its call site and range."""

from __future__ import annotations

import numpy as np

from traceview import groups
from traceview.facts.operations.blocking_calls import waits
from traceview.facts.ranges import ranges, selection
from traceview.facts.waits.call_sites import CallSites, wait_sites
from traceview.facts.waits.stalls import BLOCKING, stalls
from traceview.groups import Groups
from traceview.records import record
from traceview.tables import Array, Cell, Integers, Texts
from traceview.trace import Trace


@record
class ListedWaits:
    """Waits, one row per wait, and their groups: one per row of the table `sites`.

    `row` is the row in waits, `pattern` a row of the range tree's patterns (−1: none).
    `range_path` has one entry per group: the path of its range, or the pattern if there are
    several.
    """

    row: Integers
    api: Texts
    site: CallSites
    pattern: Array
    groups: Groups
    range_path: Texts

    def cells(self, number: int) -> dict[str, Cell]:
        """The cells that identify the row of `sites` to which a wait belongs."""
        return {
            "api": self.api[number],
            "range_path": self.range_path[int(self.groups.ids[number])],
            "call_site": self.site.site[number],
            "hint": self.site.hint[number],
        }


def listed_waits(trace: Trace) -> ListedWaits:
    """The selected waits: outermost blocking calls, and whatever else caused a gap."""
    every, cost, tree = waits(trace), stalls(trace), ranges.range_tree(trace)
    own = np.arange(len(every))
    listed = (cost.outer == own) & np.isin(every.does, BLOCKING)
    listed |= np.isin(own, cost.wait)
    row = np.flatnonzero(selection.selected_calls(trace)[every.call] & listed)
    api = trace.api_calls.texts("name").take(every.call[row])
    site = wait_sites(trace).take(row)
    place = ranges.attribute(trace, every.thread[row], every.process[row], every.start_ns[row])
    path = place.path(tree)
    pattern = tree.pattern_of_paths(path)
    each = groups.group(api.codes, site.site.codes, site.hint.codes, pattern)
    return ListedWaits(row, api, site, pattern, each, _range_paths(trace, each, path, pattern))


def _range_paths(trace: Trace, each: Groups, path: Array, pattern: Array) -> Texts:
    """The path of each group, or its pattern if its waits have several paths."""
    tree = ranges.range_tree(trace)
    one = groups.distinct(each, path) == 1 if each.size else np.zeros(0, bool)
    rows = zip(path[each.first].tolist(), pattern[each.first].tolist(), one, strict=True)
    return Texts.of(
        ranges.UNATTRIBUTED if p < 0 else (tree.paths[p] if same else tree.patterns[q])
        for p, q, same in rows
    )
