"""Output of `traceview bench`: the table of versions, its JSON, and the profile of one version."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from traceview.cli.output import Outputs, print_text, put_json, write_file

if TYPE_CHECKING:
    from traceview.bench import BenchReport, Description, Profile, VersionResult
    from traceview.bench.history.difference import BenchDifference

    Profiled = tuple[VersionResult, Profile]

_VERDICTS = {"wrong": "is wrong", "failed": "failed"}


def put_report(
    report: BenchReport,
    description: Description | None,
    profiled: Profiled | None,
    difference: BenchDifference | None,
    wanted: Outputs,
) -> None:
    from traceview import __version__
    from traceview.render.bench.difference_text import render_difference
    from traceview.render.bench.json import render_bench_json
    from traceview.render.bench.profile_text import render_profile
    from traceview.render.bench.text import render_bench

    def drawn(width: int, color: bool) -> str:
        text = render_bench(report, description=description, width=width, color=color)
        if difference is not None:
            text += "\n" + render_difference(difference, width=width, color=color)
        if profiled is None:
            return text
        row, profile = profiled
        title = _title(report, row)
        return f"{text}\n{render_profile(profile, title, width=width, color=color)}"

    if not wanted.json_to_stdout:
        print_text(drawn)
    if wanted.json or wanted.json_to_stdout:
        text = render_bench_json(report, __version__, description, profiled, difference)
        put_json(text, wanted.json)
    for row in report.bad:
        place = f"size {row.size:,}, {row.dtype}"
        place += "" if row.value is None else f", {report.over} {row.value:,}"
        line = f"{row.version} {_VERDICTS[row.status]} at {place}: {row.why}"
        click.echo(f"traceview: {line[:600]}", err=True)


def put_profile(
    report: BenchReport, profiled: Profiled | None, flame: str | None, speedscope: str | None
) -> None:
    from traceview import TraceviewError, __version__
    from traceview.render.bench.flame_graph import render_flame
    from traceview.render.bench.speedscope import render_speedscope

    if profiled is None:
        raise TraceviewError("nothing to profile: no version was timed", "see the reasons above")
    row, profile = profiled
    title = _title(report, row)
    if flame:
        write_file(Path(flame), render_flame(profile, title))
    if speedscope:
        write_file(Path(speedscope), render_speedscope(profile, title, __version__))


def _title(report: BenchReport, row: VersionResult) -> str:
    return f"{report.operation.name} {row.version}, size {row.size:,}, {row.dtype}"
