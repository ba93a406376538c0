"""The arguments of a kernel as a call in the source of its project passes them."""

from __future__ import annotations

import ast
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from traceview.headless.project.assumed_tensor import UNKNOWN
from traceview.headless.project.call_sites import CallSite
from traceview.headless.project.expressions import Scope
from traceview.headless.project.wrapper_values import scope_at
from traceview.headless.signatures.notation import Parameter
from traceview.records import record

_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "enable_fp_fusion")


@record
class LaunchArguments:
    """The arguments of a call site: `values` of parameters where known, and compile `options`."""

    place: str
    values: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, int] = field(default_factory=dict)


def launch_arguments(
    site: CallSite, parameters: Sequence[Parameter], globals_: Mapping[str, Any]
) -> LaunchArguments:
    """The arguments at a call site; `globals_` are the names of the module that the kernel is in.

    A module other than the kernel's own is not imported: its constants are read from its source.
    """
    scope = scope_at(site.call, site.function, site.module, globals_)
    passed = dict(_passed(site.call, parameters, scope))
    known = {name: value for name, value in passed.items() if value is not UNKNOWN}
    options = {n: known[n] for n in _OPTIONS if type(known.get(n)) in (int, bool)}
    options = {n: value for n, value in options.items() if n != "num_warps" or 1 <= value <= 32}
    names = [parameter.name for parameter in parameters]
    return LaunchArguments(site.place, {n: known[n] for n in names if n in known}, options)


def globals_of(module: ast.Module, known: Mapping[str, Any]) -> dict[str, Any]:
    """The constants of a module that is not imported, on top of the names in `known`."""
    scope = Scope(known)
    for node in module.body:
        if isinstance(node, ast.Assign):
            value = scope.value(node.value)
            for target in node.targets:
                scope.assign(target, value)
    modules = {n: v for n, v in known.items() if isinstance(v, types.ModuleType)}
    return modules | scope.known


def _passed(
    call: ast.Call, parameters: Sequence[Parameter], scope: Scope
) -> Iterator[tuple[str, Any]]:
    starred = [a for a in call.args if isinstance(a, ast.Starred)]
    named = {k.arg for k in call.keywords}
    # Constexprs follow the strides, and mostly come by name or from an autotuner.
    runtime = [p for p in parameters if not p.is_constexpr and p.name not in named]
    unpacked = {id(a): _several(a.value, scope) for a in starred}
    lengths = [len(v) for v in unpacked.values() if isinstance(v, (tuple, list))]
    rest = len(runtime) - (len(call.args) - len(starred)) - sum(lengths)
    share = max(0, rest) // max(len(starred) - len(lengths), 1)
    names = iter([parameter.name for parameter in parameters])
    for argument in call.args:
        if isinstance(argument, ast.Starred):
            yield from _unpacked(argument, names, share, unpacked[id(argument)])
        else:
            yield next(names, ""), scope.value(argument)
    for keyword in call.keywords:
        value = scope.value(keyword.value)
        if keyword.arg:
            yield keyword.arg, value
        elif isinstance(value, dict):
            yield from value.items()


def _several(node: ast.expr, scope: Scope) -> Any:
    """The value that is unpacked; of `(a, b) if x is not None else 0`, the pair."""
    value = scope.value(node)
    if isinstance(node, ast.IfExp) and isinstance(value, int):
        return scope.value(node.body)
    return value


def _unpacked(
    argument: ast.Starred, names: Iterator[str], most: int, value: Any
) -> Iterator[tuple[str, Any]]:
    """The arguments of `*x.stride()`, at most as many as there are parameters left for it."""
    if isinstance(value, (tuple, list)):
        # In this order: zip takes a name before it sees that the values end.
        yield from ((name, each) for each, name in zip(value, names, strict=False))
        return
    is_strides = isinstance(argument.value, ast.Call) and ast.unparse(argument).endswith("stride()")
    for at in range(most):
        name = next(names, "")
        yield name, (1 if at == most - 1 else 1024) if is_strides else UNKNOWN
