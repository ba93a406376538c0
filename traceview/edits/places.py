"""Places of a program that edits name: a line, `train.py:90`, in marks, samples and call chains."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import PurePath

import numpy as np

from traceview import groups
from traceview.facts.ranges.ranges import attributed_calls, range_tree
from traceview.facts.samples import LEAST_FRACTION, LEAST_SAMPLES, sample_waits, stack_lines
from traceview.facts.waits.call_sites import wait_sites
from traceview.records import record
from traceview.tables import Array, Mask
from traceview.trace import Trace

_LINE = re.compile(r"(?P<file>.+):(?P<line>\d{1,9})", re.DOTALL)


@record
class LinePlace:
    """A line of a source file; the file by its name, or by its last folders and name."""

    file: str
    line: int

    def is_in(self, file: str | None) -> bool:
        """Whether that is the file."""
        if not file:
            return False
        wanted, parts = PurePath(self.file).parts, PurePath(file).parts
        return parts[-len(wanted) :] == wanted


def line_place(text: str) -> LinePlace | None:
    """The line that a text names, such as `train.py:90`; None for any other text."""
    match = _LINE.fullmatch(text.strip())
    return LinePlace(match["file"], int(match["line"])) if match else None


def place_text(file: str, line: int) -> str:
    """Such as `train.py:90`."""
    return f"{file.rpartition('/')[2]}:{line}"


@record
class WaitLines:
    """The line of each wait, as rows of `lines`: its file and number; −1 where it is not known."""

    of: Array
    lines: tuple[tuple[str, int], ...]

    def at(self, place: LinePlace) -> Mask:
        """True for the waits at a line."""
        hit = [place.line == line and place.is_in(file) for file, line in self.lines]
        result: Mask = np.array([*hit, False], bool)[self.of]
        return result

    def counts(self) -> Counter[str]:
        """The waits by line."""
        used = [place_text(*self.lines[row]) for row in self.of[self.of >= 0].tolist()]
        return Counter(used)


def wait_lines(trace: Trace) -> WaitLines:
    """The line of each wait: by the program's marks, else by the Python samples during it.

    Samples hit few waits. Where most of those that hit waits of one call in one range are at one
    line, the others of that call and range are there, too.
    """
    sites = wait_sites(trace)
    lines: dict[tuple[str, int], int] = {}
    of = np.full(len(sites.line), -1, np.int64)
    marked = np.flatnonzero((sites.file.codes >= 0) & (sites.line > 0))
    for places in groups.rows_of(groups.group(sites.file.codes, sites.line).ids[marked]).values():
        row = int(marked[places[0]])
        key = (sites.file.value(int(sites.file.codes[row])), int(sites.line[row]))
        of[marked[places]] = lines.setdefault(key, len(lines))
    _add_sampled(trace, of, lines)
    return WaitLines(of, tuple(lines))


def _add_sampled(trace: Trace, of: Array, lines: dict[tuple[str, int], int]) -> None:
    from traceview.facts.operations.blocking_calls import waits

    wait = sample_waits(trace)
    samples, frames = trace.recorded("python_samples"), trace.recorded("python_frames")
    hit = np.flatnonzero((wait >= 0) & (of[wait] < 0)) if len(of) else groups.NO_ROWS
    frame = stack_lines(trace).frame[samples["stack"][hit]]
    hit, frame = hit[frame >= 0], frame[frame >= 0]
    if not len(hit):
        return
    files = frames.texts("file")
    each = groups.group(files.codes[frame], frames["line"][frame])
    number = np.array(
        [
            lines.setdefault((str(files[row]), int(frames["line"][row])), len(lines))
            for row in frame[each.first].tolist()
        ]
    )
    at = number[each.ids]
    every, tree = waits(trace), range_tree(trace)
    pattern = tree.pattern_of_paths(tree.path_of_ranges(attributed_calls(trace).range[every.call]))
    name = trace.recorded("api_calls").texts("name").codes[every.call]
    alike = groups.group(name, pattern, every.thread).ids
    for kind, places in groups.rows_of(alike[wait[hit]]).items():
        counted = np.bincount(at[places])
        most = int(np.argmax(counted))
        if counted[most] >= max(LEAST_SAMPLES, LEAST_FRACTION * len(places)):
            of[(alike == kind) & (of < 0)] = most
    of[wait[hit]] = at
