"""What is said of a kernel that goes through memory in narrow pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from traceview.analyses.load_widths.bounds import WIDE_BITS, WidthBound
from traceview.findings import Evidence, shortened

if TYPE_CHECKING:
    from traceview.inspect.launched_widths import MainWidth
    from traceview.ptx.model import SourceLine

_MOST_WORDS = 300
_ASK = "Look at the kernel's source or PTX for the cause; if neighbouring elements go to "
_FLOAT4 = "different threads, give each thread four of them as a float4 (16 bytes)."


def label(bound: WidthBound) -> str:
    """The base name of its kernel."""
    return bound.code.runs[0].short_name


def line(source: SourceLine | None) -> str | None:
    """A line of the program as gelu.py:31; None where it is not known."""
    from traceview.inspect.kernel_report import line_name

    return line_name(source) if source else None


def who(bound: WidthBound, share: float) -> str:
    """`41 % of kernel time is in k, which loads 32 bits at a time (k.cu:7), likely because …`."""
    evidence = next((f.evidence for f in bound.widths.narrow if f.severity != "low"), Evidence())
    cause, proven = evidence.values.get("cause"), evidence.values.get("proven")
    lines = [line(main.source) for main in _narrow_ones(bound).values()]
    places = " and ".join(dict.fromkeys(shortened(place) for place in lines if place))
    because = "because" if proven else "likely because"
    why = f", {because} {shortened(str(cause), _MOST_WORDS)}" if cause else ""
    kernel = shortened(label(bound))
    return (
        f"{share:.0f} % of kernel time is in {kernel}, which {_does(bound)} at a time"
        f"{f' ({places})' if places else ''}{why}"
    )


def _does(bound: WidthBound) -> str:
    narrow = _narrow_ones(bound)
    bits = {main.bits for main in narrow.values()}
    if len(bits) == 1:
        return f"{' and '.join(narrow)} {bits.pop()} bits"
    return " and ".join(f"{verb} {main.bits} bits" for verb, main in narrow.items())


def _narrow_ones(bound: WidthBound) -> dict[str, MainWidth]:
    both = {"loads": bound.widths.loads, "stores": bound.widths.stores}
    return {verb: main for verb, main in both.items() if main and main.bits < WIDE_BITS}


def blamed(bound: WidthBound) -> MainWidth | None:
    """Its narrow loads, or else its narrow stores; None without either."""
    return next(iter(_narrow_ones(bound).values()), None)


def action(bound: WidthBound) -> str:
    """What to do, as `traceview ptx` says it; of SASS alone, what is likely."""
    said = [finding for finding in bound.widths.narrow if finding.severity != "low"]
    return f"{shortened(said[0].action, _MOST_WORDS)}." if said else _ASK + _FLOAT4
