"""The @triton.jit functions of a script, and compiling them without a launch."""

from __future__ import annotations

import ast
import enum
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import Any

from traceview.base.records import record
from traceview.kernels.headless import inference, signatures
from traceview.kernels.headless.dataflow import Usage
from traceview.kernels.headless.project.assumed_tensor import AssumedTensor
from traceview.kernels.headless.signatures import Parameter, Value, commented_types
from traceview.kernels.headless.worker.event_log import plain
from traceview.kernels.ptx.model import Argument

# The value of integer arguments for @triton.heuristics, as the real ones are not known.
_ANY_INTEGER = 4096


@record
class AutotuneConfig:
    """One configuration of a kernel: constexprs, and options such as num_warps.

    `label` describes it if the kernel is autotuned. `before_launch` is its pre_hook, which may set
    the block shapes of tensor descriptors.
    """

    constexprs: Mapping[str, Value] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""
    before_launch: Callable[[dict[str, Any]], object] | None = None


@record
class Jitted:
    """A @triton.jit function, with the choices of @triton.autotune and @triton.heuristics.

    `declared` are its arguments if its decorator declares them, as Inductor's does.
    """

    function: Any
    configurations: tuple[AutotuneConfig, ...] = (AutotuneConfig(),)
    heuristics: Mapping[str, Any] = field(default_factory=dict)
    declared: tuple[Argument, ...] = ()

    @property
    def name(self) -> str:
        """Its name in the source."""
        return str(self.function.__name__)

    @property
    def choices(self) -> int:
        """The number of configurations and heuristics."""
        return len(self.configurations) + len(self.heuristics)

    @property
    def module(self) -> str:
        """The module that it is defined in."""
        return str(self.function.fn.__module__)

    @property
    def file(self) -> str:
        """The file that it is defined in."""
        return str(self.function.fn.__code__.co_filename)

    @property
    def is_of_library(self) -> bool:
        """Whether it is of Triton's own library, or of PyTorch's."""
        return self.module.partition(".")[0] in ("triton", "torch")

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Its parameters, in order."""
        return tuple(map(_parameter, self.function.params))

    @property
    def text(self) -> str:
        """Its source, without the indentation that it has in a class."""
        return textwrap.dedent("".join(self.function.raw_src))

    @property
    def tree(self) -> ast.FunctionDef:
        """Its source, parsed."""
        return inference.parsed(self.text)

    @property
    def tuples(self) -> dict[str, dict[Any, int]]:
        """The parameters that it takes elements of, `strides[1]`, with the last that is used.

        That is by branches of an `if`, as tensors of other ranks have other ones.
        """
        names = {p.name for p in self.parameters if not p.is_constexpr}
        last: dict[str, dict[Any, int]] = {}

        def visit(node: ast.AST, branch: object) -> None:
            if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
                name, at = node.value.id, node.slice
                if name in names and isinstance(at, ast.Constant) and type(at.value) is int:
                    branches = last.setdefault(name, {})
                    branches[branch] = max(branches.get(branch, 0), at.value)
            for field_, value in ast.iter_fields(node):
                inside = (node, field_) if isinstance(node, ast.If) and field_ != "test" else branch
                for each in value if isinstance(value, list) else [value]:
                    if isinstance(each, ast.AST):
                        visit(each, inside)

        visit(self.tree, None)
        return last

    def usage(self, helpers: Mapping[str, ast.FunctionDef]) -> Usage:
        """The uses of its parameters in its source."""
        tree = self.tree
        return Usage(tree, helpers, stated=commented_types(self.text, tree))

    def chosen(
        self, arguments: Sequence[Argument], known: Mapping[str, Any] | None = None
    ) -> dict[str, Value]:
        """The constexprs that @triton.heuristics computes, except those that need real values.

        `known` are the values of parameters that a call passes.
        """
        integers = (a for a in arguments if a.type.startswith(("i", "u")))
        values: dict[str, Any] = {a.name: AssumedTensor(a.name) for a in arguments}
        values |= {a.name: _ANY_INTEGER for a in integers} | dict(known or {})
        names = self.function.fn.__globals__
        values |= {a.name: resolved(a.value, names) for a in arguments if a.type == "constexpr"}
        chosen: dict[str, Value] = {}
        for name, choose in self.heuristics.items():
            try:
                chosen[name] = plain(choose(values | chosen))
            except Exception:  # noqa: S112 (the user's code, asked about made-up values)
                continue
        return chosen


def jitted_in(names: Mapping[str, Any]) -> Iterator[Jitted]:
    """The jitted functions among a module's names, without duplicates.

    Of a function that is there both alone and under an autotuner, as in `tuned =
    triton.autotune(…)(kernel)`, the latter counts, as it is launched.
    """
    by_function: dict[int, Jitted] = {}
    for value in list(names.values()):
        jitted = _unwrapped(value)
        if jitted:
            known = by_function.setdefault(id(jitted.function), jitted)
            by_function[id(jitted.function)] = max(known, jitted, key=lambda each: each.choices)
    yield from by_function.values()


def compile_for(
    target: Any, jitted: Jitted, arguments: Sequence[Argument], options: Mapping[str, Any]
) -> Any:
    """Compile a function for a `GPUTarget` of Triton; returns Triton's `CompiledKernel`.

    The compilation listener gets the result, too. Raises what Triton raises.
    """
    from triton.compiler import compile as compile_

    names, used = jitted.function.fn.__globals__, jitted.tuples
    types: dict[str, Any] = {}
    constants: dict[tuple[int, ...], Any] = {}
    attributes: dict[tuple[int, ...], Any] = {}
    for at, argument in enumerate(arguments):
        last = used.get(argument.name, {}) if argument.type[:1] in "iu" else {}
        size = max(last.values(), default=-1) + 1
        places: list[tuple[int, ...]] = [(at, n) for n in range(size)] or [(at,)]
        if argument.type == "constexpr":
            constants[(at,)] = resolved(argument.value, names)
        # Of a contiguous tensor the last stride is 1.
        lasts = {last[None]} if None in last else set(last.values())
        ones = {(at, n) for n in lasts if size > 1 and "stride" in argument.name}
        constants |= dict.fromkeys(ones, 1)
        of = tuple("constexpr" if place in ones else argument.type for place in places)
        types[argument.name] = of if size else argument.type
        if argument.divisible_by_16:
            attributes |= {
                place: [["tt.divisibility", 16]] for place in places if place not in ones
            }
    source = _source_type(jitted.function)(jitted.function, types, constants, attributes)
    return compile_(source, target=target, options=dict(options))


def _source_type(function: Any) -> Any:
    """Triton's class of sources for a function: Gluon has its own."""
    from triton.compiler import ASTSource

    if not getattr(function, "is_gluon", bool)():
        return ASTSource
    from triton.experimental.gluon._runtime import GluonASTSource

    return GluonASTSource


def resolved(value: Value, names: Mapping[str, Any] = MappingProxyType({})) -> Any:
    """The Python value of a constexpr: tl.float16 is Triton's type of that name.

    `names` are those of the kernel's module, for a member of an enum such as `Mode.FAST`.
    """
    import triton.language as tl

    name = signatures.dtype_name(value)
    if name:
        return getattr(tl, name, value)
    owner, _, member = value.partition(".") if isinstance(value, str) else ("", "", "")
    kind = names.get(owner)
    return kind.__members__.get(member, value) if isinstance(kind, enum.EnumMeta) else value


def _unwrapped(value: Any) -> Jitted | None:
    """The function inside @triton.autotune, @triton.heuristics and wrappers of projects' own."""
    from triton.runtime.jit import JITFunction, KernelInterface

    configurations: tuple[AutotuneConfig, ...] = (AutotuneConfig(),)
    heuristics: dict[str, Any] = {}
    declared: tuple[Argument, ...] = ()
    while isinstance(value, KernelInterface) and not isinstance(value, JITFunction):
        tried = getattr(value, "configs", None)
        if isinstance(tried, (list, tuple)) and tried:
            configurations = tuple(map(_configuration, tried))
        chosen = getattr(value, "values", None)
        heuristics |= chosen if isinstance(chosen, dict) else {}
        declared = declared or _declared(getattr(value, "triton_meta", None))
        value = getattr(value, "fn", None)
    if not isinstance(value, JITFunction):
        return None
    return Jitted(value, configurations, heuristics, declared)


def _declared(described: Any) -> tuple[Argument, ...]:
    """The arguments that Inductor's decorator passes to Triton; empty for other decorators."""
    try:
        types, constants = described["signature"], described["constants"]
        (properties,) = described["configs"]
        aligned = {at for (at,), pairs in properties.items() if ["tt.divisibility", 16] in pairs}
    except (AttributeError, LookupError, TypeError, ValueError):
        return ()
    return tuple(
        signatures.constant(name, plain(constants.get(name)))
        if type_ == "constexpr"
        else Argument(name, type_, at in aligned)
        for at, (name, type_) in enumerate(types.items())
    )


def _configuration(config: Any) -> AutotuneConfig:
    constexprs = {name: plain(value) for name, value in config.kwargs.items()}
    options = {n: v for n, v in config.all_kwargs().items() if n not in config.kwargs}
    label = f"configuration of @triton.autotune: {config}"
    return AutotuneConfig(constexprs, options, label, getattr(config, "pre_hook", None))


def _parameter(parameter: Any) -> Parameter:
    return Parameter(
        parameter.name,
        parameter.is_constexpr,
        parameter.has_default,
        plain(parameter.default) if parameter.has_default else None,
        parameter.annotation_type if not parameter.is_constexpr else "",
        not parameter.do_not_specialize,
    )
