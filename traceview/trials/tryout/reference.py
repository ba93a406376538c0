"""The model in float64: no remedy, but what the results of remedies are held to."""

from __future__ import annotations

from typing import Any

from traceview.trials.remedies.base import ProgramRemedy, RemedyRun, around_models, has_parameters

_MOST_PARAMETERS = 100_000_000


def _install(torch: Any, run: RemedyRun) -> None:
    known: set[int] = set()

    def double(value: Any) -> Any:
        is_float = isinstance(value, torch.Tensor) and value.dtype == torch.float32
        return value.double() if is_float else value

    def call(original: Any, module: Any, args: Any, kwargs: Any) -> Any:
        if has_parameters(module) and id(module) not in known:
            if sum(each.numel() for each in module.parameters()) > _MOST_PARAMETERS:
                run.reject("the model is too large")
            known.add(id(module))
            # Not created so: it would draw other random numbers.
            module.double()
            run.applied()
        args, kwargs = torch.utils._pytree.tree_map(double, (args, kwargs))
        drawn = _drawn(torch)
        result = original(module, *args, **kwargs)
        if _drawn(torch) != drawn:
            run.reject("the model draws random numbers, which differ in float64")
        return result

    around_models(torch, call)


def _drawn(torch: Any) -> list[bytes]:
    """The state of generators: another one after numbers were drawn."""
    uses_gpu = torch.cuda.is_available() and torch.cuda.is_initialized()
    states = [torch.get_rng_state(), *([torch.cuda.get_rng_state()] if uses_gpu else [])]
    return [state.numpy().tobytes() for state in states]


REFERENCE = ProgramRemedy(
    name="float64", does="Compute in float64", answers="", effect="", install=_install
)
