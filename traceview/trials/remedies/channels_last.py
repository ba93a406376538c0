"""channels_last: images and the weights of convolutions as NHWC, as the tensor cores take them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from weakref import WeakSet

from traceview.trials.remedies import base
from traceview.trials.remedies.base import ProgramRemedy, RemedyRun

_SLOW = ("GroupNorm", "InstanceNorm2d")
"""torch has no NHWC kernels for them: with GroupNorm a step took 41 % longer, a UNet's 32 %
(docs/accuracy.md)."""
_FFT = "torch.fft works on the last dimensions, so every call would copy to NCHW and back"


_CONVOLUTIONS = ("Conv2d", "ConvTranspose2d", "LazyConv2d", "LazyConvTranspose2d")
_TRANSFORMS = ("fft2", "ifft2", "rfft", "irfft", "rfft2", "irfft2", "fftn", "rfftn", "irfftn")


def _takes_images(module: Any, run: RemedyRun) -> bool:
    """Whether a model has convolutions; ends the run where it has layers that are slower so."""
    layers = {type(each).__name__ for each in module.modules()}
    for name in _SLOW:
        if name in layers:
            run.reject(f"the model has {name}, which copies to NCHW and back")
    return not layers.isdisjoint(_CONVOLUTIONS)


def _is_image(torch: Any, value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() == 4


def _lay_out(torch: Any, form: Any, modules: Iterable[Any], optimizers: WeakSet[Any]) -> None:
    """Give convolutions, their gradients and what optimizers keep of them a memory format."""
    for layer in (layer for module in modules for layer in module.modules()):
        if type(layer).__name__ in _CONVOLUTIONS:
            layer.to(memory_format=form)
    states = (state for each in optimizers for state in each.state.values())
    for value in (value for state in states for value in state.values()):
        if _is_image(torch, value):
            value.data = value.contiguous(memory_format=form)


def _rejected(original: Any, run: RemedyRun) -> Any:
    def transform(value: Any, *args: Any, **kwargs: Any) -> Any:
        if value.dim() == 4:
            run.reject(_FFT)
        return original(value, *args, **kwargs)

    return transform


def _noted(original: Any, optimizers: WeakSet[Any]) -> Any:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        original(self, *args, **kwargs)
        optimizers.add(self)

    return __init__


def _install(torch: Any, run: RemedyRun) -> None:
    nhwc, tree_map = torch.channels_last, torch.utils._pytree.tree_map
    known: dict[int, Any] = {}
    optimizers: WeakSet[Any] = WeakSet()

    def converted(value: Any) -> Any:
        return value.contiguous(memory_format=nhwc) if _is_image(torch, value) else value

    def call(original: Any, module: Any, args: Any, kwargs: Any) -> Any:
        if id(module) not in known:
            known[id(module)] = module if _takes_images(module, run) else None
            if known[id(module)]:
                _lay_out(torch, nhwc, [module], optimizers)
                run.applied()
        if run.on and known[id(module)]:
            args, kwargs = tree_map(converted, (args, kwargs))
        return original(module, *args, **kwargs)

    def switch(on: bool) -> None:
        form = nhwc if on else torch.contiguous_format
        _lay_out(torch, form, filter(None, known.values()), optimizers)

    for name in _TRANSFORMS:
        base.replace_function(torch.fft, name, lambda original: _rejected(original, run))
    base.replace_function(
        torch.optim.Optimizer, "__init__", lambda first: _noted(first, optimizers)
    )
    run.at_switch(switch)
    base.around_models(torch, call)


REMEDY = ProgramRemedy(
    name="channels_last",
    does="Keep images as NHWC",
    answers=r"torch\.channels_last\b",
    effect="conversions between NCHW and NHWC go, convolutions become faster",
    install=_install,
    how=".to(memory_format=torch.channels_last) of the model's convolutions and of its input",
    may_change="algorithms of convolutions",
    bound=base.TF32,
    is_switchable=True,
)
