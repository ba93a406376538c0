"""foreach=True: a few kernels update all parameters, where the optimizer updates them in a loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from traceview.trials.remedies.base import Keywords, ProgramRemedy, RemedyRun, change_optimizers

_CLASSES = (
    *("Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop"),
    *("Rprop", "SGD"),
)


def _install(torch: Any, run: RemedyRun) -> None:
    def choose(given: Mapping[str, Any]) -> Keywords | None:
        if given.get("foreach") or given.get("fused") or given.get("differentiable"):
            return None
        # On a GPU torch chooses it itself.
        if given.get("foreach") is None and torch.cuda.is_available():
            return None
        return {"foreach": True}

    change_optimizers(torch, run, _CLASSES, choose)


REMEDY = ProgramRemedy(
    name="foreach",
    does="Update all parameters together",
    answers=r"foreach=True",
    effect="the optimizer's kernels merge, with their launches",
    install=_install,
    may_change="roundings",
    is_switchable=True,
    instead_of=("fused",),
)
