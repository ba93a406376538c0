"""Global accesses that are narrower than 128 bits: where, how bad, and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from traceview.inspect.kernel_report import SEVERITIES, Finding, Severity, where
from traceview.inspect.rules.atomics import VECTORS_SINCE, has_wider_form
from traceview.inspect.rules.vector_width.causes import WIDE_BITS, Suspects
from traceview.inspect.rules.vector_width.narrow_place import Narrow, Verdict
from traceview.inspect.rules.vector_width.proven import verdict
from traceview.inspect.rules.vector_width.side_effects import KINDS
from traceview.inspect.sass_vs_ptx import Place, by_place, said, widths
from traceview.inspect.trials import Trials
from traceview.ptx.addresses.provenance import Array, Provenance
from traceview.ptx.addresses.slicing import together
from traceview.ptx.addresses.strides import Samples
from traceview.ptx.elements_per_thread import bits_per_pass
from traceview.ptx.model import Access, Compiled

_MOVES = ("load", "store", "async-copy")
_MINOR_SHARE = 0.1
_MOST_LINES = 3


def narrow_findings(
    compiled: Compiled, accesses: Sequence[Access], provenance: Provenance, trials: Trials | None
) -> Iterator[Finding]:
    """Findings on lines whose global accesses are narrower than 128 bits, one for each cause.

    An access whose address is the same for all threads of a block moves one value, and is left
    out. A cause is called likely unless a recompilation showed it.
    """
    streams = {
        (place, array): part
        for place, listed in by_place(accesses, "ptx").items()
        if place[2] == "global"
        for array, part in provenance.by_array(listed).items()
    }
    most = max((bits_per_pass(listed) for listed in streams.values()), default=0)
    # A lock's atomic spins in a loop of its own.
    moves = (a for (p, _), listed in streams.items() if p[1] in _MOVES for a in listed)
    deepest = max((access.loop_depth for access in moves), default=0)
    samples = Samples.of(provenance, compiled)
    alike: dict[tuple[int, Verdict], list[tuple[Narrow, Severity]]] = defaultdict(list)
    for (place, array), listed in streams.items():
        narrow = _narrow(place, array, listed, provenance.of_array(array), compiled, samples)
        if narrow:
            minor = bits_per_pass(listed) < _MINOR_SHARE * most
            outside = max(a.loop_depth for a in listed) < deepest
            severity = _severity(narrow, minor=minor or outside)
            alike[narrow.width, _verdict(narrow, compiled, trials)].append((narrow, severity))
    for (_, reason), same in alike.items():
        yield _finding([narrow for narrow, _ in same], reason, _worst(s for _, s in same))


def _narrow(
    place: Place,
    array: Array,
    listed: Sequence[Access],
    provenance: Provenance,
    compiled: Compiled,
    samples: Samples,
) -> Narrow | None:
    kind = place[1]
    narrow = [a for a in listed if a.width_bits and a.width_bits < WIDE_BITS]
    if kind == "atomic":
        narrow = [access for access in narrow if has_wider_form(access, compiled.arch)]
    if kind not in KINDS or not narrow or 2 * bits_per_pass(narrow) < bits_per_pass(listed):
        return None
    address = together(provenance.address(access) for access in narrow)
    if not (address.per_thread or address.gathered or address.through_shared):
        return None
    masks = [name for access in narrow for name in provenance.guard(access).parameters]
    suspects = Suspects(tuple(provenance.named(address.parameters)), tuple(provenance.named(masks)))
    share = _bits(narrow) / _bits(listed)
    layout = samples.layout(max(narrow, key=lambda access: access.count), provenance)
    return Narrow(place, array, tuple(narrow), share, address, suspects, layout)


def _bits(listed: Sequence[Access]) -> int:
    return sum(width * count for width, count in widths(listed).items())


def _severity(narrow: Narrow, *, minor: bool) -> Severity:
    if minor:
        return "low"
    # The same element again comes from the cache.
    again = narrow.layout.scattered and narrow.layout.apart == 0
    return "high" if narrow.width <= 32 and not again else "medium"


def _worst(severities: Iterable[Severity]) -> Severity:
    return min(severities, key=SEVERITIES.index)


def _finding(narrow: Sequence[Narrow], reason: Verdict, severity: Severity) -> Finding:
    # A line that touches several arrays is named once.
    lines = list(dict.fromkeys(f"{KINDS[n.place[1]]} at {where(n.place[0])}" for n in narrow))
    shown, more = lines[:_MOST_LINES], len(lines[_MOST_LINES:])
    more_lines = f" and at {more} more line{'s' if more > 1 else ''}"
    places = " and ".join(shown) + (more_lines if more else "")
    counts = said(widths([access for each in narrow for access in each.accesses]))
    message = (
        f"Global {places} move {narrow[0].width} of {WIDE_BITS} bits a thread and instruction "
        f"({counts}): {reason.cause}"
    )
    source = narrow[0].place[0]
    return Finding(severity, message, reason.action, reason.evidence, source, reason.cause)


def _verdict(narrow: Narrow, compiled: Compiled, trials: Trials | None) -> Verdict:
    found = verdict(narrow, compiled, trials)
    if narrow.place[1] == "atomic":
        return replace(found, evidence=f"{found.evidence}; {VECTORS_SINCE}")
    return found
