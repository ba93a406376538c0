"""DataLoader(pin_memory=True): the GPU copies batches itself, without a staging copy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from traceview.trials.remedies.base import (
    Keywords,
    ProgramRemedy,
    RemedyRun,
    add_keywords,
    need_gpu,
)


def _install(torch: Any, run: RemedyRun) -> None:
    need_gpu(torch, run, "there is no GPU to copy to")

    def choose(given: Mapping[str, Any]) -> Keywords | None:
        return None if given["pin_memory"] else {"pin_memory": True}

    add_keywords(torch.utils.data.DataLoader, run, choose)


REMEDY = ProgramRemedy(
    name="pin_memory",
    does="Pin the batches of the DataLoader",
    answers=r"pin_memory=True|Pin what is uploaded",
    effect="uploads from pageable memory become faster",
    install=_install,
)
