"""torch.compile of the model: elementwise kernels merge, and their launches go."""

from __future__ import annotations

from typing import Any

from traceview.remedies.base import ProgramRemedy, RemedyRun, around_models, has_parameters

BOUND = 1e-3
"""Inductor computes chains of 16-bit operations in fp32, and reductions in another order."""


def compile_models(torch: Any, run: RemedyRun, **options: Any) -> None:
    """Compile each model, in place, as it is called first."""
    known: set[int] = set()

    def call(original: Any, module: Any, args: Any, kwargs: Any) -> Any:
        if id(module) not in known:
            known.add(id(module))
            if has_parameters(module) and module._compiled_call_impl is None:
                module.compile(**options)
                run.applied()
        return original(module, *args, **kwargs)

    around_models(torch, call)


REMEDY = ProgramRemedy(
    name="compile",
    does="Compile the model",
    answers=r"torch\.compile(?! is on|\(mode)",
    effect="elementwise kernels merge, with their launches",
    install=compile_models,
    how="model.compile() before the loop",
    may_change="roundings, dropout's numbers",
    bound=BOUND,
    reseeds=True,
)
