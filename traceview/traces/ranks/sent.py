"""Lossless packing of columns and graphs, to send them from the process that reads a recording.

A column that hardly changes is sent as runs. Other columns are sent as numbers or as differences
of neighbours, whichever are smaller, in byte planes: the lowest bytes of all, then the next ones,
as many as the largest number has. Upper bytes are mostly equal, so a few large numbers cost little.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from traceview.base.records import record
from traceview.base.tables import Array, Integers
from traceview.traces.facts.dependencies.graph import Dependencies, Edges

_Unsigned = npt.NDArray[np.uint64]
_BYTES = 8
_OF_RUN = 4
"""Bytes assumed per run, whose value and length are packed in turn."""
_TEXT_LEVEL = 1


@record
class SentRuns:
    """A run-length encoded column: values, and the number of repeats of each."""

    values: SentNumbers
    lengths: SentNumbers

    def numbers(self) -> _Unsigned:
        """The column."""
        return np.repeat(self.values.numbers(), self.lengths.numbers().astype(np.int64))


@record
class SentPlanes:
    """`rows` numbers minus `base`, as planes of one byte per number, lowest bytes first.

    With `first`, the numbers are the differences of neighbours in a column that begins with it.
    """

    rows: int
    base: int
    planes: tuple[SentNumbers | bytes, ...]
    first: int | None = None

    def numbers(self) -> _Unsigned:
        """The column, modulo 2^64."""
        table = np.zeros((self.rows, _BYTES), np.uint8)
        for place, plane in enumerate(self.planes):
            if isinstance(plane, bytes):
                table[:, place] = np.frombuffer(plane, np.uint8)
            else:
                table[:, place] = plane.numbers()
        numbers = table.view("<u8")[:, 0].astype(np.uint64)
        numbers += np.uint64(self.base)
        if self.first is None:
            return numbers
        return np.cumsum(np.append(np.uint64(self.first), numbers), dtype=np.uint64)


SentNumbers = SentRuns | SentPlanes


@record
class SentColumn:
    """A column of integers or booleans."""

    dtype: str
    packed: SentNumbers

    @classmethod
    def of(cls, column: Array) -> SentColumn:
        return cls(column.dtype.str, _packed_numbers(column.astype(np.int64).view(np.uint64)))

    def unpacked(self) -> Array:
        return self.packed.numbers().view(np.int64).astype(self.dtype)


@record
class SentTable:
    """A two-dimensional array of integers, by column; columns of zeros are left out."""

    shape: tuple[int, int]
    columns: tuple[tuple[int, SentColumn], ...]

    @classmethod
    def of(cls, table: Integers) -> SentTable:
        used = [place for place in range(table.shape[1]) if table[:, place].any()]
        columns = tuple((place, SentColumn.of(table[:, place])) for place in used)
        return cls((table.shape[0], table.shape[1]), columns)

    def unpacked(self) -> Integers:
        # In Fortran order, so that columns of zeros take no memory.
        result = np.zeros(self.shape, np.int64, order="F")
        for place, packed in self.columns:
            result[:, place] = packed.unpacked()
        return result


@record
class SentTexts:
    """Concatenated texts, and the length of each."""

    text: bytes
    lengths: SentColumn

    @classmethod
    def of(cls, texts: Sequence[str]) -> SentTexts:
        whole = "".join(texts).encode("utf-8", "surrogatepass")
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        return cls(zlib.compress(whole, _TEXT_LEVEL), SentColumn.of(lengths))

    def unpacked(self) -> tuple[str, ...]:
        whole = zlib.decompress(self.text).decode("utf-8", "surrogatepass")
        ends = np.cumsum(self.lengths.unpacked()).tolist()
        return tuple(whole[begin:end] for begin, end in zip([0, *ends], ends, strict=False))


def _packed_numbers(numbers: _Unsigned) -> SentNumbers:
    changes = np.flatnonzero(numbers[1:] != numbers[:-1]) + 1
    if len(numbers) and not len(changes):
        return SentPlanes(len(numbers), int(numbers[0]), ())
    if len(numbers) and _OF_RUN * len(changes) <= len(numbers):
        starts = np.append(0, changes)
        lengths = np.diff(starts, append=len(numbers)).view(np.uint64)
        return SentRuns(_packed_numbers(numbers[starts]), _packed_numbers(lengths))
    itself = _less_least(numbers)
    apart = _less_least(np.diff(numbers)) if len(numbers) > 1 else itself
    if _width(apart[1]) < _width(itself[1]):
        return _planes(*apart, first=int(numbers[0]))
    return _planes(*itself)


def _less_least(numbers: _Unsigned) -> tuple[int, _Unsigned]:
    """The least (signed) number, modulo 2^64, and the excess of each number over it."""
    if not len(numbers):
        return 0, numbers
    base = numbers.view(np.int64).min().view(np.uint64)
    return int(base), numbers - base


def _width(numbers: _Unsigned) -> int:
    """Bytes of the largest number."""
    return (int(numbers.max(initial=np.uint64(0))).bit_length() + 7) // 8


def _planes(base: int, numbers: _Unsigned, first: int | None = None) -> SentPlanes:
    table = numbers.astype("<u8").view(np.uint8).reshape(-1, _BYTES)
    planes: list[SentNumbers | bytes] = []
    for place in range(_width(numbers)):
        plane = table[:, place].copy()
        changes = int(np.count_nonzero(plane[1:] != plane[:-1]))
        runs = _OF_RUN * changes <= len(plane)
        planes.append(_packed_numbers(plane.astype(np.uint64)) if runs else plane.tobytes())
    return SentPlanes(len(numbers), base, tuple(planes), first)


class Pool(IntEnum):
    """What an item is spent on."""

    OTHER = 0
    CPU = 1
    """A call of a thread that launches, and the thread's time before it."""
    WORK = 2
    """Work of the GPU that exchanges nothing."""


@record
class RankGraph:
    """The graph of a rank's model (facts.dependencies.forecast.model), packed until it is needed.

    By item, `step` is a row of RankSteps (−1: none), `pool` a Pool. `collective` has the item of
    each row of RankCollectives, −1 outside of the graph. Ranks of one recording share `packed`.
    """

    packed: PackedGraph
    step: SentColumn
    pool: SentColumn
    collective: SentColumn


@record
class PackedGraph:
    """What a replay needs of a graph of so many calls and items.

    `call_ns` is what the recorder adds to a call.
    """

    calls: int
    items: int
    latency_ns: int
    pitch_ns: int
    call_ns: int
    columns: Mapping[str, tuple[str, bytes]]

    @classmethod
    def of(cls, graph: Dependencies, call_ns: int) -> PackedGraph:
        columns = {
            "since": np.diff(graph.start_ns, prepend=0),
            "duration": graph.end_ns - graph.start_ns,
            "less": graph.end_ns - graph.start_ns - graph.own_ns,
            "launch": graph.launch,
        }
        for name, edges in (("begin", graph.begin), ("finish", graph.finish)):
            columns |= {
                f"{name}_first": edges.first,
                # Most items wait for one close to them.
                f"{name}_back": edges.of - edges.on,
                f"{name}_lag": edges.lag_ns,
                f"{name}_kind": edges.kind,
            }
        packed = {name: _deflated(column) for name, column in columns.items()}
        sizes = graph.calls, len(graph), graph.latency_ns, graph.pitch_ns
        return cls(*sizes, call_ns, packed)

    def unpacked(self) -> Dependencies:
        column = {name: _inflated(*packed) for name, packed in self.columns.items()}
        start, none = np.cumsum(column["since"]), np.zeros(0, np.int32)
        return Dependencies(
            calls=self.calls,
            call=none,
            operation=none,
            item_of_call=none,
            thread=none,
            does=none,
            start_ns=start,
            end_ns=start + column["duration"],
            own_ns=column["duration"] - column["less"],
            begin=_edges(column, "begin"),
            finish=_edges(column, "finish"),
            launch=column["launch"],
            latency_ns=self.latency_ns,
            pitch_ns=self.pitch_ns,
        )


def _deflated(column: Array) -> tuple[str, bytes]:
    """A column by byte, lowest first: a graph of 20,000 items in 0.1 MB, half of what SentColumn
    takes, so that those of 256 ranks stay small."""
    planes = column.view(np.uint8).reshape(-1, column.itemsize).T
    return column.dtype.str, zlib.compress(planes.tobytes(), 1)


def _inflated(dtype: str, packed: bytes) -> Array:
    planes = np.frombuffer(zlib.decompress(packed), np.uint8)
    return planes.reshape(np.dtype(dtype).itemsize, -1).T.copy().view(dtype).ravel()


def _edges(column: Mapping[str, Array], name: str) -> Edges:
    first = column[f"{name}_first"]
    of = np.repeat(np.arange(len(first) - 1, dtype=np.int32), np.diff(first))
    lag, kind = column[f"{name}_lag"], column[f"{name}_kind"]
    return Edges(first, of - column[f"{name}_back"], lag, kind)
