"""Wrap the calls of torch that make up a training step, to open a range around each.

The wrappers keep names, signatures and results. torch.compile neither traces them nor sees what
they do: a call that it traces goes to the original.
"""

from __future__ import annotations

import os
import sys
from _thread import get_ident
from functools import wraps

from .. import dynamo
from ..import_hooks import after
from . import backward_ranges, module_names, nvtx_ranges, training_steps
from .backward_ranges import BACKWARD, BackwardRanges
from .module_names import ModuleNames
from .nvtx_ranges import end, start
from .training_steps import TrainingSteps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    Tracing = Callable[[], bool]

_OURS = "_traceview_ours"


def wrap(
    torch: ModuleType, *, name_modules: bool, carrier: nvtx_ranges.Carrier | None = None
) -> None:
    """Install the wrappers, if there is a way to emit ranges: `carrier`, or one that records."""
    if not nvtx_ranges.choose(carrier):
        return
    steps, names = TrainingSteps(), ModuleNames(name_modules)
    inside: set[int] = set()
    following = BackwardRanges(inside)
    for forget in (steps.forget, inside.clear, following.forget):
        os.register_at_fork(after_in_child=forget)
    tracing = dynamo.tracing(torch)
    _wrap_modules(torch, tracing, steps, names, inside, following)
    _wrap_backward(torch, tracing, steps, inside, following)
    _wrap_optimizers(torch, tracing, steps)
    # Open a range where a DataLoader starts its workers, and around each batch.
    module = torch.utils.data.dataloader
    for holder, name in (("DataLoader", "_get_iterator"), ("_BaseDataLoaderIter", "__next__")):
        loader = getattr(module, holder, None)
        original = getattr(loader, name, None)
        if original is not None:
            setattr(loader, name, _loading(original, steps))
    modules = (sys.modules[__name__], backward_ranges, nvtx_ranges, training_steps, module_names)
    after("torch._dynamo", lambda _: dynamo.hide(modules))


def _wrap_modules(
    torch: ModuleType,
    tracing: Tracing,
    steps: TrainingSteps,
    names: ModuleNames,
    inside: set[int],
    following: BackwardRanges,
) -> None:
    """Open a range around calls of outermost modules, and of named ones inside.

    `inside` has the ids of threads that run an outermost module or a backward pass.
    """
    module_class = torch.nn.Module
    original, has_gradients = module_class.__call__, torch.is_grad_enabled
    named, followed = names.inside, names.followed

    # The name by which torch.compile knows the original.
    @wraps(original)
    def _wrapped_call_impl(self: Any, *args: Any, **kwargs: Any) -> Any:
        if tracing():
            return original(self, *args, **kwargs)
        thread = get_ident()
        # During backward, threads of autograd call modules whose activations were not kept.
        if inside and (thread in inside or BACKWARD in inside):
            name = named.get(id(self)) if named else None
            if name is None or not names.affords(self):
                return original(self, *args, **kwargs)
            names.place(name, sys._getframe(1))
            opened = start(name)
            try:
                result = original(self, *args, **kwargs)
            finally:
                end(opened)
            if id(self) in followed and has_gradients():
                following.follow(name, args, result)
            return result
        inside.add(thread)
        opened = entered(self)
        try:
            return original(self, *args, **kwargs)
        finally:
            inside.discard(thread)
            end(opened)

    def entered(module: Any) -> Any:
        try:
            affordable = steps.calls_model(module, has_gradients())
            if not affordable:
                return None
            name = names.outermost(module)
            names.place(name, sys._getframe(2))
            return start(name)
        except Exception:  # A failed range must not break the program.
            return None

    module_class.__call__ = _wrapped_call_impl


def _wrap_backward(
    torch: ModuleType,
    tracing: Tracing,
    steps: TrainingSteps,
    inside: set[int],
    following: BackwardRanges,
) -> None:
    """Open a range around torch.autograd.backward, which Tensor.backward calls."""
    original = torch.autograd.backward

    @wraps(original)
    def backward(*args: Any, **kwargs: Any) -> Any:
        # Checkpointed blocks call it inside a backward pass.
        if tracing() or BACKWARD in inside:
            return original(*args, **kwargs)
        inside.add(BACKWARD)
        steps.starts_backward()
        opened = start("backward")
        try:
            return original(*args, **kwargs)
        finally:
            inside.discard(BACKWARD)
            following.close()
            end(opened)
            steps.ended_backward()

    torch.autograd.backward = backward


def _wrap_optimizers(torch: ModuleType, tracing: Tracing, steps: TrainingSteps) -> None:
    """Open a range around `step` and `zero_grad` of every optimizer.

    Each class has its own `step`, wrapped as torch does it: when its first optimizer is created.
    """
    optimizer_class = torch.optim.Optimizer
    prepare, zero_grad = optimizer_class._patch_step_function, optimizer_class.zero_grad
    working: set[int] = set()
    os.register_at_fork(after_in_child=working.clear)

    @wraps(prepare)
    def _patch_step_function(self: Any) -> None:
        prepare(self)
        try:
            steps.has_optimizer()
            if not hasattr(type(self).step, _OURS):
                type(self).step = _optimizing(type(self).step, tracing, steps, working)
        except Exception:  # The program must still get its optimizer.
            return

    @wraps(zero_grad)
    def zero_grads(self: Any, *args: Any, **kwargs: Any) -> Any:
        if tracing():
            return zero_grad(self, *args, **kwargs)
        opened = start("zero_grad")
        try:
            return zero_grad(self, *args, **kwargs)
        finally:
            end(opened)

    optimizer_class._patch_step_function = _patch_step_function
    optimizer_class.zero_grad = zero_grads


def _optimizing(original: Any, tracing: Tracing, steps: TrainingSteps, working: set[int]) -> Any:
    """Wrap an optimizer's `step` in a range; `working` has the threads that are inside one."""
    inner = getattr(original, "__wrapped__", None)

    @wraps(original)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        if tracing():
            return original(self, *args, **kwargs)
        thread = get_ident()
        # A subclass or a wrapping optimizer calls the `step` of another one.
        if thread in working:
            return original(self, *args, **kwargs)
        working.add(thread)
        opened = start(training_steps.OPTIMIZER)
        try:
            return original(self, *args, **kwargs)
        finally:
            working.discard(thread)
            end(opened)
            steps.ended_optimizer(self)

    setattr(step, _OURS, True)
    if getattr(original, "hooked", False) and inner is not None:
        # Some versions of torch.compile take off the outermost wrapper of a hooked step.
        step.__wrapped__ = _optimizing(inner, tracing, steps, working)
    return step


def _loading(original: Any, steps: TrainingSteps) -> Any:
    @wraps(original)
    def load(self: Any) -> Any:
        steps.loads_data()
        opened = start("data loading")
        try:
            return original(self)
        finally:
            end(opened)

    return load
