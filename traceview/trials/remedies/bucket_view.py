"""gradient_as_bucket_view=True: gradients live in the buckets that are reduced, without copies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from traceview.trials.remedies.base import Keywords, ProgramRemedy, RemedyRun, add_keywords


def _install(torch: Any, run: RemedyRun) -> None:
    def choose(given: Mapping[str, Any]) -> Keywords | None:
        return None if given["gradient_as_bucket_view"] else {"gradient_as_bucket_view": True}

    add_keywords(torch.nn.parallel.DistributedDataParallel, run, choose)


REMEDY = ProgramRemedy(
    name="bucket_view",
    does="Keep gradients in DDP's buckets",
    answers=r"gradient_as_bucket_view=True",
    effect="copies of gradients within the GPU go",
    install=_install,
    may_change="nothing",
)
