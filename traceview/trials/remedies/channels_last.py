"""channels_last: images and the weights of convolutions as NHWC, as the tensor cores take them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from traceview.trials.remedies import base
from traceview.trials.remedies.base import ProgramRemedy, RemedyRun, Setting

_SLOW = ("GroupNorm", "InstanceNorm2d")
"""torch has no NHWC kernels for them: with GroupNorm a step took 41 % longer, a UNet's 32 %
(docs/accuracy.md)."""
_FFT = "torch.fft works on the last dimensions, so every call would copy to NCHW and back"


_CONVOLUTIONS = ("Conv2d", "ConvTranspose2d")
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


def _settings(torch: Any, model: Any) -> list[tuple[Any, Setting]]:
    """The strides of what convolutions keep as NCHW, also in their parametrizations."""
    layers = (each for each in model.modules() if type(each).__name__ in _CONVOLUTIONS)
    tensors = (each for layer in layers for each in (*layer.parameters(), *layer.buffers()))
    known = (each for each in tensors if not torch.nn.parameter.is_lazy(each))
    images = [(each, _nhwc(torch, each)) for each in known if _is_image(torch, each)]
    return [(each, Setting(form)) for each, form in images if form(each.stride()) != each.stride()]


def _nhwc(torch: Any, image: Any) -> Callable[[Any], Any]:
    form = torch.empty(image.shape, device="meta", memory_format=torch.channels_last)
    return lambda _: form.stride()


def _lay_out(torch: Any, weight: Any, strides: Any, optimizers: WeakSet[Any]) -> None:
    """Give a weight, its gradient and what optimizers keep of it these strides."""
    states = (state for each in optimizers if (state := each.state.get(weight)))
    kept = (value for state in states for value in state.values())
    for value in (weight, weight.grad, *kept):
        if _is_image(torch, value) and value.shape == weight.shape:
            data = value.data
            laid = torch.empty_strided(data.shape, strides, dtype=data.dtype, device=data.device)
            value.data = laid.copy_(data)


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
    known: dict[int, tuple[Any, bool]] = {}
    settings: list[tuple[Any, Setting]] = []
    optimizers: WeakSet[Any] = WeakSet()

    def converted(value: Any) -> Any:
        return value.contiguous(memory_format=nhwc) if _is_image(torch, value) else value

    def call(original: Any, module: Any, args: Any, kwargs: Any) -> Any:
        if id(module) not in known:
            found = _settings(torch, module) if _takes_images(module, run) else []
            known[id(module)] = module, bool(found)
            if found:
                settings.extend(found)
                switch(run.on)
                run.applied()
        if run.on and known[id(module)][1]:
            args, kwargs = tree_map(converted, (args, kwargs))
        return original(module, *args, **kwargs)

    def switch(on: bool) -> None:
        for weight, setting in settings:
            now = weight.stride()
            if (strides := setting.value(now, on=on)) != now:
                _lay_out(torch, weight, strides, optimizers)

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
    effect="no conversions between NCHW and NHWC, and faster convolutions",
    install=_install,
    how=".to(memory_format=torch.channels_last) of the model's convolutions and of its input",
    may_change="algorithms of convolutions",
    bound=base.TF32,
    is_switchable=True,
)
