"""Weights of an output layer padded to a multiple of 64 rows, so that GEMMs use wide loads.

Padded as the optimizer is created. The added rows are zero, get no gradient, and their outputs are
cut off: results stay the same.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

from traceview.trials.remedies.base import ProgramRemedy, RemedyRun, replace_function

MULTIPLE, ALIGNED, LEAST = 64, 8, 1_024
"""Rows are padded to a multiple of 64 where their number, 1,024 or more, is none of 8."""
_ROWS = "_traceview_rows"


def _pad(torch: Any, weight: Any) -> bool:
    """Pad a weight in place where that helps, and note its rows."""
    rows = weight.shape[0]
    if rows < LEAST or rows % ALIGNED == 0:
        return False
    weight.data = torch.nn.functional.pad(weight.data, (0, 0, 0, -rows % MULTIPLE))
    setattr(weight, _ROWS, rows)
    return True


def _cut(functional: Any, original: Any) -> Any:
    def linear(input: Any, weight: Any, bias: Any = None) -> Any:  # noqa: A002
        rows = getattr(weight, _ROWS, None)
        if rows is None:
            return original(input, weight, bias)
        if bias is not None:
            bias = functional.pad(bias, (0, weight.shape[0] - rows))
        return original(input, weight, bias)[..., :rows]

    return linear


def _install(torch: Any, run: RemedyRun) -> None:
    nn = torch.nn
    unpadded: WeakSet[Any] = WeakSet()

    def noted(original: Any) -> Any:
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            original(self, *args, **kwargs)
            unpadded.add(self)

        return __init__

    def padding(original: Any) -> Any:
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            # Not earlier: the program fills weights with random numbers, of which there would be
            # more. In place, as others may hold the weight, such as the embedding that shares it.
            while unpadded:
                if _pad(torch, unpadded.pop().weight):
                    run.applied()
            original(self, *args, **kwargs)

        return __init__

    replace_function(nn.Linear, "__init__", noted)
    replace_function(torch.optim.Optimizer, "__init__", padding)
    replace_function(nn.functional, "linear", lambda original: _cut(nn.functional, original))


REMEDY = ProgramRemedy(
    name="pad_vocabulary",
    does="Pad the vocabulary to a multiple of 64",
    answers=r"Make it a multiple of",
    effect="unaligned GEMMs become faster, at the cost of a copy that padding by hand does without",
    install=_install,
    how="make the vocabulary a multiple of 64 where the model is created",
    may_change="roundings, size of saved weights",
)
