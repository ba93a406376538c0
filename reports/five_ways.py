"""An operation in several ways beside the figures of a lecture: what its cases share.

The figures are those of Stanford's CS336 (spring 2025), lecture 6, for tensors of 16384 × 16384
float32: wall-clock time around a call and a synchronization, on a GPU that it does not name here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from gallery import Said, numbered, table, terabytes, times
from matplotlib.axes import Axes

from traceview.hardware import rates_of
from traceview.units import duration, size

LECTURE_BYTES = 2 * 4 * 16384**2
MS = 1e6
A100, H100 = "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"


@dataclass(frozen=True)
class Way:
    """One version in a step: its kernel time (median of the steps), kernels, and least traffic."""

    name: str
    ns: float
    kernels: int
    least_bytes: int

    @property
    def bytes_per_s(self) -> float:
        """Of the least traffic that the operation needs, whatever the version really moved."""
        return 1e9 * self.least_bytes / self.ns


@dataclass(frozen=True)
class FiveWays:
    """The ways of one recording, and what the lecture measured of them.

    `lecture_ns` is by our versions' names; `manual_passes` are the reads and writes of the whole
    tensor that the formula makes, one kernel an operation, where two would do.
    """

    said: Said
    lecture_ns: Mapping[str, float]
    manual_passes: int

    @cached_property
    def ways(self) -> dict[str, Way]:
        """Each version, slowest first."""
        found: dict[str, list[dict]] = {}
        work: dict[str, int] = {}
        for row in self.said.rows("kernel-share", "ranges_inclusive"):
            told = re.fullmatch(r"step_\d+/([^ /]+) (\{.*\})", row["range_path"])
            if told:
                found.setdefault(told[1], []).append(row)
                work[told[1]] = json.loads(told[2])["bytes"]
        ways = [
            Way(name, median(row["total_ns"] for row in rows), rows[0]["calls"], work[name])
            for name, rows in found.items()
        ]
        return {way.name: way for way in sorted(ways, key=lambda way: -way.ns)}

    @cached_property
    def peak(self) -> int:
        """Bytes a second of the GPU's memory, as the recording tells."""
        return next(self.said.trace.devices.rows())["memory_bytes_per_s"]

    def manual_rate(self) -> float:
        """Bytes a second that the manual version really moved."""
        manual = self.ways["manual"]
        return manual.bytes_per_s * self.manual_passes / 2

    def table(self) -> str:
        heads = ["version", "kernels", "takes", "least traffic ÷ time", "of the memory's peak"]
        rows = []
        for way in self.ways.values():
            theirs = self.lecture_ns.get(way.name)
            lecture = [duration(theirs), terabytes(1e9 * LECTURE_BYTES / theirs)] if theirs else []
            share = f"{100 * way.bytes_per_s / self.peak:.0f} %"
            ours = [str(way.kernels), duration(way.ns), terabytes(way.bytes_per_s), share]
            rows.append([f"`{way.name}`", *ours, *(lecture or ["", ""])])
        return table([*heads, "the lecture's", "least traffic ÷ its time"], rows)

    def answer(self, more: list[str]) -> str:
        manual, torch = self.ways["manual"], self.ways["torch"]
        fastest = list(self.ways.values())[-1]
        return numbered(
            [
                f"The least traffic is one read and one write, {size(manual.least_bytes)} here. "
                f"At the memory's peak, {terabytes(self.peak)}, that takes "
                f"{duration(1e9 * manual.least_bytes / self.peak)}; the fastest, "
                f"`{fastest.name}`, takes {duration(fastest.ns)}.",
                f"`manual` is {manual.kernels} kernels. They read and write the whole tensor "
                f"{self.manual_passes} times where 2 would do, {times(self.manual_passes / 2)} the "
                f"traffic, at {terabytes(self.manual_rate())}, and take "
                f"{times(manual.ns / torch.ns)} the time of `torch`, which moves its bytes at "
                f"{terabytes(torch.bytes_per_s)}.",
                *more,
                *self.beside_the_lecture(),
            ]
        )

    def beside_the_lecture(self) -> list[str]:
        """Why the lecture's figures are others, as far as the figures themselves tell."""
        theirs, manual = self.lecture_ns, self.ways["manual"]
        moved = LECTURE_BYTES * self.manual_passes / 2
        rate = 1e9 * moved / theirs["manual"]
        sheet = {name: rates_of(name).memory_bytes_per_s for name in (A100, H100)}
        fastest = min(theirs, key=theirs.__getitem__)
        least = 1e9 * LECTURE_BYTES / sheet[H100]
        ratios = (each["manual"] / each["torch"] for each in (theirs, self.own_ns()))
        lecture, ours = map(times, ratios)
        return [
            f"The lecture's tensor is {LECTURE_BYTES / manual.least_bytes:g} times as large, so "
            f"bytes a second are what can be compared, not times. Its manual version moves "
            f"{size(moved)} in {duration(theirs['manual'])}, {terabytes(rate)}: more than an A100 "
            f"has ({terabytes(sheet[A100])}), {100 * rate / sheet[H100]:.0f} % of what an H100 has "
            f"({terabytes(sheet[H100])}). This GPU has {terabytes(self.peak)}.",
            f"An H100 at its peak needs {duration(least)} for the least traffic. The lecture's "
            f"fastest, `{fastest}`, has {duration(theirs[fastest] - least)} more. Its clock runs "
            f"around a call and a synchronization, ours counts the kernels alone; how much of the "
            f"rest that is, the figures do not tell. Whatever comes on top of both makes a ratio "
            f"smaller: manual to `torch` is {lecture} there and {ours} here.",
        ]

    def own_ns(self) -> dict[str, float]:
        return {name: way.ns for name, way in self.ways.items()}

    def draw(self, axes: Axes) -> None:
        ways = list(self.ways.values())[::-1]
        bars = axes.barh([way.name for way in ways], [way.bytes_per_s / 1e12 for way in ways])
        axes.bar_label(bars, [duration(way.ns) for way in ways], padding=3)
        for place, way in enumerate(ways):
            theirs = self.lecture_ns.get(way.name)
            if theirs:
                label = "the lecture's" if way.name == "manual" else None
                axes.plot(LECTURE_BYTES / theirs / 1e3, place, "D", color="C1", label=label)
        axes.axvline(self.peak / 1e12, color="0.4", linestyle="--", linewidth=1)
        axes.set(xlabel="least traffic ÷ time (TB/s); dashed: the memory's peak")
        axes.set_xlim(0, 1.25 * self.peak / 1e12)
        # Beside the bars, its marker would look like one more figure of the lecture.
        axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1))
