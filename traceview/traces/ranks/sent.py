"""Lossless packing of columns and graphs, to send them from the process that reads a recording.

Numbers are compressed in byte planes: the lowest bytes of all, then the next ones. Upper bytes are
mostly equal, so a few large numbers cost little.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

import numpy as np

from traceview.base.records import record
from traceview.base.tables import Array, Integers
from traceview.traces.facts.dependencies.graph import Dependencies, Edges

_LEVEL = 1


@record
class SentColumn:
    """A column of integers or booleans; one that ascends as the differences of neighbours."""

    dtype: str
    ascends: bool
    packed: bytes

    @classmethod
    def of(cls, column: Array) -> SentColumn:
        ascends = column.dtype.kind == "i" and bool((column[1:] >= column[:-1]).all())
        sent = np.diff(column, prepend=column.dtype.type(0)) if ascends else column
        return cls(column.dtype.str, ascends, _deflated(sent))

    def unpacked(self) -> Array:
        dtype = np.dtype(self.dtype)
        sent = _inflated(dtype, self.packed)
        return np.cumsum(sent, dtype=dtype) if self.ascends else sent


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
        return cls(zlib.compress(whole, _LEVEL), SentColumn.of(lengths))

    def unpacked(self) -> tuple[str, ...]:
        whole = zlib.decompress(self.text).decode("utf-8", "surrogatepass")
        ends = np.cumsum(self.lengths.unpacked()).tolist()
        return tuple(whole[begin:end] for begin, end in zip([0, *ends], ends, strict=False))


class Pool(IntEnum):
    """What an item is spent on."""

    OTHER = 0
    CPU = 1
    """A call of a thread that launches, and the thread's time before it."""
    WORK = 2
    """Work of the GPU that exchanges nothing."""


@record
class RankGraph:
    """The graph of a rank's model (facts.forecast.model), packed until it is needed.

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
        packed = {name: (column.dtype.str, _deflated(column)) for name, column in columns.items()}
        sizes = graph.calls, len(graph), graph.latency_ns, graph.pitch_ns
        return cls(*sizes, call_ns, packed)

    def unpacked(self) -> Dependencies:
        column = {
            name: _inflated(np.dtype(dtype), packed)
            for name, (dtype, packed) in self.columns.items()
        }
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


def _deflated(numbers: Array) -> bytes:
    planes = np.ascontiguousarray(numbers).view(np.uint8).reshape(-1, numbers.itemsize).T
    return zlib.compress(planes.tobytes(), _LEVEL)


def _inflated(dtype: np.dtype[Any], packed: bytes) -> Array:
    planes = np.frombuffer(zlib.decompress(packed), np.uint8)
    return planes.reshape(dtype.itemsize, -1).T.copy().view(dtype).ravel()


def _edges(column: Mapping[str, Array], name: str) -> Edges:
    first = column[f"{name}_first"]
    of = np.repeat(np.arange(len(first) - 1, dtype=np.int32), np.diff(first))
    lag, kind = column[f"{name}_lag"], column[f"{name}_kind"]
    return Edges(first, of - column[f"{name}_back"], lag, kind)
