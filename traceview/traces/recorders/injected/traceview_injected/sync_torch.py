"""Wrap the torch calls that can wait for the GPU, to mark them.

A wrapper replaces a method of torch.Tensor or a function of torch under the same name, so that code
which compares functions by identity (__torch_function__ handlers, torch.compile) sees the same
object everywhere. Calls on CPU tensors pass straight through.
"""

from __future__ import annotations

import sys
from functools import wraps

from . import dynamo, sync_call_sites, sync_marks, sync_rules
from .import_hooks import after
from .sync_marks import mark

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from .sync_rules import Rule

    Maker = Callable[[str, str, Any], Any]

# Calls that wait whatever their arguments.
ALWAYS = (
    "cuda.synchronize",
    "cuda.empty_cache",
    "cuda.Stream.synchronize",
    "cuda.Event.synchronize",
    "accelerator.synchronize",
    "save",
    "load",
)


def wrap(torch: ModuleType) -> None:
    """Install the wrappers. Names that this torch lacks are skipped."""
    sync_marks.place_warnings()
    wrappers: list[Any] = []
    for name, rule in sync_rules.METHODS.items():
        wrappers.append(_replace(torch.Tensor, name, f"Tensor.{name}", _method(torch, rule)))
    for path, rule in sync_rules.FUNCTIONS.items():
        holder, name = _found(torch, path)
        hint = f"torch.{sync_rules.CALLED.get(name, name)}"
        wrappers.append(_replace(holder, name, hint, _function(torch, rule)))
    for path in ALWAYS:
        holder, name = _found(torch, path)
        wrappers.append(_replace(holder, name, f"torch.{path}", _always))
    placed = [wrapper for wrapper in wrappers if wrapper is not None]
    after("torch.jit._builtins", lambda builtins: _register_with_jit(builtins, placed))
    modules = (sync_marks, sync_call_sites, sync_rules)
    after("torch._dynamo", lambda _: dynamo.hide(modules, placed))
    after("torch._dynamo", lambda _: _register_with_dynamo(placed))


def _found(torch: ModuleType, path: str) -> tuple[Any, str]:
    """The object that has the last name of a dotted path (None if missing), and that name."""
    *folders, name = path.split(".")
    holder: Any = torch
    for folder in folders:
        holder = getattr(holder, folder, None)
    return holder, name


def _replace(holder: Any, name: str, hint: str, make: Maker) -> Any:
    original = getattr(holder, name, None)
    if original is None:
        return None
    wrapper = wraps(original)(make(name, hint, original))
    # Pickle and graph printers refer to a function by its name, which must resolve to it.
    of_class = isinstance(holder, type)
    wrapper.__module__ = holder.__module__ if of_class else holder.__name__
    wrapper.__qualname__ = f"{holder.__qualname__}.{name}" if of_class else name
    try:
        setattr(holder, name, wrapper)
    except (AttributeError, TypeError):
        return None  # A class written in C.
    return wrapper


def _method(torch: ModuleType, may_wait: Rule) -> Maker:
    overridden, tracing = torch.overrides.has_torch_function_unary, dynamo.tracing(torch)

    def make(name: str, hint: str, original: Any) -> Any:
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            # A tracer that gets here must look up the method by name.
            if tracing():
                return getattr(self, name)(*args, **kwargs)
            if overridden(self) or not may_wait(self, args, kwargs):
                return original(self, *args, **kwargs)
            return mark(hint, original, (self, *args), kwargs)

        def always(self: Any, *args: Any, **kwargs: Any) -> Any:
            if tracing():
                return getattr(self, name)(*args, **kwargs)
            if overridden(self) or not self.is_cuda:
                return original(self, *args, **kwargs)
            return mark(hint, original, (self, *args), kwargs)

        return always if may_wait is sync_rules.on_gpu else method

    return make


def _function(torch: ModuleType, may_wait: Rule) -> Maker:
    overridden, handle = torch.overrides.has_torch_function, torch.overrides.handle_torch_function
    tracing = dynamo.tracing(torch)

    def make(_: str, hint: str, original: Any) -> Any:
        def function(*args: Any, **kwargs: Any) -> Any:
            if tracing():
                return original(*args, **kwargs)
            operands = (*args, *kwargs.values()) if kwargs else args
            # As in the original, but with the wrapper as the function that handlers see.
            if overridden(operands):
                return handle(function, operands, *args, **kwargs)
            first = args[0] if args else kwargs.get("input")
            if not may_wait(first, args[1:], kwargs):
                return original(*args, **kwargs)
            return mark(hint, original, args, kwargs)

        return function

    return make


def _always(_: str, hint: str, original: Any) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        return mark(hint, original, args, kwargs)

    return call


def _register_with_jit(builtins: ModuleType, wrappers: list[Any]) -> None:
    """Register the wrappers with torch.jit.script, which finds operators by function identity."""
    table = builtins._get_builtin_table()
    for wrapper in wrappers:
        operator = table.get(id(wrapper.__wrapped__))
        if operator is not None:
            table[id(wrapper)] = operator


def _register_with_dynamo(wrappers: list[Any]) -> None:
    """List wrappers of C functions by name, as torch.compile recognizes those only by type."""
    rules = sys.modules["torch._dynamo.trace_rules"]
    in_c = rules.torch_c_binding_in_graph_functions
    listed = rules.torch_non_c_binding_in_graph_functions
    for wrapper in wrappers:
        name = f"{wrapper.__module__}.{wrapper.__qualname__}"
        if name in in_c:
            listed.setdefault(name, in_c[name])
