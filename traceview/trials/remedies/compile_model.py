"""torch.compile of the model: elementwise kernels merge, and their launches go."""

from __future__ import annotations

from typing import Any

from traceview.trials.remedies.base import ProgramRemedy, RemedyRun, around_models, has_parameters

BOUND = 1e-3
"""Inductor computes chains of 16-bit operations in fp32, and reductions in another order."""


def compile_models(torch: Any, run: RemedyRun, **options: Any) -> None:
    """Compile each model as it is called first.

    Not by `module.compile()`, which leaves classes of torch.nn such as Sequential as they are.
    """
    known: dict[int, Any] = {}

    def call(original: Any, module: Any, args: Any, kwargs: Any) -> Any:
        if not run.on:
            return original(module, *args, **kwargs)
        if id(module) not in known:
            is_compiled = hasattr(module, "_orig_mod") or module._compiled_call_impl is not None
            compiles = has_parameters(module) and not is_compiled
            known[id(module)] = torch.compile(module, **options) if compiles else None
            if compiles:
                run.applied()
        compiled = known[id(module)]
        if compiled is None:
            return original(module, *args, **kwargs)
        return compiled(*args, **kwargs)

    around_models(torch, call)


REMEDY = ProgramRemedy(
    name="compile",
    does="Compile the model",
    answers=r"torch\.compile(?! is on| on the optimizer|\(mode)",
    effect="elementwise kernels merge, with their launches",
    install=compile_models,
    how="model = torch.compile(model) before the loop",
    may_change="roundings, dropout's numbers",
    bound=BOUND,
    reseeds=True,
    is_switchable=True,
    # Of all launches: those of the optimizer stay.
    bounds=("gpu-idle", "launch-overhead"),
)
