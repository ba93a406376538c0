"""Python stack samples of nsys.

nsys stores each sample as an NVTX mark of a domain of its own, whose JSON text has the stack:
`{"Python Periodic Sampling":{…,"Thread state":"Running","Frames":[{"Function":387,"File":325,
"Line":463},…]}}`, innermost frame first, with names as ids of StringIds. Only
`nsys export --include-json=true` (2024 and newer) writes that text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from traceview import groups
from traceview.tables import Integers, Mask, Texts
from traceview.tables.numbers import numbered
from traceview.trace.nsys.names import first_of
from traceview.trace.nsys.rows import ExportTable
from traceview.trace.nsys.tables import Reader
from traceview.trace.staged import INT32, Staged, absent_texts

PERIODIC = "Python Periodic Sampling"
DOMAINS = frozenset({PERIODIC, "Python Backtrace on CUDA"})
"""NVTX domains that nsys writes Python stacks to."""
MARKS = ExportTable(
    "NVTX_EVENTS", ("start",), ("globalTid", "domainId", "jsonTextId"), ("jsonText",)
)
# The form that nsys writes; any other is left to the json module, which takes 20 times as long.
_FRAME = r'\{"Function":\d{1,15},"File":\d{1,15},"Line":\d{1,9}\}'
_SAMPLE = re.compile(
    r'\{"[\w ]+":\{"Thread state ID":-?\d+,"Thread state":"([^"\\]*)","Frames count":\d+,'
    rf'"Frames":\[((?:{_FRAME}(?:,{_FRAME})*)?)\]\}}\}}'
)
_NOT_DIGITS = {code: " " for code in range(128) if not chr(code).isdigit()}
MOST_FRAMES = 4_096
"""Frames per stack that are read, innermost first."""
NOT_EXPORTED = (
    "the recording has Python stack samples, but the export does not contain them; export it again "
    "with: nsys export --type sqlite --include-json=true FILE.nsys-rep"
)


def python_samples(reader: Reader, sampled: Mask) -> tuple[Staged, Staged] | None:
    """The staged python_samples and python_frames; None if no stacks were exported.

    `sampled` is True for the rows of NVTX_EVENTS that are marks of the periodic sampler.
    """
    if not sampled.any():
        return None
    marks = reader.export.rows(MARKS)
    if marks is None:
        return None
    marks = marks.where(sampled)
    texts = first_of(marks.texts("jsonText"), reader.names.texts(marks.numbers("jsonTextId")))
    if not (texts.codes >= 0).any():
        reader.export.warnings.append(NOT_EXPORTED)
        return None
    stacks = _Stacks()
    used = groups.different(texts.codes[texts.codes >= 0])
    stack_of, state_of = (np.full(len(texts.values) + 1, -1, np.int32) for _ in range(2))
    parsed = [stacks.parsed(str(texts.values[code])) for code in used.tolist()]
    stack_of[used], state_of[used] = np.array(parsed, np.int32).T
    kept = stack_of[texts.codes] >= 0
    if not kept.all():
        number = int((~kept).sum())
        reader.export.warnings.append(f"{number} Python stack samples could not be read")
    states = Texts(state_of[texts.codes[kept]], np.array([*stacks.states, None], object)[:-1])
    stack = stack_of[texts.codes[kept]]
    marks = marks.where(kept)
    time = marks.nullable("start")
    thread, process = reader.owners.threads(marks)
    order = np.argsort(time, kind="stable")
    samples: Staged = {
        "time_ns": time[order],
        "process": process[order],
        "thread": thread[order],
        "stack": stack[order],
        "state": states.take(order),
    }
    return samples, stacks.frames(reader)


@dataclass
class _Stacks:
    """Distinct stacks, in order of appearance, and the names of thread states."""

    states: dict[str, int] = field(default_factory=dict)
    _numbers: dict[str | tuple[tuple[int, int, int], ...], int] = field(default_factory=dict)
    # Names that the JSON text contains in place of ids; they get ids below zero.
    _names: list[str] = field(default_factory=list)

    def parsed(self, text: str) -> tuple[int, int]:
        """Numbers of the stack and of the thread state of a sample; −1 for a damaged one."""
        match = _SAMPLE.fullmatch(text)
        if match:
            state, stack = match[1], self._number(match[2])
        else:
            state, stack = self._parsed_slowly(text)
        return stack, self.states.setdefault(state, len(self.states)) if state else -1

    def _number(self, frames: str | tuple[tuple[int, int, int], ...]) -> int:
        return self._numbers.setdefault(frames, len(self._numbers))

    def _parsed_slowly(self, text: str) -> tuple[str, int]:
        try:
            sample = json.loads(text)
            if PERIODIC in sample:
                sample = sample[PERIODIC]
            frames = tuple(
                (self._id(frame["Function"]), self._id(frame["File"]), int(frame["Line"]))
                for frame in sample["Frames"]
            )
            return str(sample.get("Thread state", "")), self._number(frames)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return "", -1

    def _id(self, name: object) -> int:
        if isinstance(name, str):
            self._names.append(name)
            return -len(self._names)
        return int(name) if isinstance(name, int) and name >= 0 else 0

    def frames(self, reader: Reader) -> Staged:
        """The staged python_frames."""
        parts = [_frame_numbers(frames) for frames in self._numbers]
        counts = np.array([len(part) for part in parts], np.int64)
        every = np.concatenate([np.zeros((0, 3), np.int64), *parts])
        first = np.cumsum(counts) - counts
        line = every[:, 2]
        return {
            "stack": np.repeat(np.arange(len(parts), dtype=np.int32), counts),
            "depth": (np.arange(len(every)) - np.repeat(first, counts)).astype(np.int32),
            "file": self._texts(reader, every[:, 1]),
            "line": np.where((line > 0) & (line < INT32.max), line, INT32.min).astype(np.int32),
            "function": self._texts(reader, every[:, 0]),
            "source": absent_texts(len(every)),
        }

    def _texts(self, reader: Reader, ids: Integers) -> Texts:
        """The names of `ids`, unescaped: nsys escapes them for HTML, as in `&lt;module&gt;`."""
        from html import unescape

        distinct, codes = numbered(ids)
        stored = reader.names.of(distinct[distinct >= 0])
        own = [self._names[-1 - name_id] for name_id in distinct[distinct < 0].tolist()]
        names = [unescape(name) for name in (*own, *stored)]
        return Texts(codes, np.array([*names, None], object)[:-1]).map(names)


def _frame_numbers(frames: str | Sequence[tuple[int, int, int]]) -> Integers:
    """Ids of function and file, and the line, one row per frame, innermost first."""
    if isinstance(frames, str):
        flat = np.array(frames.translate(_NOT_DIGITS).split(), np.int64)
        return flat.reshape(-1, 3)[:MOST_FRAMES]
    return np.array(frames, np.int64).reshape(-1, 3)[:MOST_FRAMES]
