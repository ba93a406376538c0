"""Why a global access is narrower than 128 bits: shown by recompiling, else inferred."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from traceview.ptx.address import Origin, together
from traceview.ptx.atomics import VECTORS_SINCE, has_wider_form
from traceview.ptx.causes import (
    WIDE_BITS,
    Cause,
    Suspects,
    all_divisible,
    fixed_strides,
    single_causes,
    too_few_elements,
    undeclared,
)
from traceview.ptx.kernel_report import SEVERITIES, Finding, Severity, where
from traceview.ptx.levels import Place, by_place, said, widths
from traceview.ptx.model import Access, Compiled, Kind
from traceview.ptx.provenance import Array, Provenance
from traceview.ptx.trials import Trials
from traceview.ptx.width import bits_per_pass

_KINDS: dict[Kind, str] = {
    "load": "loads",
    "store": "stores",
    "async-copy": "asynchronous copies",
    "atomic": "atomics",
}
_MINOR_SHARE = 0.1
# Products whose operands wgmma takes with K contiguous only.
_K_MAJOR = re.compile(r"wgmma\.mma_async\S*\.(tf32\.tf32|[es]\d\w*\.[es]\d\w*|[su]8\.[su]8)")
_MOST_LINES = 3


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

    @property
    def width(self) -> int:
        """The widest of them, in bits."""
        return max(widths(self.accesses))

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
    deepest = max((a.loop_depth for listed in streams.values() for a in listed), default=0)
    alike: dict[tuple[int, Verdict], list[tuple[Narrow, Severity]]] = defaultdict(list)
    for (place, array), listed in streams.items():
        narrow = _narrow(place, array, listed, provenance.of_array(array), compiled.arch)
        if narrow:
            minor = bits_per_pass(listed) < _MINOR_SHARE * most
            outside = max(a.loop_depth for a in listed) < deepest
            severity = _severity(narrow.width, minor or outside)
            alike[narrow.width, _verdict(narrow, compiled, trials)].append((narrow, severity))
    for (_, verdict), same in alike.items():
        yield _finding([narrow for narrow, _ in same], verdict, _worst(s for _, s in same))


def _narrow(
    place: Place, array: Array, listed: Sequence[Access], provenance: Provenance, arch: str
) -> Narrow | None:
    kind = place[1]
    narrow = [a for a in listed if a.width_bits and a.width_bits < WIDE_BITS]
    if kind == "atomic":
        narrow = [access for access in narrow if has_wider_form(access, arch)]
    if kind not in _KINDS or not narrow or 2 * bits_per_pass(narrow) < bits_per_pass(listed):
        return None
    address = together(provenance.address(access) for access in narrow)
    if not (address.per_thread or address.loaded or address.through_shared):
        return None
    masks = [name for access in narrow for name in provenance.guard(access).parameters]
    suspects = Suspects(tuple(provenance.named(address.parameters)), tuple(provenance.named(masks)))
    share = _bits(narrow) / _bits(listed)
    return Narrow(place, array, tuple(narrow), share, address, suspects)


def _bits(listed: Sequence[Access]) -> int:
    return sum(width * count for width, count in widths(listed).items())


def _severity(width: int, minor: bool) -> Severity:
    if minor:
        return "low"
    return "high" if width <= 32 else "medium"


def _worst(severities: Iterable[Severity]) -> Severity:
    return min(severities, key=SEVERITIES.index)


def _finding(narrow: Sequence[Narrow], verdict: Verdict, severity: Severity) -> Finding:
    # A line that touches several arrays is named once.
    lines = list(dict.fromkeys(f"{_KINDS[n.place[1]]} at {where(n.place[0])}" for n in narrow))
    shown, more = lines[:_MOST_LINES], len(lines[_MOST_LINES:])
    more_lines = f" and at {more} more line{'s' if more > 1 else ''}"
    places = " and ".join(shown) + (more_lines if more else "")
    counts = said(widths([access for each in narrow for access in each.accesses]))
    message = (
        f"Global {places} move {narrow[0].width} of {WIDE_BITS} bits a thread and instruction "
        f"({counts}): {verdict.cause}"
    )
    source = narrow[0].place[0]
    return Finding(severity, message, verdict.action, verdict.evidence, source, verdict.cause)


def _verdict(narrow: Narrow, compiled: Compiled, trials: Trials | None) -> Verdict:
    shown = _shown(narrow, compiled, trials) if trials else None
    found = shown or _inferred(narrow, compiled, tried=trials is not None and trials.worked)
    if narrow.place[1] == "atomic":
        return replace(found, evidence=f"{found.evidence}; {VECTORS_SINCE}")
    return found


def _shown(narrow: Narrow, compiled: Compiled, trials: Trials) -> Verdict | None:
    """The verdict of the recompilations; None where none of them widened the access."""
    moved = bits_per_pass(narrow.accesses)
    single = single_causes(compiled, narrow.suspects, narrow.width, moved)
    if narrow.place[1] == "async-copy":
        # How wide a copy to shared memory is, its layout has a say in; one cause is still one.
        single = [cause for cause in single if cause.change.num_warps is None]
    for causes in (single, list(_together(narrow, compiled)), list(fixed_strides(compiled))):
        found = _widest(narrow, causes, trials)
        if found:
            return _proven(narrow, *found)
    return None


def _widest(
    narrow: Narrow, causes: Sequence[Cause], trials: Trials
) -> tuple[list[Cause], int] | None:
    at = (narrow.place, narrow.array, narrow.share)
    reached = [(cause, trials.width(cause.change, *at) or 0) for cause in causes]
    best = max((width for _, width in reached), default=0)
    if best <= narrow.width:
        return None
    winners = [cause for cause, width in reached if width == best]
    return [cause for cause in winners if cause.said == winners[0].said], best


def _together(narrow: Narrow, compiled: Compiled) -> Iterator[Cause]:
    """Causes that hide one another: several arguments, then these with more elements a thread."""
    arguments = undeclared(narrow.suspects)
    if len(arguments) > 1:
        yield all_divisible(arguments)
    if arguments and bits_per_pass(narrow.accesses) < WIDE_BITS:
        base = all_divisible(arguments)
        for cause in too_few_elements(compiled, WIDE_BITS // narrow.width):
            change = replace(cause.change, divisible=base.change.divisible)
            names = " and ".join(change.divisible)
            yield Cause(
                f"{cause.said}, and {names} may not be divisible by 16",
                change,
                f"Pad or align {names} to a multiple of 16, and {_lowered(cause.action)}",
            )


def _proven(narrow: Narrow, causes: Sequence[Cause], width: int) -> Verdict:
    # Of causes taken together one remedy is long enough.
    named = causes[:1] if causes[0].change.divisible else causes
    first, *others = (cause.action for cause in named)
    action = " or ".join((first, *map(_lowered, others)))
    evidence = f"recompiled with {_either(named)}: {width} bits instead of {narrow.width}"
    return Verdict(causes[0].said, action, evidence)


def _lowered(action: str) -> str:
    return action[0].lower() + action[1:]


def _either(causes: Sequence[Cause]) -> str:
    return " or ".join(cause.change.said for cause in causes)


def _inferred(narrow: Narrow, compiled: Compiled, *, tried: bool) -> Verdict:
    failed = "; no recompilation with one assumption changed widened it" if tried else ""
    verdict = _likely(narrow, compiled, tried=tried)
    return replace(verdict, evidence=verdict.evidence + failed)


def _likely(narrow: Narrow, compiled: Compiled, *, tried: bool) -> Verdict:
    cuda = _is_cuda(narrow, compiled)
    if narrow.address.loaded:
        return replace(_GATHER, action=_SORT) if cuda else _GATHER
    arguments = undeclared(narrow.suspects)
    if arguments and not tried:
        names = " and ".join(argument.name for argument in arguments)
        return Verdict(
            f"likely because {names} may not be divisible by 16",
            f"Pad or align {names} to a multiple of 16",
            "the address or the mask is computed from it, and the compiler was not told",
        )
    moved = bits_per_pass(narrow.accesses)
    if moved < WIDE_BITS and not tried:
        return _too_few(moved, cuda)
    if (
        narrow.place[1] == "async-copy"
        and narrow.width <= 32
        and _K_MAJOR.search(compiled.ptx or "")
    ):
        return _transposed(narrow)
    return _UNKNOWN


_GATHER = Verdict(
    "likely a gather, as the compiler cannot know that neighbouring addresses follow each other",
    "Say so where they do: tl.max_contiguous(tl.multiple_of(index, 4), 4); else sort or group "
    "the indices",
    "the address is computed from values that are loaded",
)


_SORT = "Sort or group the indices, or gather runs of elements and move each as a float4"


def _too_few(moved: int, cuda: bool) -> Verdict:
    return Verdict(
        f"likely because each thread moves only {moved} bits there",
        "Give each thread neighbouring elements, and move them as float4 (16 bytes)"
        if cuda
        else "Use fewer warps (num_warps) or a larger block, so that a thread has 16 bytes to move",
        f"all accesses of the line together move {moved} bits a thread",
    )


def _transposed(narrow: Narrow) -> Verdict:
    name = " or ".join(sorted(narrow.array)) or "the operand"
    return Verdict(
        "likely because it is transposed on the way to shared memory, element by element",
        f"Lay {name} out so that the axis that tl.dot sums over (K) is contiguous",
        "wgmma reads transposed operands of 16 bits alone, and these have 32 or 8",
    )


_UNKNOWN = Verdict(
    "the cause was not found",
    "Check that neighbouring elements go to one thread: stride 1 along the axis that varies "
    "fastest, and sizes and pointers that are multiples of 16",
    f"{WIDE_BITS} bits are possible in one instruction",
)


def _is_cuda(narrow: Narrow, compiled: Compiled) -> bool:
    source = narrow.place[0]
    named = source.file if source else compiled.source_file or ""
    return not named.endswith(".py")
