"""Collective calls, with sizes and groups, as torch.distributed notes them for the profiler.

The operator `record_param_comms` around each call of a process group has the arguments since torch
2.1; NCCL kernels have them since 2.3. Bytes are those of one message: see the nsys reader's.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from traceview.tables import NULL, Integers, Texts
from traceview.trace.kineto.columns import ColumnParts
from traceview.trace.kineto.cpu_work import CpuWork
from traceview.trace.kineto.events import NO_ARGUMENTS, Events
from traceview.trace.kineto.gpu_work import Staged
from traceview.trace.kineto.owners import SettledOwners
from traceview.trace.kineto.values import ABSENT, INT32, Codes, integers

_KINDS = (
    (re.compile(r"_?all_?reduce"), "all-reduce"),
    (re.compile(r"_?all_?gather"), "all-gather"),
    (re.compile(r"_?reduce_?scatter"), "reduce-scatter"),
    (re.compile(r"_?all_?to_?all"), "all-to-all"),
    (re.compile(r"_?broadcast"), "broadcast"),
    (re.compile(r"_?reduce"), "reduce"),
    (re.compile(r"_?gather"), "gather"),
    (re.compile(r"_?scatter"), "scatter"),
    (re.compile(r"send"), "send"),
    (re.compile(r"recv"), "receive"),
)
_SIZES = {
    "double": 8, "long": 8, "complexfloat": 8, "float": 4, "int": 4, "half": 2, "bfloat16": 2,
    "short": 2, "byte": 1, "char": 1, "bool": 1, "complexdouble": 16,
}  # fmt: skip
_MOST_RANKS = 1 << 20


@dataclass
class Collectives:
    """Collective calls, gathered chunk by chunk."""

    parts: ColumnParts = field(default_factory=ColumnParts)
    kinds: Codes = field(default_factory=Codes)
    groups: dict[tuple[str, str, int], int] = field(default_factory=dict)
    descriptions: dict[int, str] = field(default_factory=dict)

    def add(self, events: Events, work: CpuWork) -> None:
        """Calls among operators; each is listed once, though its kernel has the arguments too."""
        events = [event for event in events if event.args and event.args.collective]
        events = [event for event in events if kind_of((event.args or NO_ARGUMENTS).collective)]
        if not events:
            return
        events, start, end = work.timed(events)
        args = [event.args or NO_ARGUMENTS for event in events]
        kinds = [kind_of(one.collective) for one in args]
        peers = list(map(_peer, args, kinds))
        self.parts.add(
            start_ns=start,
            end_ns=end,
            thread=work.owners.of(events),
            kind=self.kinds.of(kinds),
            group=np.array([self._group(one) for one in args], np.int64),
            bytes=np.array(list(map(_bytes, args, kinds)), np.int64),
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
    """all-reduce, … of a name of torch.distributed; None for what moves no data."""
    text = str(name).lower() if name else ""
    return next((kind for rule, kind in _KINDS if rule.match(text)), None)


def _peer(args: Any, kind: str | None) -> Any:
    return {"send": args.target_rank, "receive": args.source_rank}.get(kind or "")


def _bytes(args: Any, kind: str | None) -> int:
    dtype = str(args.dtype).lower()
    size = _SIZES.get(dtype, 1 if dtype.startswith("float8") else 0)
    count = args.elements_out if kind in ("reduce-scatter", "receive") else args.elements_in
    if not size or type(count) is not int or not 0 <= count < 1 << 48:
        return NULL
    if kind == "all-to-all" and type(args.group_size) is int and args.group_size > 0:
        count //= args.group_size
    return count * size


def collective_tables(
    found: Collectives, settled: SettledOwners, distributed: Mapping[str, Any]
) -> tuple[Staged, Staged]:
    """The collective_calls and communicators tables."""
    parts = found.parts
    provisional, group = parts.take("thread", np.int32), parts.take("group")
    numbers = [_number(name, ranks) for name, ranks, _ in found.groups]
    number = np.array(numbers, np.int64)
    process, peer = settled.process[provisional], parts.take("peer")
    calls: Staged = {
        "start_ns": parts.take("start_ns"),
        "end_ns": parts.take("end_ns"),
        "thread": settled.thread[provisional],
        "process": process,
        "kind": found.kinds.texts(parts.take("kind", np.int32)),
        "communicator": number[group],
        "bytes": parts.take("bytes"),
        "peer": np.where((peer < 0) | (peer > INT32.max), ABSENT, peer).astype(np.int32),
    }
    return calls, _communicators(found, number, group, process, distributed)


def _communicators(
    found: Collectives,
    number: Integers,
    group: Integers,
    process: Any,
    distributed: Mapping[str, Any],
) -> Staged:
    rank = distributed.get("rank")
    rows, texts = [], []
    for place, (_, ranks, size) in enumerate(found.groups):
        members = (
            [int(text) for text in re.findall(r"\d{1,9}", ranks)] if "..." not in ranks else []
        )
        own = members.index(rank) if rank in members else rank
        if size > 0 and type(own) is int and 0 <= own < size:
            used = process[group == place]
            rows.append((int(used[0]), int(number[place]), size, own))
            whole = ",".join(map(str, members)) if len(members) == size else None
            texts.append((found.descriptions.get(place), whole))
    table = np.array(rows, np.int64).reshape(-1, 4)
    return {
        "process": table[:, 0].astype(np.int32),
        "communicator": table[:, 1].copy(),
        "ranks": table[:, 2].astype(np.int32),
        "rank": table[:, 3].astype(np.int32),
        "name": Texts.of([name for name, _ in texts]),
        "members": Texts.of([whole for _, whole in texts]),
    }


def _number(name: str, ranks: str) -> int:
    """A number of a process group that is equal on all its ranks."""
    digest = hashlib.blake2b(f"{name}|{ranks}".encode("utf-8", "replace"), digest_size=7).digest()
    return int.from_bytes(digest, "big")
