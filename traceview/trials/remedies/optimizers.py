"""Remedies of optimizers and gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from traceview.trials.remedies import base

# fused=True: one kernel updates all parameters of an optimizer.

_FUSED_CLASSES = ("Adam", "AdamW", "SGD", "Adagrad")


def _fused(torch: Any, run: base.RemedyRun) -> None:
    def choose(given: Mapping[str, Any]) -> base.Keywords | None:
        if given.get("fused") or given.get("differentiable"):
            return None
        return {"fused": True, **({"foreach": None} if given.get("foreach") else {})}

    base.change_optimizers(torch, run, _FUSED_CLASSES, choose)


FUSED = base.ProgramRemedy(
    name="fused",
    does="Use the fused optimizer",
    answers=r"fused=True",
    effect="the optimizer's kernels become one per parameter group",
    install=_fused,
    may_change="roundings",
    is_switchable=True,
)

# foreach=True: a few kernels update all parameters, where the optimizer updates them in a loop.

_FOREACH_CLASSES = (
    *("Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop"),
    *("Rprop", "SGD"),
)


def _foreach(torch: Any, run: base.RemedyRun) -> None:
    def choose(given: Mapping[str, Any]) -> base.Keywords | None:
        if given.get("foreach") or given.get("fused") or given.get("differentiable"):
            return None
        # On a GPU torch chooses it itself.
        if given.get("foreach") is None and torch.cuda.is_available():
            return None
        return {"foreach": True}

    base.change_optimizers(torch, run, _FOREACH_CLASSES, choose)


FOREACH = base.ProgramRemedy(
    name="foreach",
    does="Update all parameters together",
    answers=r"foreach=True",
    effect="the optimizer's kernels merge, with their launches",
    install=_foreach,
    may_change="roundings",
    is_switchable=True,
    instead_of=("fused",),
)

# zero_grad(set_to_none=True): gradients are dropped, not filled with zeros and added to.


def _zero_grad(torch: Any, run: base.RemedyRun) -> None:
    def make(original: Any) -> Any:
        def zero_grad(self: Any, *args: Any, **kwargs: Any) -> Any:
            fills = not (args[0] if args else kwargs.get("set_to_none", True))
            if not (run.on and fills):
                return original(self, *args, **kwargs)
            if args:  # A keyword beside it would be given twice.
                run.applied()
            else:
                run.applied("zero_grad", {"set_to_none": True})
            return original(self, set_to_none=True)

        return zero_grad

    for holder in (torch.optim.Optimizer, torch.nn.Module):
        base.replace_function(holder, "zero_grad", make)


ZERO_GRAD = base.ProgramRemedy(
    name="zero_grad",
    does="Drop gradients instead of zeroing them",
    answers=r"set_to_none",
    effect="gradients are neither zeroed nor added to",
    install=_zero_grad,
    may_change="decay of parameters without a gradient",
    is_switchable=True,
)

# gradient_as_bucket_view=True: gradients live in the buckets that are reduced, without copies.


def _bucket_view(torch: Any, run: base.RemedyRun) -> None:
    def choose(given: Mapping[str, Any]) -> base.Keywords | None:
        return None if given["gradient_as_bucket_view"] else {"gradient_as_bucket_view": True}

    base.add_keywords(torch.nn.parallel.DistributedDataParallel, run, choose)


BUCKET_VIEW = base.ProgramRemedy(
    name="bucket_view",
    does="Keep gradients in DDP's buckets",
    answers=r"gradient_as_bucket_view=True",
    effect="no copies of gradients within the GPU",
    install=_bucket_view,
)
