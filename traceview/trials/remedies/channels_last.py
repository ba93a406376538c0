"""channels_last: images and the weights of convolutions as NHWC, as the tensor cores take them."""

from __future__ import annotations

from typing import Any

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


def _install(torch: Any, run: RemedyRun) -> None:
    nhwc, tree_map = torch.channels_last, torch.utils._pytree.tree_map
    known: dict[int, bool] = {}

    def converted(value: Any) -> Any:
        is_image = isinstance(value, torch.Tensor) and value.dim() == 4
        return value.contiguous(memory_format=nhwc) if is_image else value

    def call(original: Any, module: Any, args: Any, kwargs: Any) -> Any:
        if id(module) not in known:
            known[id(module)] = _takes_images(module, run)
            if known[id(module)]:
                module.to(memory_format=nhwc)
                run.applied()
        if known[id(module)]:
            args, kwargs = tree_map(converted, (args, kwargs))
        return original(module, *args, **kwargs)

    def rejected(original: Any) -> Any:
        def transform(value: Any, *args: Any, **kwargs: Any) -> Any:
            if value.dim() == 4:
                run.reject(_FFT)
            return original(value, *args, **kwargs)

        return transform

    for name in _TRANSFORMS:
        base.replace_function(torch.fft, name, rejected)
    base.around_models(torch, call)


REMEDY = ProgramRemedy(
    name="channels_last",
    does="Keep images as NHWC",
    answers=r"torch\.channels_last\b",
    effect="conversions between NCHW and NHWC go, convolutions become faster",
    install=_install,
    how=".to(memory_format=torch.channels_last) of the model and of its input",
    may_change="algorithms of convolutions",
    bound=base.TF32,
)
