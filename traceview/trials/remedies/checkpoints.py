"""Without torch.utils.checkpoint: activations are kept, not computed again in the backward pass."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from traceview.trials.remedies.base import ProgramRemedy, RemedyRun, replace_function

_OPTIONS = (
    *("use_reentrant", "context_fn", "determinism_check", "debug", "early_stop"),
    "preserve_rng_state",
)


def _install(torch: Any, run: RemedyRun) -> None:
    def make(original: Any) -> Any:
        def checkpoint(function: Any, *args: Any, **kwargs: Any) -> Any:
            if not run.on or torch.compiler.is_compiling():
                return original(function, *args, **kwargs)
            # A call that stands alone computes something: none is to be removed.
            run.applied()
            return function(*args, **{k: v for k, v in kwargs.items() if k not in _OPTIONS})

        return checkpoint

    replace_function(import_module("torch.utils.checkpoint"), "checkpoint", make)


REMEDY = ProgramRemedy(
    name="checkpoints",
    does="Keep activations instead of checkpoints",
    answers=r"torch\.utils\.checkpoint",
    effect="work that is computed again goes, with its launches; memory rises",
    install=_install,
    how="call the block itself in place of torch.utils.checkpoint.checkpoint",
    is_switchable=True,
)
