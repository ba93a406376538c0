"""Remedies of how batches get to the GPU."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from traceview.trials.remedies import base

# DataLoader(num_workers=…): batches are prepared by other processes while the GPU works.

MOST_WORKERS = 8
"""Eight workers and more wait for memory and for each other on most machines."""


def workers() -> int:
    """As many workers as this process has cores, at most MOST_WORKERS."""
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(MOST_WORKERS)
    return min(len(cores), MOST_WORKERS)


def _num_workers(torch: Any, run: base.RemedyRun) -> None:
    def choose(given: Mapping[str, Any]) -> base.Keywords | None:
        if isinstance(given["dataset"], torch.utils.data.IterableDataset):
            run.reject("each worker would read all of an IterableDataset")
        if given["num_workers"] >= workers():
            return None
        return {"num_workers": workers(), "persistent_workers": True}

    base.add_keywords(torch.utils.data.DataLoader, run, choose)


NUM_WORKERS = base.ProgramRemedy(
    name="num_workers",
    does="Load batches in worker processes",
    answers=r"num_workers",
    effect="no wait for the next batch, or only for a worker",
    install=_num_workers,
    may_change="random numbers of the dataset",
    reseeds=True,
    # Else what was fetched ahead before the first step is measured: two batches per worker.
    settles=2 * MOST_WORKERS + 8,
)

# DataLoader(pin_memory=True): the GPU copies batches itself, without a staging copy.


def _pin_memory(torch: Any, run: base.RemedyRun) -> None:
    base.need_gpu(torch, run, "there is no GPU to copy to")

    def choose(given: Mapping[str, Any]) -> base.Keywords | None:
        return None if given["pin_memory"] else {"pin_memory": True}

    base.add_keywords(torch.utils.data.DataLoader, run, choose)


PIN_MEMORY = base.ProgramRemedy(
    name="pin_memory",
    does="Pin the batches of the DataLoader",
    answers=r"pin_memory=True|Pin what is uploaded",
    effect="uploads from pageable memory become faster",
    install=_pin_memory,
)

# Tensor.to(device, non_blocking=True) for pinned tensors: the CPU goes on meanwhile.


def _non_blocking(torch: Any, run: base.RemedyRun) -> None:
    base.need_gpu(torch, run, "there is no GPU to copy to")
    cuda = torch.device("cuda").type

    def to_gpu(name: str) -> Any:
        def make(original: Any) -> Any:
            def copy(self: Any, *args: Any, **kwargs: Any) -> Any:
                # Only uploads: a result that the CPU reads must have arrived.
                if torch.compiler.is_compiling() or self.device.type == cuda:
                    return original(self, *args, **kwargs)
                to = [*args, kwargs.get("device")] if name == "to" else [cuda]
                goes = any(cuda in str(each) for each in to if isinstance(each, _devices))
                if not goes or "non_blocking" in kwargs or len(args) > 1 or not self.is_pinned():
                    return original(self, *args, **kwargs)
                run.applied(name, {"non_blocking": True})
                return original(self, *args, **kwargs, non_blocking=True)

            return copy

        return make

    _devices = (str, torch.device)
    for name in ("to", "cuda"):
        base.replace_function(torch.Tensor, name, to_gpu(name))


NON_BLOCKING = base.ProgramRemedy(
    name="non_blocking",
    does="Copy pinned batches with non_blocking=True",
    answers=r"non_blocking=True",
    effect="the CPU no longer waits for uploads",
    install=_non_blocking,
    needs=("pin_memory",),
    may_change="batches, if a pinned buffer is filled again at once",
)
