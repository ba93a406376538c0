"""What the cases of the gallery share: their recordings, the answers in them, and their pages."""

from __future__ import annotations

import importlib.util
import io
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import traceview
from traceview.render.report.html import render_html
from traceview.render.report.json import render_json

REPORTS = Path(__file__).resolve().parent
REPOSITORY = REPORTS.parent
WIDTH = 97
UNIT = re.compile(r"(?<=\d) (?=%|[nµm]?s\b|[kMGT]?B\b|[GT]FLOP)")
DATA = "tests/data"
MARKED = re.compile(r"<!-- (?P<name>\w+) -->\n.*?<!-- end -->", re.DOTALL)
WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


@dataclass(frozen=True)
class Recording:
    """A kept recording, by its path in the repository, and the run that makes it."""

    path: str
    script: str
    arguments: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    @property
    def file(self) -> Path:
        return REPOSITORY / self.path

    @property
    def name(self) -> str:
        return self.file.name.removesuffix(".sqlite.xz")

    def command(self, out: str) -> list[str]:
        """The words after `traceview record`."""
        return [*self.options, "-o", out, self.script, *self.arguments]

    def record(self) -> None:
        """Record it anew, and keep what the answers need. Needs a GPU and nsys."""
        with TemporaryDirectory() as folder:
            whole = str(Path(folder, f"{self.name}.sqlite"))
            for words in (
                ["-m", "traceview", "record", *self.command(whole)],
                ["tests/data/shrink.py", whole, str(self.file)],
            ):
                subprocess.run([sys.executable, *words], check=True, cwd=REPOSITORY)


def of_workload(name: str) -> Recording:
    """That which record_all.py makes of workloads/NAME.py, and the tests read."""
    from record_all import RECORDINGS

    one = next(each for each in RECORDINGS if each.name == name)
    options = ("--backtrace", "none", *one.options)
    return Recording(f"{DATA}/workloads/{name}.sqlite.xz", one.script, one.arguments, options)


class Said:
    """What one recording says."""

    ranges: tuple[str, ...] = ()
    """Globs: the report speaks of these alone."""

    def __init__(self, recording: Recording, ranges: tuple[str, ...] = ()) -> None:
        self.ranges = ranges
        # The path goes into the report: that in the repository, wherever the repository lies.
        self.trace = replace(traceview.load(recording.file), path=recording.path)

    @cached_property
    def report(self) -> Any:
        return traceview.analyze(self.trace, ranges=self.ranges)

    def rows(self, analysis: str, table: str) -> list[dict[str, Any]]:
        return list(self.report.outcomes[analysis].tables[table].rows())

    def row(self, analysis: str, table: str, **wanted: Any) -> dict[str, Any]:
        """The first row with these values."""
        return next(row for row in self.rows(analysis, table) if wanted.items() <= row.items())

    def finding(self, analysis: str, about: str = "") -> str:
        """The worst finding of an analysis that names this."""
        found = [
            ranked.finding.message for ranked in self.report.findings if ranked.analysis == analysis
        ]
        return next(message for message in found if about in message)

    def kernels_within(self, glob: str) -> list[dict[str, Any]]:
        """What `kernel-share` says of the kernels launched in ranges that fit the glob."""
        inside = traceview.analyze(self.trace, "kernel-share", ranges=glob)
        return list(inside.outcomes["kernel-share"].tables["kernels"].rows())

    def in_ranges(self, path: str) -> list[dict[str, Any]]:
        """What ran in each range whose path fits, a regular expression; most time first.

        Work that a range declares in its name is no part of its path.
        """
        rows = self.rows("kernel-share", "ranges_inclusive")
        bare = [(re.sub(r" \{[^{}]*\}", "", row["range_path"]), row) for row in rows]
        return [row for text, row in bare if re.fullmatch(path, text)]

    def range_ns(self, path: str) -> float:
        """Kernel time in a range of that path: the median over its instances."""
        return median(row["total_ns"] for row in self.in_ranges(path))

    def run_in_words(self) -> str:
        """What it was recorded on, and when."""
        run = self.trace.run
        driver, cuda = run["driver"].partition(".")[0], ".".join(run["cuda"].split(".")[:2])
        triton = f", Triton {run['triton']}" if "triton" in run else ""
        return (
            f"Recorded on {self._gpus()}, driver {driver}, CUDA {cuda}, torch {run['torch']}"
            f"{triton}, Python {run['python']}, nsys {self.trace.recorder_version}, "
            f"{run['started_utc'][:10]}."
        )

    def _gpus(self) -> str:
        """The GPUs that ran kernels, and how many more the host had."""
        names = self.trace.run["gpu"].split(", ")
        used = len(set(self.trace.kernels["device"].tolist()))
        of_host = "" if used == len(names) else f" (the host has {WORDS[len(names)]})"
        return f"{WORDS[used]} {names[0]}{of_host}"


@dataclass(frozen=True)
class Case:
    """One page: its recordings, and the blocks and the picture that they make.

    `blocks` gives the Markdown that stands between the marks of the page, by their names; those
    of `commands` and `machine` are made of the recordings. Of the recordings in `reported`, or all,
    the reports are kept; they speak of `ranges` alone, if there are any.
    """

    recordings: Mapping[str, Recording]
    blocks: Callable[[Mapping[str, Said]], Mapping[str, str]]
    draw: Callable[[Mapping[str, Said], Axes], None]
    reported: tuple[str, ...] = ()
    ranges: tuple[str, ...] = ()
    size: tuple[float, float] = (7, 2.8)

    @property
    def missing(self) -> list[str]:
        return [one.path for one in self.recordings.values() if not one.file.exists()]

    def said(self) -> dict[str, Said]:
        return {key: Said(recording, self.ranges) for key, recording in self.recordings.items()}

    def filled(self, page: str, said: Mapping[str, Said]) -> str:
        """The page with all that stands between its marks made anew."""
        last = list(said.values())[-1]
        blocks = {
            "commands": self._commands(said),
            "machine": last.run_in_words(),
            **self.blocks(said),
        }
        told = set(re.findall(r"<!-- (\w+) -->\n", page)) - {"end"}
        if told != set(blocks):
            raise ValueError(f"the page has marks {sorted(told)}, the case {sorted(blocks)}")
        return MARKED.sub(
            lambda found: f"<!-- {found['name']} -->\n{blocks[found['name']]}\n<!-- end -->", page
        )

    def _commands(self, said: Mapping[str, Said]) -> str:
        lines = []
        for key, recording in self.recordings.items():
            words = recording.command(f"{key}.sqlite")[: -1 - len(recording.arguments)]
            # What was run is what the recording says was run.
            lines.append(
                f"traceview record {' '.join(words)} {said[key].trace.run['command_line']}"
            )
        shown = self.reported or tuple(self.recordings)
        only = "".join(f" --range '{glob}'" for glob in self.ranges)
        lines += [f"traceview report {key}.sqlite{only} --html --json" for key in shown]
        return "\n".join(f"    {line}" for line in lines)

    def reports(self, said: Mapping[str, Said]) -> Iterator[tuple[str, str]]:
        """Name and text of the whole reports."""
        for key in self.reported or tuple(self.recordings):
            yield f"{key}.json", render_json(said[key].report, traceview.__version__)
            yield f"{key}.html", render_html(said[key].report, traceview.__version__)

    def picture(self, said: Mapping[str, Said]) -> str:
        figure = Figure(figsize=self.size, layout="constrained")
        axes = figure.add_subplot()
        axes.spines[["top", "right"]].set_visible(False)
        self.draw(said, axes)
        text = io.StringIO()
        with mpl.rc_context({"svg.hashsalt": "traceview", "svg.fonttype": "none"}):
            figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
        return text.getvalue()


def cases() -> dict[str, Case]:
    """All cases by their folders' names."""
    folders = sorted(path.parent for path in REPORTS.glob("*/case.py"))
    return {folder.name: module_of(folder).CASE for folder in folders}


def module_of(folder: Path) -> ModuleType:
    """The program of one case."""
    name = f"case_{folder.name.replace('-', '_')}"
    spec = importlib.util.spec_from_file_location(name, folder / "case.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def table(heads: list[str], rows: list[list[str]], left: int = 1) -> str:
    """A Markdown table, whose columns after the first `left` are numbers."""
    rule = ["---" if place < left else "---:" for place in range(len(heads))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, rule, *rows))


def numbered(points: list[str]) -> str:
    """A numbered list, in lines as long as those of the rest of a page."""
    return "\n".join(_wrapped(f"{place}. {point}") for place, point in enumerate(points, 1))


def _wrapped(point: str) -> str:
    """In lines that keep a number and its unit together."""
    whole = UNIT.sub("\u00a0", point)
    lines = textwrap.wrap(whole, WIDTH, break_long_words=False, break_on_hyphens=False)
    return "\n   ".join(lines).replace("\u00a0", " ")


def times(ratio: float) -> str:
    return f"{ratio:.3g}×"


def terabytes(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e12:.2f} TB/s"
