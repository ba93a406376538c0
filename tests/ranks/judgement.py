"""What the answer for a simulated job says, beside what is true of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from tests.ranks.job_model import BEGIN_NS, GPU_FAULTS, PLANTED, Job
from tests.ranks.rank_programs import run, total_ns
from tests.ranks.simulated_export import write
from tests.ranks.simulated_figures import Recorded, figures, lossy, recordings
from tests.ranks.simulation import RankTimeline
from traceview.base.findings import Finding
from traceview.traces.ranks.answer import job_report
from traceview.traces.ranks.figures import RankFigures
from traceview.traces.ranks.job import JobReport
from traceview.traces.ranks.rank_figures import figures_of_ranks
from traceview.traces.trace.load import load

CPU_CAUSES = ("launch-late", "sync-drain")
"""The CPU is late: at once, or after a wait that let the GPU run dry."""


@dataclass(frozen=True)
class Judged:
    """A simulated job, how it was recorded, and its answer."""

    job: Job
    lines: list[RankTimeline]
    recorded: list[Recorded]
    report: JobReport

    @property
    def stragglers(self) -> list[dict[str, Any]]:
        return [dict(row) for row in self.report.result.tables["stragglers"].rows()]

    @property
    def late_rank_named(self) -> bool:
        """The rank that the answer puts first is the late one."""
        fault, rows = self.job.fault, self.stragglers
        return fault is not None and bool(rows) and rows[0]["rank"] in fault.ranks

    @property
    def cause_named(self) -> bool:
        """Its cause is the planted one: the class of kernels, or the cause of the idle time."""
        fault = self.job.fault
        if fault is None or not self.late_rank_named:
            return False
        row = self.stragglers[0]
        if fault.name in GPU_FAULTS:
            right = row["cause"] == "gpu-work"
            return right and fault.kernel_class in ("", row["kernel_class"])
        planted = PLANTED[fault.name].cause
        return row["cause"] in (CPU_CAUSES if planted == "launch-late" else (planted,))

    @property
    def place_named(self) -> bool:
        """The line of a fault on the CPU is named; a GPU that works longer has none."""
        fault = self.job.fault
        if fault is None or fault.name in GPU_FAULTS:
            return self.late_rank_named
        pause = PLANTED[fault.name]
        text = f"{pause.file.rpartition('/')[2]}:{pause.line}"
        return self.late_rank_named and self.stragglers[0]["place"] == text

    @property
    def finding(self) -> Finding | None:
        """The finding on the late rank."""
        fault = self.job.fault
        for each in self.report.result.findings:
            about = each.subject.name if each.subject else ""
            late = each.evidence is not None and each.evidence.table == "stragglers"
            if fault and late and about in [f"rank {rank}" for rank in fault.ranks]:
                return each
        return None


def judge(
    job: Job,
    *,
    per_host: int = 8,
    clocks: bool = True,
    losses: bool = False,
    graphs: bool = False,
) -> Judged:
    """Run a job, record its ranks and ask who is late.

    With `graphs` the ranks are written as recordings, too, and read for what is replayed.
    """
    lines = run(job)
    recorded = recordings(job.seed, job.ranks, per_host=per_host, clocks=clocks)
    if losses:
        recorded = lossy(recorded, lines, job.seed)
    ranks = [figures(line, each) for line, each in zip(lines, recorded, strict=True)]
    if graphs:
        ranks = [*map(_with_graph, ranks, lines, recorded)]
    return Judged(job, lines, recorded, job_report(ranks))


def _with_graph(rank: RankFigures, line: RankTimeline, recorded: Recorded) -> RankFigures:
    with TemporaryDirectory() as folder:
        path = write(line, recorded, Path(folder) / f"rank{line.program.rank}.sqlite")
        (read,) = figures_of_ranks(load(path))
    return replace(rank, graph=read.graph)


def clock_errors(judged: Judged) -> list[tuple[int, int]]:
    """By rank: how far its estimated offset is from the truth, and the error it states.

    The first is the largest at the begin, the middle and the end of the job; ranks that nothing
    connects to the reference are left out.
    """
    clocks, ends = judged.report.clocks, total_ns(judged.lines)
    times = np.array([BEGIN_NS, (BEGIN_NS + ends) // 2, ends], np.int64)
    base = judged.recorded[clocks.reference].clock(times)
    result = []
    for rank, each in enumerate(judged.recorded):
        same = clocks.component[rank] == clocks.component[clocks.reference]
        if rank == clocks.reference or not same:
            continue
        aligned = clocks.aligned_ns(rank, each.clock(times))
        result.append((int(np.abs(aligned - base).max()), int(clocks.error_ns[rank])))
    return result
