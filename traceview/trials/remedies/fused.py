"""fused=True: one kernel updates all parameters of an optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from traceview.trials.remedies.base import Keywords, ProgramRemedy, RemedyRun, change_optimizers

_CLASSES = ("Adam", "AdamW", "SGD", "Adagrad")


def _install(torch: Any, run: RemedyRun) -> None:
    def choose(given: Mapping[str, Any]) -> Keywords | None:
        if given.get("fused") or given.get("differentiable"):
            return None
        return {"fused": True, **({"foreach": None} if given.get("foreach") else {})}

    change_optimizers(torch, run, _CLASSES, choose)


REMEDY = ProgramRemedy(
    name="fused",
    does="Use the fused optimizer",
    answers=r"fused=True",
    effect="the optimizer's kernels become one per parameter group",
    install=_install,
    may_change="roundings",
    is_switchable=True,
)
