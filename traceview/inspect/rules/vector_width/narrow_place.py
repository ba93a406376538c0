"""Narrow accesses of one place to one array, and what is concluded of them."""

from __future__ import annotations

from dataclasses import dataclass

from traceview.inspect.rules.vector_width.causes import Suspects
from traceview.inspect.sass_vs_ptx import Place, widths
from traceview.ptx.addresses.provenance import Array
from traceview.ptx.addresses.slicing import Origin
from traceview.ptx.addresses.strides import Layout
from traceview.ptx.elements_per_thread import bits_per_pass
from traceview.ptx.model import Access, Compiled


@dataclass(frozen=True)
class Narrow:
    """The narrow accesses of one place to one array, and what addresses and masks depend on.

    `share` is the part of the bits moved there that they move.
    """

    place: Place
    array: Array
    accesses: tuple[Access, ...]
    share: float
    address: Origin
    suspects: Suspects
    layout: Layout

    @property
    def width(self) -> int:
        """The widest of them, in bits."""
        return max(widths(self.accesses))

    @property
    def moved(self) -> int:
        """The bits that a thread moves in them in one pass."""
        return bits_per_pass(self.accesses)

    def is_cuda(self, compiled: Compiled) -> bool:
        """Whether the source is C++ and not Python."""
        source = self.place[0]
        named = source.file if source else compiled.source_file or ""
        return not named.endswith(".py")

    @property
    def count(self) -> int:
        """How many instructions they are."""
        return sum(access.count for access in self.accesses)


@dataclass(frozen=True)
class Verdict:
    """Why an access is narrow, what to do, and what both stand on."""

    cause: str
    action: str
    evidence: str
