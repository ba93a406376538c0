"""The head of every output of a job: its ranks, hosts and GPUs, and missing recordings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import PurePath

import numpy as np

from traceview import units
from traceview.failures import FailureWarning
from traceview.ranks.job import JobReport
from traceview.ranks.membership import missing_ranks, world_size
from traceview.ranks.process_groups import ranks_text
from traceview.tables import NULL

_MOST_NAMED = 4
_NOT_ONE_JOB = (
    "No collective connects these recordings, so no rank waits for another. Read each alone "
    "(traceview report FILE), or compare two runs (traceview compare BEFORE AFTER)."
)


def job_title(job: JobReport) -> str:
    """The name of the recordings' folder, or of the only file."""
    paths = sorted({rank.path for rank in job.ranks} | {each.path for each in job.failed})
    if len(paths) == 1:
        return PurePath(paths[0]).name
    folders = {PurePath(path).parent.name for path in paths}
    return folders.pop() if len(folders) == 1 and "" not in folders else f"{len(paths)} recordings"


def job_facts(job: JobReport) -> list[tuple[str, str]]:
    """The known facts about a job, as pairs of name and value."""
    hosts = {rank.name.host for rank in job.ranks if rank.name.host}
    gpus = Counter(rank.name.gpu for rank in job.ranks if rank.name.gpu)
    facts = [
        ("ranks", counted_ranks(job)),
        ("hosts", ", ".join(sorted(hosts)) if len(hosts) <= _MOST_NAMED else str(len(hosts))),
        ("GPUs", ", ".join(f"{count} × {name}" for name, count in gpus.most_common(_MOST_NAMED))),
        ("steps", units.count(job.verdict.steps) if job.verdict.steps else ""),
        ("recorded by", ", ".join(sorted({rank.recorder for rank in job.ranks}))),
        ("clocks", clocks_text(job)),
    ]
    return [(name, value) for name, value in facts if value]


def nothing_found(job: JobReport) -> str:
    """The sentence to show if there are no findings."""
    if len(job.ranks) == 1:
        return "One rank alone waits for no other. Read its own report: traceview report FILE"
    if not job.matched:
        return _NOT_ONE_JOB
    return "Nothing was found that would save time."


def single_values(job: JobReport) -> frozenset[str]:
    """Names of the columns that have one value in the whole job."""
    return frozenset({"host"} if len({rank.name.host for rank in job.ranks}) < 2 else ())


def counted_ranks(job: JobReport) -> str:
    """The number of ranks, such as `8`, or `7 of 8`."""
    size = world_size(job.ranks)
    some = units.count(len(job.ranks))
    return some if len(job.ranks) == size else f"{some} of {units.count(size)}"


def clocks_text(job: JobReport) -> str:
    """A sentence on how well times of different ranks compare; empty for a single rank."""
    error = job.clocks.error_ns[job.clocks.error_ns != NULL]
    if len(job.ranks) < 2:
        return ""
    if not len(error):
        return "not aligned"
    if not error.any() and len(error) == len(job.ranks):
        return "the same for all"
    apart = len(np.unique(job.clocks.component)) > 1
    return f"aligned within {units.duration(int(error.max()))}{', in parts' if apart else ''}"


def warnings(job: JobReport) -> list[str]:
    """AnswerParts that failed, recordings that could not be read, and ranks without one."""
    failed = [f"{PurePath(each.path).name}: {each.reason}" for each in job.failed]
    texts = [_listed(f"{units.counted(len(failed), 'recording')} left out", failed)]
    return [text for text in (*_failures(job), *texts, *_absent(job)) if text]


def _failures(job: JobReport) -> list[str]:
    """The warnings that parts of the answer, or of the own reports of ranks, failed."""
    ranks: dict[str, list[int]] = {}
    for each in job.ranks:
        for text in each.warnings:
            if isinstance(text, FailureWarning):
                ranks.setdefault(text, []).append(each.name.rank)
    own = [f"rank {ranks_text(numbers)}: {text}" for text, numbers in ranks.items()]
    return [*job.warnings, *own]


def remedies(job: JobReport) -> list[tuple[str, str, str]]:
    """File, reason and remedy of each recording that could not be read."""
    return [(each.path, each.reason, each.remedy) for each in job.failed]


def _absent(job: JobReport) -> list[str]:
    """A warning that names the ranks without a recording, if rank numbers are known."""
    absent = missing_ranks(job.ranks)
    if not absent:
        return []
    noun = "rank" if len(absent) == 1 else "ranks"
    size = units.count(world_size(job.ranks))
    return [f"no recording of {noun} {ranks_text(absent)}, of {size}"]


def _listed(lead: str, texts: Sequence[str]) -> str:
    if not texts:
        return ""
    more = len(texts) - _MOST_NAMED
    rest = f" and {units.count(more)} more" if more > 0 else ""
    return f"{lead}: {'; '.join(texts[:_MOST_NAMED])}{rest}"
