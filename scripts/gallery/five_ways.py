"""What the GELU and softmax cases share: one operation in several versions, and a lecture's times.

The lecture is Stanford's CS336 (spring 2025), lecture 6, on tensors of 16384 × 16384 float32. It
measures wall-clock time around a call and a synchronization. Its GPU is not stated here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from matplotlib.axes import Axes

from gallery.case import RecordingReport
from gallery.markdown import numbered, table, terabytes, times
from traceview.base.hardware import rates_of
from traceview.base.units import duration, size

LECTURE_BYTES = 2 * 4 * 16384**2
MS = 1e6
A100, H100 = "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"


@dataclass(frozen=True)
class VersionTime:
    """One version in one step: kernel time (median of the steps), kernels, minimum traffic."""

    name: str
    ns: float
    kernels: int
    minimum_bytes: int

    @property
    def bytes_per_s(self) -> float:
        """The operation's minimum traffic ÷ time, whatever the version really moved."""
        return 1e9 * self.minimum_bytes / self.ns


@dataclass(frozen=True)
class VersionComparison:
    """The versions in one recording, and the lecture's times of them.

    `lecture_ns` is keyed by our names of the versions. `manual_passes` is how often the manual
    version, one kernel per operator, reads or writes the whole tensor; twice would be enough.
    """

    recorded: RecordingReport
    lecture_ns: Mapping[str, float]
    manual_passes: int

    @cached_property
    def versions(self) -> dict[str, VersionTime]:
        """The versions by name, slowest first."""
        steps: dict[str, list[dict]] = {}
        minimum_bytes: dict[str, int] = {}
        for row in self.recorded.rows("kernel-share", "ranges_inclusive"):
            match = re.fullmatch(r"step_\d+/([^ /]+) (\{.*\})", row["range_path"])
            if match:
                steps.setdefault(match[1], []).append(row)
                minimum_bytes[match[1]] = json.loads(match[2])["bytes"]
        versions = [
            VersionTime(
                name, median(row["total_ns"] for row in rows), rows[0]["calls"], minimum_bytes[name]
            )
            for name, rows in steps.items()
        ]
        return {version.name: version for version in sorted(versions, key=lambda v: -v.ns)}

    @cached_property
    def peak(self) -> int:
        """Peak memory bandwidth of the recorded GPU in bytes per second."""
        return next(self.recorded.trace.devices.rows())["memory_bytes_per_s"]

    def manual_rate(self) -> float:
        """Bytes per second that the manual version really moved."""
        return self.versions["manual"].bytes_per_s * self.manual_passes / 2

    def table(self) -> str:
        heads = ["version", "kernels", "time", "bandwidth", "of peak"]
        rows = []
        for version in self.versions.values():
            lecture_ns = self.lecture_ns.get(version.name)
            lecture = (
                [duration(lecture_ns), terabytes(1e9 * LECTURE_BYTES / lecture_ns)]
                if lecture_ns
                else ["", ""]
            )
            share = f"{100 * version.bytes_per_s / self.peak:.0f} %"
            ours = [str(version.kernels), duration(version.ns), terabytes(version.bytes_per_s)]
            rows.append([f"`{version.name}`", *ours, share, *lecture])
        return table([*heads, "lecture's time", "lecture's bandwidth"], rows)

    def answer(self, more: list[str]) -> str:
        """The points common to both cases, with those of one case in the middle."""
        manual, torch = self.versions["manual"], self.versions["torch"]
        fastest = list(self.versions.values())[-1]
        return numbered(
            [
                f"The operation must move at least one read and one write of the tensor, "
                f"{size(manual.minimum_bytes)} here. At peak bandwidth ({terabytes(self.peak)}) "
                f"that takes {duration(1e9 * manual.minimum_bytes / self.peak)}. The fastest "
                f"version, `{fastest.name}`, takes {duration(fastest.ns)}.",
                f"`manual` launches {manual.kernels} kernels. Together they read or write the "
                f"whole tensor {self.manual_passes} times instead of twice, which is "
                f"{times(self.manual_passes / 2)} the traffic. They move it at "
                f"{terabytes(self.manual_rate())} and take {times(manual.ns / torch.ns)} as long "
                f"as `torch`, which moves its bytes at {terabytes(torch.bytes_per_s)}.",
                *more,
                *self.lecture_comparison(),
            ]
        )

    def lecture_comparison(self) -> list[str]:
        """Why the lecture's times differ, as far as its own numbers show."""
        lecture, manual = self.lecture_ns, self.versions["manual"]
        moved = LECTURE_BYTES * self.manual_passes / 2
        rate = 1e9 * moved / lecture["manual"]
        peaks = {name: rates_of(name).memory_bytes_per_s for name in (A100, H100)}
        fastest = min(lecture, key=lecture.__getitem__)
        minimum_ns = 1e9 * LECTURE_BYTES / peaks[H100]
        theirs, ours = (
            times(ns["manual"] / ns["torch"])
            for ns in (lecture, {name: version.ns for name, version in self.versions.items()})
        )
        return [
            f"The lecture's tensor is {LECTURE_BYTES / manual.minimum_bytes:g} times as large, so "
            f"compare bandwidth, not time. Its manual version moves {size(moved)} in "
            f"{duration(lecture['manual'])}, {terabytes(rate)}. That is more than an A100's peak "
            f"({terabytes(peaks[A100])}) and {100 * rate / peaks[H100]:.0f} % of an H100's "
            f"({terabytes(peaks[H100])}). The peak of this GPU is {terabytes(self.peak)}.",
            f"An H100 at peak bandwidth needs {duration(minimum_ns)} for the minimum traffic. The "
            f"lecture's fastest version, `{fastest}`, takes "
            f"{duration(lecture[fastest] - minimum_ns)} more. The lecture times a call and a "
            f"synchronization; we count kernel time only. How much of the difference that explains "
            f"cannot be told from these numbers. A fixed cost per call makes ratios smaller: "
            f"`manual` takes {theirs} as long as `torch` in the lecture and {ours} here.",
        ]

    def draw(self, axes: Axes) -> None:
        """Bandwidth per version, with the lecture's as diamonds."""
        versions = list(self.versions.values())[::-1]
        bars = axes.barh(
            [version.name for version in versions],
            [version.bytes_per_s / 1e12 for version in versions],
        )
        axes.bar_label(bars, [duration(version.ns) for version in versions], padding=3)
        for y, version in enumerate(versions):
            lecture_ns = self.lecture_ns.get(version.name)
            if lecture_ns:
                label = "lecture" if version.name == "manual" else None
                axes.plot(LECTURE_BYTES / lecture_ns / 1e3, y, "D", color="C1", label=label)
        axes.axvline(self.peak / 1e12, color="0.4", linestyle="--", linewidth=1)
        axes.set(xlabel="minimum traffic ÷ time (TB/s); dashed: peak bandwidth")
        axes.set_xlim(0, 1.25 * self.peak / 1e12)
        # Outside the axes: inside, its marker would look like one more of the lecture's points.
        axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1))
