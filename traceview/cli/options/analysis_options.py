"""Options that decide what a report analyzes, as `traceview.analyze` takes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from traceview.records import record


@record
class AnalysisOptions:
    """What to analyze of a recording: analyses, ranges, and input from elsewhere."""

    only: tuple[str, ...] = ()
    ranges: tuple[str, ...] = ()
    exclude_ranges: tuple[str, ...] = ()
    strict: bool = False
    peaks: tuple[str, ...] = ()
    ncu: Path | None = None
    cubins: tuple[Path, ...] = ()

    @property
    def of_one_recording(self) -> Mapping[str, object]:
        """The options that only the report of one recording has, with their values."""
        return {
            "--range": self.ranges,
            "--exclude-range": self.exclude_ranges,
            "--strict": self.strict,
            "--peak": self.peaks,
            "--ncu": self.ncu,
            "--cubin": self.cubins,
        }
