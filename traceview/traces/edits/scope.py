"""What edits are looked up in: the graph, its measured steps, its ranges, and the lines of
the program.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from difflib import SequenceMatcher
from functools import cached_property
from pathlib import PurePath

import numpy as np

from traceview.base import groups, intervals
from traceview.base.errors import InputError
from traceview.base.records import record
from traceview.base.tables import Array, Mask, RowNumbers, picked
from traceview.traces.edits.requests import EditRequest
from traceview.traces.facts.dependencies.replay import Edit
from traceview.traces.facts.forecast import Model, model
from traceview.traces.facts.ranges import selection
from traceview.traces.facts.ranges.ranges import attributed_calls, patterns_of, range_tree
from traceview.traces.facts.samples import LEAST_FRACTION, LEAST_SAMPLES, sample_waits, stack_lines
from traceview.traces.facts.steps.steps import step_of_calls, step_of_operations, steps
from traceview.traces.facts.waits import wait_sites
from traceview.traces.trace import Selection, Trace


@record
class AppliedEdit:
    """What an edit touches, and how it changes the graph.

    `items` of `noun` take `time_ns`, both per measured step, or in all without steps. `values` are
    further figures, whose names end in their unit; `names` are further words, such as a product.
    """

    request: EditRequest
    noun: str
    items: float
    time_ns: float
    change: Edit
    values: Mapping[str, float] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)


@record
class EditScope:
    """A recording with its model. Edits touch only what was launched in the selected ranges."""

    trace: Trace
    selected: Trace

    @classmethod
    def of(cls, trace: Trace, ranges: Sequence[str], exclude: Sequence[str]) -> EditScope:
        """Raises InputError for a glob that matches no range."""
        if not (ranges or exclude):
            return cls(trace, trace)
        selected = trace.but(selection=Selection(tuple(ranges), tuple(exclude)))
        selection.check(selected)
        return cls(trace, selected)

    @property
    def model(self) -> Model:
        return model(self.trace)

    @cached_property
    def steps(self) -> int:
        """The measured steps, 0 where the run counts as a whole."""
        return int(np.count_nonzero(self.model.follows))

    @cached_property
    def operations(self) -> Mask:
        """True for the selected operations that are in the graph."""
        return selection.selected_operations(self.selected) & (self.model.item_of_operation >= 0)

    @cached_property
    def calls(self) -> Mask:
        """True for the selected rows of api_calls that are in the graph."""
        return selection.selected_calls(self.selected) & (self.model.graph.item_of_call >= 0)

    @cached_property
    def _numbers(self) -> tuple[Array, Array]:
        """The model's number of the step of each operation and of each API call, −1 for none."""
        of_operation, graph = step_of_operations(self.trace), self.model.graph
        ends = graph.operation[self.model.last - graph.calls]
        number = np.full(len(steps(self.trace)) + 1, -1, np.int64)
        number[of_operation[ends]] = self.model.step
        calls = np.arange(len(graph.item_of_call))
        return number[of_operation], number[step_of_calls(self.trace, calls)]

    def measured_operations(self, rows: Array) -> Array:
        """Those of some operations that count: in measured steps, without steps after warm-up."""
        if not self.steps:
            ends = self.model.graph.operation[self.model.last - self.model.graph.calls]
            return rows[np.isin(rows, ends)]
        return self._in_measured(rows, self._numbers[0])

    def measured_calls(self, rows: Array) -> Array:
        """Those of some API calls that count: in measured steps, without steps all."""
        if not self.steps:
            return rows
        return self._in_measured(rows, self._numbers[1])

    def _in_measured(self, rows: Array, step: Array) -> Array:
        return rows[np.append(self.model.follows, False)[step[rows]]]

    def per_step(self, amount: float) -> float:
        """A sum over measured steps as a mean per step, or the sum itself without steps."""
        return float(amount) / max(self.steps, 1)


# Names that a text matches, and those that come near where it matches none.

_MOST_LISTED = 5
_NAME = 80
"""Characters of a name in an error."""
_NEAR = 0.6
"""Part of a word that a name has in order, from which it counts as near: `lyernorm` and
`layer_norm_fwd` share 7 of 8 characters, `nope` and `copy` 2 of 4."""


def globbed(text: str) -> re.Pattern[str]:
    """A glob with `*` and `?`, for whole names of either case; brackets stand for themselves."""
    parts = re.split(r"([*?])", re.sub(r"\*+", "*", text))
    wild = {"*": ".*", "?": "."}
    pattern = "".join(wild.get(part) or re.escape(part) for part in parts)
    return re.compile(pattern, re.IGNORECASE | re.DOTALL)


def no_match(
    what: str, text: str, names: Iterable[str] | Counter[str], hint: str = ""
) -> InputError:
    """The error for a text that matches none of some names, which come with their weight or order.

    It lists those that hold the longest word of the text, then similar ones, then the first.
    """
    ordered = [n for n, _ in names.most_common()] if isinstance(names, Counter) else [*names]
    ordered = [name for name in dict.fromkeys(ordered) if name.strip()]
    if not ordered:
        return InputError(f"no {what} matches {text[:_NAME]!r}", f"the recording names no {what}")
    word = max(re.split(r"[*?|\s]+", text.lower()), key=len)
    held = [name for name in ordered if word and word in name.lower()]
    rank = {name: _similarity(word, name.lower()) for name in ordered[:500]}
    near = sorted((n for n in rank if rank[n] >= _NEAR), key=lambda name: -rank[name])
    listed = [*dict.fromkeys([*held, *near])] or ordered
    shown = ", ".join(repr(_short(name)) for name in listed[:_MOST_LISTED])
    more = len(listed) - _MOST_LISTED
    rest = f" and {more} more" if more > 0 else ""
    lead = "closest" if listed is not ordered else "there are"
    return InputError(
        f"no {what} matches {text[:_NAME]!r}", f"{lead}: {shown}{rest}{f'; {hint}' if hint else ''}"
    )


def _similarity(word: str, name: str) -> float:
    """How much of a word a name has in order, of the longest part that they share."""
    if not word:
        return 0.0
    matcher = SequenceMatcher(None, word, name[:200], autojunk=False)
    return sum(block.size for block in matcher.get_matching_blocks() if block.size > 1) / len(word)


def _short(name: str) -> str:
    return name if len(name) <= _NAME else f"{name[: _NAME // 2]}…{name[-_NAME // 2 + 1 :]}"


_NUMBER = re.compile(r"[\W_]*#$")
STEP = "step"
"""Names the steps, whatever their ranges are called, also where they were inferred."""


def named_ranges(trace: Trace, text: str) -> Mask:
    """True for the ranges of the tree that a text names.

    A text is a name, a path or a glob, as `--range` takes it; or a name or path with numbers as #,
    with or without a number at its end: `step_#` and `step` name `step_0`, `step_1`, …
    """
    tree = range_tree(trace)
    if not len(tree.row):
        return np.zeros(0, bool)
    # Patterns are few: the texts of all paths would be made for a glob alone.
    for without_number in (False, True):
        found = _by_pattern(trace, text, without_number)
        if found.any():
            return found
    found = selection.matching_ranges(trace, text)
    if not found.any() and text.lower() in (STEP, f"{STEP}s", f"{STEP}_#"):
        found[steps(trace).range] = True
    return found


def _by_pattern(trace: Trace, text: str, without_number: bool) -> Mask:
    """True for the ranges whose name or path has numbers as # and then is a text."""
    tree, names = range_tree(trace), trace.recorded("ranges").texts("name")

    def hit(patterns: Iterable[str]) -> Mask:
        fits = (text == (_NUMBER.sub("", each) if without_number else each) for each in patterns)
        return np.array([*fits, False], bool)

    found: Mask = hit(patterns_of(list(map(str, names.values))))[picked(names.codes, tree.of_table)]
    found |= hit(tree.patterns)[tree.path_pattern[tree.path]]
    return found


def no_range(trace: Trace, text: str, what: str = "range", hint: str = "") -> InputError:
    """The error where a text names no range."""
    patterns = [path for path in range_tree(trace).patterns if not path.startswith("traceview:")]
    return no_match(what, text, patterns, hint)


def instances(trace: Trace, hit: Mask) -> RowNumbers:
    """For each range of the tree the outermost one of a mask around it, or −1."""
    tree = range_tree(trace)
    number = np.where(hit, np.arange(len(hit)), -1).astype(np.int32)
    around = tree.own_or_inherited(number)
    above = np.where(tree.parent >= 0, around[tree.parent], -1)
    outermost = np.where(hit & (above < 0), number, -1).astype(np.int32)
    return tree.own_or_inherited(outermost)


def windows(trace: Trace, hit: Mask, thread: int) -> intervals.Intervals:
    """When one of some ranges is open for a thread.

    On a thread without any ranges, such as autograd's, those of its process count.
    """
    tree = range_tree(trace)
    own = tree.nesting.track == thread
    if own.any():
        rows = np.flatnonzero(hit & own)
        return intervals.union(tree.nesting.start[rows], tree.nesting.end[rows])
    process = int(trace.threads["process"][thread])
    empty: Array = np.zeros(0, np.int64)
    return selection.windows_of(tree, hit).get(process, intervals.Intervals(empty, empty))


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
        return np.array([*hit, False], bool)[self.of]

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
    from traceview.traces.facts.launches import waits

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
