"""Proven remedies of a report, all at once, compiled by Triton itself: is the width reached?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.headless.corpus.plain_triton import kernel_in, ptx_of, widths_at
from traceview.kernels.inspect.kernel_report import KernelReport

_RECOMPILED = re.compile(r"recompiled with (.*?): (\d+) bits instead of (\d+)")
_OTHER = "as advised for another finding"
_OPTIONS = ("num_warps", "num_stages")


@dataclass(frozen=True)
class Promise:
    """The width in bits that a remedy gives the accesses of a line, and what it changes."""

    line: int
    width: int
    divisible: tuple[str, ...]
    values: tuple[tuple[str, int], ...]


def described(change: str) -> tuple[tuple[str, ...], tuple[tuple[str, int], ...]]:
    """The arguments to make divisible and the values to set, of the first of alternatives."""
    names = change.partition(" divisible by 16")[0] if "divisible by 16" in change else ""
    rest = change.removeprefix(f"{names} divisible by 16").partition(" or ")[0]
    values = tuple((name, int(value)) for name, value in re.findall(r"(\w+)=(-?\d+)", rest))
    return tuple(name for name in names.split(" and ") if name), values


def promised(report: KernelReport) -> list[Promise]:
    """The widths that the proven remedies of a report promise."""
    found = []
    for finding in report.findings:
        values, basis = finding.evidence.values, finding.evidence.basis
        shown = _RECOMPILED.search(basis)
        if shown and values.get("proven") and not values.get("withdrawn") and ", but " not in basis:
            line = int(str(values["line"]).rpartition(":")[2])
            # What another remedy removes needs no change of its own.
            changes = ((), ()) if _OTHER in finding.action else described(shown[1])
            found.append(Promise(line, int(shown[2]), *changes))
    return found


def unconfirmed(path: Path, report: KernelReport, promises: Sequence[Promise]) -> list[Promise]:
    """The promises that the kernel does not keep with all changes at once. Raises if it cannot be
    compiled without traceview."""
    if not promises:
        return []
    compiled = report.compiled
    constants = {a.name: a.value for a in compiled.arguments if a.type == "constexpr"}
    divisible = {a.name for a in compiled.arguments if a.divisible_by_16}
    options = {"num_warps": compiled.num_warps or 4, "num_stages": compiled.num_stages or 3}
    for promise in promises:
        divisible |= set(promise.divisible)
        for name, value in promise.values:
            if name in _OPTIONS:
                options[name] = value
            else:
                constants[name] = value
    types = {a.name: a.type for a in compiled.arguments}
    ptx = ptx_of(kernel_in(path, report.name), types, constants, divisible, options)
    return [p for p in promises if max(widths_at(ptx, p.line), default=0) < p.width]
