"""The narrow accesses of one source line to one array, and the reason why they are narrow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from traceview.inspect.rules.remedies import Remedy
from traceview.inspect.rules.vector_width.causes import Suspects
from traceview.inspect.sass_vs_ptx import Place, widths
from traceview.ptx.addresses.provenance import Array
from traceview.ptx.addresses.slicing import Origin
from traceview.ptx.addresses.strides import Layout
from traceview.ptx.model import Access, Compiled, RequestCost, SourceLine
from traceview.records import record

_MOST_NAMES = 3


@record
class Narrow:
    """The narrow accesses of one line to one array, and what their addresses and masks depend on.

    `fraction` is their share of the bits that the line moves to or from the array, `moved` the bits
    that a thread moves through them in one pass. `cost` is the request cost of the most frequent of
    them. `helpers` are the lines of inlined helpers that make them.
    """

    place: Place
    array: Array
    accesses: tuple[Access, ...]
    fraction: float
    moved: int
    address: Origin
    suspects: Suspects
    layout: Layout
    cost: RequestCost | None = None
    helpers: tuple[SourceLine, ...] = ()

    @property
    def width(self) -> int:
        """The width of the widest access, in bits."""
        return max(widths(self.accesses))

    def is_cuda(self, compiled: Compiled) -> bool:
        """Whether the source is code per thread and not Triton's."""
        source = self.place[0]
        named = source.file if source else compiled.source_file or ""
        return compiled.by_nvvm or not named.endswith(".py")

    @property
    def count(self) -> int:
        """Number of instructions."""
        return sum(access.count for access in self.accesses)


@record
class NarrowReason:
    """Why an access is narrow, and what to do.

    `cause` is a clause without a subordinating word (`n is not known to be divisible by 16`),
    empty where the cause is unknown. `proven` says that a recompilation, or the addresses in the
    PTX, show it; else it is inferred. `widened_bits` is the width that a recompilation reached.
    `remedies` are those in `remedy` that were recompiled, `otherwise` what to do without them.
    """

    cause: str
    remedy: str
    basis: str
    proven: bool = False
    widened_bits: int | None = None
    remedies: tuple[Remedy, ...] = ()
    otherwise: str = ""

    def joined(self, others: Sequence[NarrowReason]) -> NarrowReason | None:
        """One reason for all, if their causes differ in one name and none was recompiled."""
        every = (self, *others)
        if len({(each.remedy, each.proven) for each in every}) > 1:
            return None
        if any(each.remedies or each.widened_bits for each in every):
            return None
        cause = _joined([each.cause for each in every])
        return replace(self, cause=cause) if cause else None


def _joined(texts: Sequence[str]) -> str:
    """Texts that differ in one word, as one text: `elements are stride_x or stride_y apart`."""
    words = [text.split() for text in dict.fromkeys(texts)]
    places = [at for at, each in enumerate(zip(*words, strict=False)) if len(set(each)) > 1]
    if len({len(each) for each in words}) > 1 or len(places) > 1:
        return ""
    if not places:
        return texts[0]
    (at,) = places
    names = [each[at].rstrip(",") for each in words]
    more = [
        *names[:_MOST_NAMES],
        *([f"{len(names) - _MOST_NAMES} more"] * (len(names) > _MOST_NAMES)),
    ]
    listed = f"{', '.join(more[:-1])} or {more[-1]}" + "," * words[0][at].endswith(",")
    return " ".join([*words[0][:at], listed, *words[0][at + 1 :]])
