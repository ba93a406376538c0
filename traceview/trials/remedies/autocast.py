"""torch.autocast to bf16 around the calls of the model, whose results become fp32 again."""

from __future__ import annotations

from typing import Any

from traceview.trials.remedies import base
from traceview.trials.remedies.base import ProgramRemedy, RemedyRun


def _install(torch: Any, run: RemedyRun) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and torch.cuda.get_device_capability()[0] < 8:
        run.reject("this GPU computes bf16 without tensor cores")

    def single(value: Any) -> Any:
        is_low = isinstance(value, torch.Tensor) and value.dtype == torch.bfloat16
        return value.float() if is_low else value

    def call(original: Any, module: Any, args: Any, kwargs: Any) -> Any:
        if not run.on or torch.is_autocast_enabled(device):
            return original(module, *args, **kwargs)
        is_model = base.has_parameters(module)
        if is_model and next(module.parameters()).dtype != torch.float32:
            return original(module, *args, **kwargs)
        if is_model:
            run.applied()
        with torch.autocast(device, torch.bfloat16):
            result = original(module, *args, **kwargs)
        return torch.utils._pytree.tree_map(single, result)

    base.around_models(torch, call)


REMEDY = ProgramRemedy(
    name="autocast",
    does="Run the model under autocast to bf16",
    answers=r"torch\.autocast",
    effect="GEMMs and convolutions become faster, casts are added",
    install=_install,
    how="with torch.autocast('cuda', torch.bfloat16): around the forward pass and the loss",
    may_change="products, by 2⁻⁷",
    bound=base.BF16,
    is_switchable=True,
)
