"""What edits of a program would win, by replaying its recording."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from traceview.traces.edits.answer import WhatIfReport
    from traceview.traces.edits.requests import EditRequest
    from traceview.traces.trace import Trace


def what_if(
    trace: Trace | str | Path | Sequence[Trace | str | Path],
    *edits: str | EditRequest,
    ranges: str | Sequence[str] = (),
    exclude_ranges: str | Sequence[str] = (),
    strict: bool = False,
    peaks: str | Mapping[str, float] | Sequence[str] = (),
    ncu: str | Path | None = None,
    ranks: int | Sequence[int] = (),
) -> WhatIfReport:
    """Replay a recording with edits, each on top of those before it: the time per step, and why.

    Arguments:
        trace: what `load` takes or returns, or several such recordings of the ranks of a job.
        edits: as on the command line, without dashes: "kernel gemm*=0.5",
            "fuse *softmax*|*mul*=0.3", "no-sync train.py:90", "graph step", "cpu data.py:24=0",
            "copy D2H=0.5", "link 2x", "gpu H200", "no-recorder".
        ranges: globs over range names and paths; edits then touch only what was launched in these.
        exclude_ranges: globs for ranges that edits leave as they are.
        strict: infer no range for work that a thread without ranges launched.
        peaks: figures of the recorded GPU, for "gpu", as `analyze` takes them.
        ncu: counters of Nsight Compute, for "gpu", as `analyze` takes them.
        ranks: of a job, the ranks that the edits are of; all by default.

    Raises InputError for an edit of another form or one that touches nothing, and for a recording
    without GPU work; otherwise as `load` does.
    """
    from traceview.api.traces import AnalysisOptions, load, prepared
    from traceview.traces.edits.answer import replayed
    from traceview.traces.edits.requests import parse_all
    from traceview.traces.facts.steps.inferred import with_steps
    from traceview.traces.ranks.what_if import replayed_job
    from traceview.traces.trace import Trace

    requests = parse_all(edits)
    given = [trace] if isinstance(trace, (str, Path, Trace)) else [*trace]
    loaded = [load(each) if isinstance(each, (str, Path)) else each for each in given]
    options = AnalysisOptions(strict=strict, peaks=peaks, ncu=ncu)
    chosen, left_out = (
        (names,) if isinstance(names, str) else tuple(names) for names in (ranges, exclude_ranges)
    )
    ready = [with_steps(prepared(each, options)) for each in loaded]
    of_ranks = (ranks,) if isinstance(ranks, int) else tuple(ranks)
    if len(ready) == 1 and not of_ranks:
        return replayed(ready[0], requests, chosen, left_out)
    return replayed_job(ready, requests, chosen, left_out, of_ranks)
