"""Tensor.to(device, non_blocking=True) for pinned tensors: the CPU goes on meanwhile."""

from __future__ import annotations

from typing import Any

from traceview.trials.remedies.base import ProgramRemedy, RemedyRun, need_gpu, replace_function


def _install(torch: Any, run: RemedyRun) -> None:
    need_gpu(torch, run, "there is no GPU to copy to")
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
        replace_function(torch.Tensor, name, to_gpu(name))


REMEDY = ProgramRemedy(
    name="non_blocking",
    does="Copy pinned batches with non_blocking=True",
    answers=r"non_blocking=True",
    effect="the CPU no longer waits for uploads",
    install=_install,
    needs=("pin_memory",),
    may_change="batches, if a pinned buffer is filled again at once",
)
