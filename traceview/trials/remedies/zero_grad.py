"""zero_grad(set_to_none=True): gradients are dropped, not filled with zeros and added to."""

from __future__ import annotations

from typing import Any

from traceview.trials.remedies.base import ProgramRemedy, RemedyRun, replace_function


def _install(torch: Any, run: RemedyRun) -> None:
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
        replace_function(holder, "zero_grad", make)


REMEDY = ProgramRemedy(
    name="zero_grad",
    does="Drop gradients, do not fill them",
    answers=r"set_to_none",
    effect="fills of gradients go, and additions to them",
    install=_install,
    may_change="decay of parameters without a gradient",
    is_switchable=True,
)
