"""Remedies of how a model is called."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from traceview.trials.remedies import base

# torch.autocast to bf16 around the calls of the model, whose results become fp32 again.


def _autocast(torch: Any, run: base.RemedyRun) -> None:
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


AUTOCAST = base.ProgramRemedy(
    name="autocast",
    does="Run the model under autocast to bf16",
    answers=r"torch\.autocast",
    effect="GEMMs and convolutions become faster, casts are added",
    install=_autocast,
    how="with torch.autocast('cuda', torch.bfloat16): around the forward pass and the loss",
    may_change="products, by 2⁻⁷",
    bound=base.BF16,
    is_switchable=True,
)

# Without torch.utils.checkpoint: activations are kept, not computed again in the backward pass.

_CHECKPOINT_OPTIONS = (
    *("use_reentrant", "context_fn", "determinism_check", "debug", "early_stop"),
    "preserve_rng_state",
)


def _checkpoints(torch: Any, run: base.RemedyRun) -> None:
    def make(original: Any) -> Any:
        def checkpoint(function: Any, *args: Any, **kwargs: Any) -> Any:
            if not run.on or torch.compiler.is_compiling():
                return original(function, *args, **kwargs)
            # A call that stands alone computes something: none is to be removed.
            run.applied()
            return function(
                *args, **{k: v for k, v in kwargs.items() if k not in _CHECKPOINT_OPTIONS}
            )

        return checkpoint

    base.replace_function(import_module("torch.utils.checkpoint"), "checkpoint", make)


CHECKPOINTS = base.ProgramRemedy(
    name="checkpoints",
    does="Keep activations instead of checkpoints",
    answers=r"torch\.utils\.checkpoint",
    effect="nothing is computed twice; memory use rises",
    install=_checkpoints,
    how="call the block itself in place of torch.utils.checkpoint.checkpoint",
    is_switchable=True,
)

# torch.compile of the model: elementwise kernels merge, and their launches go.

_COMPILED = 1e-3
"""Inductor computes chains of 16-bit operations in fp32, and reductions in another order."""


def compile_models(torch: Any, run: base.RemedyRun, **options: Any) -> None:
    """Compile each model as it is called first.

    Not by `module.compile()`, which leaves classes of torch.nn such as Sequential as they are.
    """
    known: dict[int, Any] = {}

    def call(original: Any, module: Any, args: Any, kwargs: Any) -> Any:
        if not run.on:
            return original(module, *args, **kwargs)
        if id(module) not in known:
            is_compiled = hasattr(module, "_orig_mod") or module._compiled_call_impl is not None
            compiles = base.has_parameters(module) and not is_compiled
            known[id(module)] = torch.compile(module, **options) if compiles else None
            if compiles:
                run.applied()
        compiled = known[id(module)]
        if compiled is None:
            return original(module, *args, **kwargs)
        return compiled(*args, **kwargs)

    base.around_models(torch, call)


COMPILE = base.ProgramRemedy(
    name="compile",
    does="Compile the model",
    answers=r"torch\.compile(?! is on| on the optimizer|\(mode)",
    effect="elementwise kernels merge, with their launches",
    install=compile_models,
    how="model = torch.compile(model) before the loop",
    may_change="roundings, dropout's numbers",
    bound=_COMPILED,
    reseeds=True,
    is_switchable=True,
    # Of all launches: those of the optimizer stay.
    bounds=("gpu-idle", "launch-overhead"),
)

# torch.compile(mode='reduce-overhead'): the compiled parts of the model replay CUDA graphs.
#
# A graph of the region as it is would be wrong wherever its addresses, sizes or Python's decisions
# change. torch checks these and falls back, so it is the only sound way without reading the
# program.


def _cuda_graph(torch: Any, run: base.RemedyRun) -> None:
    base.need_gpu(torch, run, "CUDA graphs need a GPU")
    compile_models(torch, run, mode="reduce-overhead")


CUDA_GRAPH = base.ProgramRemedy(
    name="cuda_graph",
    does="Replay the model as CUDA graphs",
    answers=r"reduce-overhead|CUDA graph",
    effect="launches of the model become one per graph",
    install=_cuda_graph,
    how="model = torch.compile(model, mode='reduce-overhead') before the loop",
    may_change="roundings, dropout's numbers",
    bound=_COMPILED,
    reseeds=True,
    is_switchable=True,
    # Of all launches: those of the optimizer stay.
    bounds=("gpu-idle", "launch-overhead"),
    instead_of=("compile",),
)
