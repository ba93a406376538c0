"""A case of the gallery: its recordings, its page, its picture and its reports."""

from __future__ import annotations

import importlib
import io
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import traceview
from gallery.recording import REPOSITORY, Recording
from traceview.render.json import render_json
from traceview.render.report.html import render_html

REPORTS = REPOSITORY / "reports"
_MARKED = re.compile(r"<!-- (?P<name>\w+) -->\n.*?<!-- end -->", re.DOTALL)
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


class RecordingReport:
    """The report of one recording, limited to `ranges` (globs) if there are any."""

    ranges: tuple[str, ...] = ()

    def __init__(self, recording: Recording, ranges: tuple[str, ...] = ()) -> None:
        self.ranges = ranges
        # The report shows the path: that in the repository, wherever the repository is.
        self.trace = replace(traceview.load(recording.file), path=recording.path)

    @cached_property
    def report(self) -> Any:
        return traceview.analyze(self.trace, ranges=self.ranges)

    def rows(self, analysis: str, table: str) -> list[dict[str, Any]]:
        """The rows of a result table."""
        return list(self.report.outcomes[analysis].tables[table].rows())

    def row(self, analysis: str, table: str, **cells: Any) -> dict[str, Any]:
        """The first row of a result table with these cells."""
        return next(row for row in self.rows(analysis, table) if cells.items() <= row.items())

    def finding(self, analysis: str, kernel: str, **values: Any) -> str:
        """The message of the worst finding about a kernel that has these evidence values."""
        findings = [f.finding for f in self.report.findings if f.analysis == analysis]
        return next(
            finding.message
            for finding in findings
            if kernel in f"{finding.subject.name} {finding.message}"
            and values.items() <= finding.evidence.values.items()
        )

    def kernels_within(self, glob: str) -> list[dict[str, Any]]:
        """`kernel-share` of the kernels launched within the ranges that match a glob."""
        inside = traceview.analyze(self.trace, "kernel-share", ranges=glob)
        return list(inside.outcomes["kernel-share"].tables["kernels"].rows())

    def range_rows(self, pattern: str) -> list[dict[str, Any]]:
        """Kernel time per range whose whole path matches a regular expression, longest first.

        Work that a range declares in its name is not part of its path here.
        """
        rows = self.rows("kernel-share", "ranges_inclusive")
        paths = [(re.sub(r" \{[^{}]*\}", "", row["range_path"]), row) for row in rows]
        return [row for path, row in paths if re.fullmatch(pattern, path)]

    def range_ns(self, pattern: str) -> float:
        """Kernel time in a range whose path matches: the median of its instances."""
        return median(row["total_ns"] for row in self.range_rows(pattern))

    def machine(self) -> str:
        """The machine, the versions and the date of the recording, in a sentence."""
        run = self.trace.run
        driver, cuda = run["driver"].partition(".")[0], ".".join(run["cuda"].split(".")[:2])
        triton = f", Triton {run['triton']}" if "triton" in run else ""
        return (
            f"Recorded on {self._gpus()}, driver {driver}, CUDA {cuda}, torch {run['torch']}"
            f"{triton}, Python {run['python']}, nsys {self.trace.recorder_version}, "
            f"{run['started_utc'][:10]}."
        )

    def _gpus(self) -> str:
        """The GPUs that ran kernels, and how many the host had."""
        names = self.trace.run["gpu"].split(", ")
        used = len(set(self.trace.kernels["device"].tolist()))
        of_host = "" if used == len(names) else f" (the host has {_NUMBERS[len(names)]})"
        return f"{_NUMBERS[used]} {names[0]}{of_host}"


@dataclass(frozen=True)
class Case:
    """One page of the gallery.

    `blocks` returns the Markdown between each pair of marks (`<!-- NAME -->`, `<!-- end -->`) of
    the page by name, except for `commands` and `machine`, which every page has. `reported` names
    the recordings whose reports are built, by default all; `ranges` limits those reports.
    """

    recordings: Mapping[str, Recording]
    blocks: Callable[[Mapping[str, RecordingReport]], Mapping[str, str]]
    draw: Callable[[Mapping[str, RecordingReport], Axes], None]
    reported: tuple[str, ...] = ()
    ranges: tuple[str, ...] = ()
    size: tuple[float, float] = (7, 2.8)

    @property
    def missing(self) -> list[str]:
        """The recordings that are not in the repository."""
        return [one.path for one in self.recordings.values() if not one.file.exists()]

    def analyze(self) -> dict[str, RecordingReport]:
        """The report of each recording, by its name in `recordings`."""
        return {
            key: RecordingReport(recording, self.ranges)
            for key, recording in self.recordings.items()
        }

    def fill(self, page: str, reports: Mapping[str, RecordingReport]) -> str:
        """The page with new text between its marks.

        Raises ValueError if the marks are not those of the case.
        """
        blocks = {
            "commands": self._commands(reports),
            "machine": list(reports.values())[-1].machine(),
            **self.blocks(reports),
        }
        marks = set(re.findall(r"<!-- (\w+) -->\n", page)) - {"end"}
        if marks != set(blocks):
            raise ValueError(f"the page has marks {sorted(marks)}, the case {sorted(blocks)}")
        return _MARKED.sub(
            lambda mark: f"<!-- {mark['name']} -->\n{blocks[mark['name']]}\n<!-- end -->", page
        )

    def _commands(self, reports: Mapping[str, RecordingReport]) -> str:
        lines = []
        for key, recording in self.recordings.items():
            options = " ".join(recording.command(f"{key}.sqlite")[: -1 - len(recording.arguments)])
            # The script and its arguments as the recording itself holds them.
            lines.append(f"traceview record {options} {reports[key].trace.run['command_line']}")
        only = "".join(f" --range '{glob}'" for glob in self.ranges)
        lines += [
            f"traceview report {key}.sqlite{only} --html --json"
            for key in self.reported or tuple(self.recordings)
        ]
        return "\n".join(f"    {line}" for line in lines)

    def files(self, reports: Mapping[str, RecordingReport]) -> Iterator[tuple[str, str]]:
        """Name and text of each HTML and JSON report."""
        for key in self.reported or tuple(self.recordings):
            yield f"{key}.json", render_json(reports[key].report, traceview.__version__)
            yield f"{key}.html", render_html(reports[key].report, traceview.__version__)

    def picture(self, reports: Mapping[str, RecordingReport]) -> str:
        """The picture at the head of the page, as SVG."""
        figure = Figure(figsize=self.size, layout="constrained")
        axes = figure.add_subplot()
        axes.spines[["top", "right"]].set_visible(False)
        self.draw(reports, axes)
        text = io.StringIO()
        with mpl.rc_context({"svg.hashsalt": "traceview", "svg.fonttype": "none"}):
            figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
        return text.getvalue()


def all_cases() -> dict[str, Case]:
    """All cases, by the names of their folders in reports/."""
    modules = sorted(path.stem for path in Path(__file__).with_name("cases").glob("[a-z]*.py"))
    return {
        name.replace("_", "-"): importlib.import_module(f"gallery.cases.{name}").CASE
        for name in modules
    }
