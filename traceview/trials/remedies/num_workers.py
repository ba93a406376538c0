"""DataLoader(num_workers=…): batches are prepared by other processes while the GPU works."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from traceview.trials.remedies.base import Keywords, ProgramRemedy, RemedyRun, add_keywords

MOST = 8
"""Eight workers and more wait for memory and for each other on most machines."""


def workers() -> int:
    """As many workers as this process has cores, at most MOST."""
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(MOST)
    return min(len(cores), MOST)


def _install(torch: Any, run: RemedyRun) -> None:
    def choose(given: Mapping[str, Any]) -> Keywords | None:
        if isinstance(given["dataset"], torch.utils.data.IterableDataset):
            run.reject("each worker would read all of an IterableDataset")
        if given["num_workers"] >= workers():
            return None
        return {"num_workers": workers(), "persistent_workers": True}

    add_keywords(torch.utils.data.DataLoader, run, choose)


REMEDY = ProgramRemedy(
    name="num_workers",
    does="Load batches in worker processes",
    answers=r"num_workers",
    effect="the wait for the next batch goes, or becomes that for a worker",
    install=_install,
    may_change="random numbers of the dataset",
    reseeds=True,
    # Else what was fetched ahead before the first step is measured: two batches per worker.
    settles=2 * MOST + 8,
)
