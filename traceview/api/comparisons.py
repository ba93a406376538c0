"""Comparisons of recordings: what changed, and whether the change may be merged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from traceview.api.traces import load
from traceview.base.version import __version__

if TYPE_CHECKING:
    from traceview.traces.comparison.comparison import RunComparison
    from traceview.traces.comparison.gate_rules import GateReport
    from traceview.traces.comparison.history import History
    from traceview.traces.comparison.inputs import Input
    from traceview.traces.trace import Trace


def compare(
    before: Input | Sequence[Input], after: Input | Sequence[Input], *, force: bool = False
) -> RunComparison:
    """Compare recordings of two versions of a program: how much faster a step is, and why.

    Each side is a trace, the path of one, a folder of recordings, or a list of these: with several
    recordings per side a difference can be told from noise. Raises ComparisonRefusedError where the
    comparison makes no sense (another GPU, the same capture twice), unless `force`, and what `load`
    raises.
    """
    from traceview.traces.comparison.decomposition import compare_runs
    from traceview.traces.comparison.inputs import median_recording, side

    old, new = (side(runs, load, force=force) for runs in (before, after))
    compared = compare_runs([run.figures for run in old], [run.figures for run in new], force=force)
    return replace(compared, recordings=(median_recording(old), median_recording(new)))


def gate(
    baselines: Trace | str | Path | Sequence[Trace | str | Path],
    candidates: Trace | str | Path | Sequence[Trace | str | Path],
    config: str | Path,
    *,
    force: bool = False,
) -> GateReport:
    """Judge runs by the rules of a config, against the runs of a baseline.

    Both sides are what `load` takes or returns, or files of `baseline`; `config` is a gate.toml.
    The report's `outcome` is "passed", "regressed" or "undecided", its `decisions` one per rule
    and condition. Raises InputError for an invalid config, TraceFormatError for a damaged baseline,
    ComparisonRefusedError where comparing makes no sense, unless `force`, and otherwise as `load`
    does.
    """
    from traceview.traces.comparison.gate import decide
    from traceview.traces.comparison.gate_rules import read_config
    from traceview.traces.comparison.inputs import side

    rules = read_config(Path(config))
    before, after = (
        [run.figures for run in side(recordings, load, force=force)]
        for recordings in (baselines, candidates)
    )
    return decide(before, after, rules, force=force)


def history(folder: str | Path) -> History:
    """The recordings and baselines of a folder, oldest first: step, GPU use, memory, findings.

    Files that cannot be read are in `failed`. Raises InputError if there is no run at all.
    """
    from traceview.traces.comparison.history import history_of

    return history_of(Path(folder), load)


def baseline(*traces: Trace | str | Path, out: str | Path, force: bool = False) -> Path:
    """Write the figures of recordings, each one run of a program, to one small JSON file.

    `traces` are what `load` takes or returns, or baselines, whose runs are added. `gate` reads the
    file in place of the recordings. Returns its path. Raises InputError for a recording without GPU
    work, for a capture given twice, or if the file cannot be written, OutputExistsError if it
    exists and not `force`, and otherwise as `load` does.
    """
    from traceview.base.errors import InputError
    from traceview.base.outputs import check_report_output, write_pieces
    from traceview.traces.comparison.environment import check_captures
    from traceview.traces.comparison.inputs import baseline_text, is_baseline, side

    if not traces:
        raise InputError("no recordings for the baseline", "pass one or more")
    target = Path(out)
    sources = [Path(t if isinstance(t, (str, Path)) else t.path) for t in traces]
    for source in sources:
        # With `force`, the output may replace a baseline that is among the inputs.
        kept = Path() if force and is_baseline(source) else source
        check_report_output(target, force=force, source=kept, source_kind="trace")
    runs = [run.figures for run in side(list(traces), load, may_force=False)]
    check_captures(runs, may_force=False)
    write_pieces(target, [baseline_text(runs, __version__).encode()])
    return target
