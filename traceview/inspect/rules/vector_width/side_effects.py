"""Side effects of a recompilation: what widens one access may make another worse."""

from __future__ import annotations

from collections.abc import Iterator

from traceview import units
from traceview.inspect.kernel_report import line_name
from traceview.inspect.recompilations import Outcome, narrower_fraction
from traceview.inspect.sass_vs_ptx import Place, by_place, widths
from traceview.ptx.accesses import tensor_ops
from traceview.ptx.addresses.provenance import Array
from traceview.ptx.model import Access

KINDS = {
    "load": "loads",
    "store": "stores",
    "async-copy": "asynchronous copies",
    "atomic": "atomics",
}
_UNCOALESCED = "uncoalesced"
_MORE = 1.25
_MOST = 2


def harm(before: Outcome, after: Outcome) -> str:
    """A clause on what got worse; empty if nothing did."""
    harms = [
        *_narrowed(before, after),
        *_scattered(before, after),
        *_shared(before, after),
        *_lost(before, after),
    ]
    more = f" and {len(harms) - _MOST} more" if len(harms) > _MOST else ""
    return " and ".join(harms[:_MOST]) + more


def harm_of_requests(text: str) -> bool:
    """Whether a harm is that there are more uncoalesced accesses."""
    return text.startswith(_UNCOALESCED)


def _narrowed(before: Outcome, after: Outcome) -> Iterator[str]:
    widths_after = _reached(after)
    for (place, array), width in _reached(before).items():
        left = widths_after.get((place, array), width)
        if left < width:
            kind = KINDS["load" if place[1] == "async-copy" else place[1]]
            yield f"{kind} at {line_name(place[0])} fall from {width} to {left} bits"


def _scattered(before: Outcome, after: Outcome) -> Iterator[str]:
    """Clauses on uncoalesced accesses that are as narrow as before, but more.

    The more elements a thread takes, the further apart are those that one request moves.
    """
    fewer, more = _uncoalesced(before), _uncoalesced(after)
    for (place, width), count in fewer.items():
        grown = more.get((place, width), 0)
        if grown > count:
            kind, line = KINDS[place[1]], line_name(place[0])
            yield f"{_UNCOALESCED} {kind} at {line} grow from {count} to {grown} per thread"


def _uncoalesced(outcome: Outcome) -> dict[tuple[Place, int], int]:
    """The number of uncoalesced accesses at each place, by width in bits."""
    counts: dict[tuple[Place, int], int] = {}
    for place, listed in by_place(outcome.ptx_accesses, "ptx").items():
        for access in listed if place[1] in ("load", "store") and place[2] == "global" else ():
            cost = outcome.request_costs.cost(access)
            if cost and cost.is_uncoalesced:
                key = place, access.width_bits or 0
                counts[key] = counts.get(key, 0) + access.count
    return counts


def _reached(outcome: Outcome) -> dict[tuple[Place, Array], int]:
    """The width that most bits at each place move at; loads and async copies are one kind."""
    accesses: dict[tuple[Place, Array], list[Access]] = {}
    for place, listed in by_place(outcome.ptx_accesses, "ptx").items():
        source, kind, space = place
        if space == "global" and kind in KINDS:
            one = (source, "load" if kind == "async-copy" else kind, space)
            for array, part in outcome.provenance.by_array(listed).items():
                accesses.setdefault((one, array), []).extend(part)
    counts = {at: widths(listed) for at, listed in accesses.items()}
    return {
        at: next(w for w in each if narrower_fraction(each, w) <= 0.5)
        for at, each in counts.items()
        if each
    }


def _shared(before: Outcome, after: Outcome) -> Iterator[str]:
    """A clause if shared-memory traffic per byte of global memory grows."""
    if _per_global(after) > _MORE * _per_global(before):
        yield "shared-memory traffic grows"


def _per_global(outcome: Outcome) -> float:
    moved = {"shared": 0, "global": 0}
    for access in outcome.ptx_accesses:
        if access.space in moved and access.kind in ("load", "store", "async-copy"):
            moved[access.space] += (access.width_bits or 0) * access.count
    return moved["shared"] / max(moved["global"], 1)


def _lost(before: Outcome, after: Outcome) -> Iterator[str]:
    gone = {op.operation for op in tensor_ops(before.function)}
    gone -= {op.operation for op in tensor_ops(after.function)}
    if gone:
        yield f"{' and '.join(sorted(gone))} {'is' if len(gone) == 1 else 'are'} no longer used"
    spilled, spills = before.spill_bytes, after.spill_bytes
    if spilled is not None and spills is not None and spills > spilled:
        yield f"{units.counted(spills, 'byte')} per thread are spilled"
