"""Layouts of TTGIR: the adjacent elements of each thread, and along which axis."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from traceview.records import record

_LIST = re.compile(r"(\w+) = \[([\d, ]*)\]")
SLICE = re.compile(r"slice<\{dim = (\d+), parent = (.*)\}>$")
_REGISTERS = re.compile(r"register = \[((?:\[[\d, ]*\](?:, )?)*)\]")
_BASIS = re.compile(r"\[([\d, ]*)\]")
_WIDTH = re.compile(r"kWidth = (\d+)")
_IN_TENSOR = re.compile(r"(#[\w.]+(?:<\{.*\}>)?)>$")


@record
class ThreadShare:
    """Axes from the fastest to the slowest, and a thread's adjacent elements along the fastest."""

    order: tuple[int, ...]
    adjacent: int
    kind: str

    @property
    def axis(self) -> int:
        """The axis along which elements of a thread are adjacent."""
        return self.order[0]


def layout_of(type_: str, layouts: Mapping[str, str]) -> str:
    """The layout of a tensor type, with its names resolved; empty where it has none."""
    match = _IN_TENSOR.search(type_)
    return _resolved(match[1], layouts) if match else ""


def kind_of(layout: str) -> str:
    """The kind of a layout: blocked, linear, nvidia_mma, dot_op …"""
    return layout.partition("<")[0].rpartition(".")[2].lstrip("#")


def lists_of(layout: str) -> dict[str, list[int]]:
    """The lists of numbers in a layout, such as sizePerThread, by name."""
    return {
        name: [int(n) for n in numbers.split(",") if n.strip()]
        for name, numbers in _LIST.findall(layout)
    }


def thread_share(layout: str, shape: Sequence[int]) -> ThreadShare | None:
    """A thread's share of a tensor; None for a layout that is not understood."""
    share = _share(layout, len(shape))
    if share is None or not shape or share.axis >= len(shape):
        return None
    return ThreadShare(share.order, min(share.adjacent, shape[share.axis]), share.kind)


def _resolved(text: str, layouts: Mapping[str, str]) -> str:
    for _ in range(8):
        changed = re.sub(r"#(\w+)(?![\w.])", lambda m: layouts.get(m[1], m[0]), text)
        if changed == text:
            break
        text = changed
    return text


def _share(layout: str, rank: int) -> ThreadShare | None:
    sliced = SLICE.search(layout)
    if sliced:
        parent = _share(sliced[2], rank + 1)
        if parent is None:
            return None
        axis = int(sliced[1])
        order = tuple(a - (a > axis) for a in parent.order if a != axis)
        adjacent = parent.adjacent if parent.axis != axis else 1
        return ThreadShare(order, adjacent, f"{parent.kind} slice")
    lists, kind = lists_of(layout), kind_of(layout)
    if kind == "blocked":
        order = tuple(lists["order"])
        return ThreadShare(order, lists["sizePerThread"][order[0]], kind)
    if kind == "linear":
        # A linear layout: registers that advance by 1, 2, 4 … along one axis are adjacent.
        registers = _REGISTERS.search(layout)
        bases = [
            [int(n) for n in basis.split(",") if n.strip()]
            for basis in (_BASIS.findall(registers[1]) if registers else ())
        ]
        axis = next((at for basis in bases for at, n in enumerate(basis) if n), rank - 1)
        adjacent = 1
        while any(basis[axis] == adjacent and sum(basis) == adjacent for basis in bases):
            adjacent *= 2
        rest = tuple(a for a in reversed(range(rank)) if a != axis)
        return ThreadShare((axis, *rest), adjacent, "linear")
    last_first = tuple(reversed(range(rank)))
    if kind == "dot_op":
        width = _WIDTH.search(layout)
        return ThreadShare(last_first, int(width[1]) if width else 1, kind)
    return ThreadShare(last_first, 2, kind) if kind.endswith("mma") else None
