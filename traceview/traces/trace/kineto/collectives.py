"""Collective calls, with sizes and groups, as torch.distributed notes them for the profiler.

The operator `record_param_comms` around each call of a process group has the arguments since torch
2.1; NCCL kernels have them since 2.3. Bytes are those of one message: see nsys/nvtx/nccl_calls.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from traceview.base import groups
from traceview.base.records import record
from traceview.base.tables import NULL, Array, Integers, Texts
from traceview.traces.trace.kineto.columns import ABSENT, INT32, Codes, ColumnParts, integers
from traceview.traces.trace.kineto.cpu_work import CpuWork
from traceview.traces.trace.kineto.events import NO_ARGUMENTS, Events
from traceview.traces.trace.kineto.owners import SettledOwners
from traceview.traces.trace.staged import Staged

# Bytes that a collective call moves, from the element counts that torch.distributed notes.
#
# The split sizes of an all-to-all count rows: a rank's elements are its split times the elements
# per row, which is the number of all elements ÷ the sum of the splits. Torch lists at most 30
# splits.

ITEM_BYTES = {
    "double": 8, "long": 8, "complexfloat": 8, "float": 4, "int": 4, "half": 2, "bfloat16": 2,
    "short": 2, "byte": 1, "char": 1, "bool": 1, "complexdouble": 16,
}  # fmt: skip
_MOST_ELEMENTS, _MOST_BYTES = 1 << 48, 1 << 60
_SPLITS = re.compile(r"\[\d{1,15}(?:, ?\d{1,15})*\]")
_FROM_OUTPUT = ("reduce-scatter", "receive", "scatter")


class MessageSizes(NamedTuple):
    """`bytes`, `total_bytes` and `bus_bytes` of collective_calls: see their columns there."""

    message: int
    total: int = NULL
    bus: int = NULL


def sizes_of(args: Any, kind: str | None) -> MessageSizes:
    """The sizes of a call; for messages of different sizes, `exchanged_bytes` has the bus bytes."""
    item = item_bytes(args.dtype)
    sent, taken = args.elements_in, args.elements_out
    count = taken if kind in _FROM_OUTPUT else sent
    if not item or not _is_count(count):
        return MessageSizes(NULL)
    ranks = args.group_size if type(args.group_size) is int and args.group_size > 0 else 0
    if kind == "all-to-all" and ranks:
        larger = max(count, taken if _is_count(taken) else 0)
        uneven = _is_uneven(args.splits_in) or _is_uneven(args.splits_out)
        return MessageSizes(larger // ranks * item, larger * item if uneven else NULL)
    if kind == "all-gather" and _is_count(taken) and ranks and taken != count * ranks:
        return MessageSizes(count * item, taken * item, max(taken - count, 0) * item)
    return MessageSizes(count * item)


def item_bytes(dtype: Any) -> int:
    """Bytes of an element of a data type, 0 for an unknown type."""
    name = str(dtype).lower()
    return ITEM_BYTES.get(name, 1 if name.startswith("float8") else 0)


def splits_of(args: Any, kind: str | None) -> str:
    """Splits (in, out) and bytes per row of an all-to-all as text; "" if equal, or not known."""
    both = [args.splits_in, args.splits_out]
    if kind != "all-to-all" or not any(map(_is_uneven, both)):
        return ""
    if not all(type(text) is str and _SPLITS.fullmatch(text) for text in both):
        return ""
    rows = [sum(_parsed(text)) for text in both]
    counts = [args.elements_in, args.elements_out]
    known = [(n, r) for n, r in zip(counts, rows, strict=True) if _is_count(n) and r]
    if not known or known[0][0] % known[0][1]:
        return ""
    return f"{both[0]}|{both[1]}|{known[0][0] // known[0][1] * item_bytes(args.dtype)}"


def exchanged_bytes(splits: str, own: int) -> MessageSizes | None:
    """Sizes of an all-to-all for rank `own`, from a text of `splits_of`; None if unknown."""
    if not splits:
        return None
    sent_text, taken_text, row = splits.split("|")
    sent, taken = _parsed(sent_text), _parsed(taken_text)
    if not 0 <= own < min(len(sent), len(taken)):
        return None
    total = max(sum(sent), sum(taken)) * int(row)
    bus = max(sum(sent) - sent[own], sum(taken) - taken[own]) * int(row)
    return MessageSizes(total // len(sent), total, bus) if total < _MOST_BYTES else None


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < _MOST_ELEMENTS


def _is_uneven(text: Any) -> bool:
    """Whether the splits differ, or are too many to be listed completely."""
    return type(text) is str and ("..." in text or len(set(_parsed(text))) > 1)


def _parsed(text: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d{1,15}", text)]


_MOVING = (
    *("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "reduce"),
    *("gather", "scatter"),
)
_KINDS = (
    *((re.compile("_?" + kind.replace("-", "_?")), kind) for kind in _MOVING),
    *((re.compile("send"), "send"), (re.compile("recv"), "receive")),
)
_MOST_RANKS = 1 << 20
_SIZES = ("bytes", "total_bytes", "bus_bytes")


@dataclass
class Collectives:
    """Collective calls, gathered chunk by chunk."""

    parts: ColumnParts = field(default_factory=ColumnParts)
    kinds: Codes = field(default_factory=Codes)
    splits: Codes = field(default_factory=Codes)
    groups: dict[tuple[str, str, int], int] = field(default_factory=dict)
    descriptions: dict[int, str] = field(default_factory=dict)

    def add(self, events: Events, work: CpuWork) -> None:
        """Add the collective calls among operator events; their kernels are not read again."""
        events = [event for event in events if event.args and event.args.collective]
        events = [event for event in events if kind_of((event.args or NO_ARGUMENTS).collective)]
        if not events:
            return
        timed = work.timed(events)
        kinds = [kind_of(one.collective) for one in timed.args]
        ends = {"send": "target_rank", "receive": "source_rank"}
        peers = [
            getattr(one, ends.get(k or "", ""), None)
            for one, k in zip(timed.args, kinds, strict=True)
        ]
        sizes = np.array(list(map(sizes_of, timed.args, kinds)), np.int64).reshape(-1, 3)
        self.parts.add(
            start_ns=timed.start_ns,
            end_ns=timed.end_ns,
            thread=work.owners.of(timed.events),
            kind=self.kinds.of(kinds),
            group=np.array([self._group(one) for one in timed.args], np.int64),
            **dict(zip(_SIZES, sizes.T, strict=True)),
            splits=self.splits.of(list(map(splits_of, timed.args, kinds))),
            peer=integers(peers),
        )

    def _group(self, args: Any) -> int:
        ranks = args.group_size if type(args.group_size) is int else 0
        key = (str(args.group_name), str(args.group_ranks), max(0, min(ranks, _MOST_RANKS)))
        number = self.groups.setdefault(key, len(self.groups))
        if number not in self.descriptions and isinstance(args.group_description, str):
            self.descriptions[number] = args.group_description
        return number


def kind_of(name: Any) -> str | None:
    """The kind, such as all-reduce, of a torch.distributed name; None for what moves no data."""
    text = str(name).lower() if name else ""
    return next((kind for rule, kind in _KINDS if rule.match(text)), None)


def collective_tables(
    collectives: Collectives, settled: SettledOwners, distributed: Mapping[str, Any]
) -> tuple[Staged, Staged]:
    """The collective_calls and communicators tables."""
    parts = collectives.parts
    provisional, group = parts.take("thread", np.int32), parts.take("group")
    listed = [_Group.of(key, distributed.get("rank")) for key in collectives.groups]
    number = np.array([process_group.number for process_group in listed], np.int64)
    process = settled.process[provisional]
    # The columns of bytes; an all-to-all with splits is sized for the own rank in its group.
    sizes = np.stack([collectives.parts.take(name) for name in _SIZES], axis=1)
    texts, splits = list(collectives.splits.index), collectives.parts.take("splits")
    uneven = np.flatnonzero(splits != collectives.splits.index.get("", -1))
    alike = groups.group(splits[uneven].astype(np.int64), group[uneven])
    pairs = uneven[alike.first]
    known = [
        exchanged_bytes(texts[text], listed[place].own) or sizes[row]
        for row, text, place in zip(
            pairs.tolist(), splits[pairs].tolist(), group[pairs].tolist(), strict=True
        )
    ]
    if known:
        sizes[uneven] = np.array(known, np.int64)[alike.ids]
    calls: Staged = {
        "start_ns": parts.take("start_ns"),
        "end_ns": parts.take("end_ns"),
        "thread": settled.thread[provisional],
        "process": process,
        "kind": collectives.kinds.texts(parts.take("kind", np.int32)),
        "communicator": number[group],
        **{name: sizes[:, place].copy() for place, name in enumerate(_SIZES)},
        "peer": _peers(listed, group, parts.take("peer")),
    }
    return calls, _communicators(collectives, listed, group, process)


@record
class _Group:
    """A process group: number, size, members (job ranks, as far as listed), own rank (−1: none)."""

    number: int
    size: int
    members: tuple[int, ...]
    own: int

    @classmethod
    def of(cls, key: tuple[str, str, int], rank: Any) -> _Group:
        name, ranks, size = key
        members = tuple(map(int, re.findall(r"\d{1,9}", ranks)))
        whole = "..." not in ranks
        own = members.index(rank) if whole and rank in members else rank
        known = type(own) is int and 0 <= own < size
        return cls(_number(name, ranks), size, members, own if known else -1)

    @property
    def is_whole(self) -> bool:
        return len(self.members) == self.size


def _peers(listed: Sequence[_Group], group: Integers, peer: Integers) -> Array:
    """The rank of each peer within its group; torch records its rank within the whole job."""
    result = np.where((peer < 0) | (peer > INT32.max), ABSENT, peer).astype(np.int32)
    for place, process_group in enumerate(listed):
        if process_group.members != tuple(range(len(process_group.members))):
            rows = np.flatnonzero((group == place) & (result != ABSENT))
            order = np.argsort(process_group.members)
            ordered = np.array(process_group.members, np.int64)[order]
            at = np.minimum(np.searchsorted(ordered, result[rows]), len(ordered) - 1)
            result[rows] = np.where(ordered[at] == result[rows], order[at], ABSENT)
    return result


def _communicators(
    collectives: Collectives, listed: Sequence[_Group], group: Integers, process: Any
) -> Staged:
    places = [place for place, process_group in enumerate(listed) if process_group.own >= 0]
    chosen = [listed[place] for place in places]
    used = [int(process[group == place][0]) for place in places]
    return {
        "process": np.array(used, np.int32),
        "communicator": np.array([process_group.number for process_group in chosen], np.int64),
        "ranks": np.array([process_group.size for process_group in chosen], np.int32),
        "rank": np.array([process_group.own for process_group in chosen], np.int32),
        "name": Texts.of([collectives.descriptions.get(place) for place in places]),
        "members": Texts.of(
            [
                ",".join(map(str, process_group.members)) if process_group.is_whole else None
                for process_group in chosen
            ]
        ),
    }


def _number(name: str, ranks: str) -> int:
    """A hash of a process group that is equal on all its ranks."""
    digest = hashlib.blake2b(f"{name}|{ranks}".encode("utf-8", "replace"), digest_size=7).digest()
    return int.from_bytes(digest, "big")
