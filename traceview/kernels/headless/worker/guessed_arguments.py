"""Arguments to try for a kernel that is never launched, and the compilations that try them.

They come from the calls in the source of its project, else from the source of the kernel alone.
"""

from __future__ import annotations

import ast
import contextlib
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, field, replace
from types import SimpleNamespace
from typing import Any, TypeGuard

from traceview.base.records import record
from traceview.kernels.headless import inference, signatures
from traceview.kernels.headless.compile_error import in_words, is_of_source, plain_global
from traceview.kernels.headless.dataflow import Usage
from traceview.kernels.headless.inference import TRIED, Defaults
from traceview.kernels.headless.project.assumed_tensor import (
    SIZE,
    AssumedCount,
    AssumedDescriptor,
    AssumedNumber,
    AssumedSize,
    AssumedTensor,
    CoveringSize,
    OpenStride,
)
from traceview.kernels.headless.project.conditions import allowed_sizes, parts
from traceview.kernels.headless.project.expressions import Scope
from traceview.kernels.headless.project.launch_arguments import LaunchArguments
from traceview.kernels.headless.worker.event_log import EventLog, plain
from traceview.kernels.headless.worker.forked_task import ForkedTask
from traceview.kernels.headless.worker.jit_functions import (
    AutotuneConfig,
    Jitted,
    compile_for,
    resolved,
)
from traceview.kernels.ptx.model import Argument, How

# The widest head of usual attention kernels.
_DOT_SIDE = 128
# Iterations of an unrolled loop: a GEMM with its loop in each takes a minute for a thousand.
_MOST_TURNS = 64
# The elements of a tile with an assumed side, 32 per thread of 4 warps, and its least such side.
_TILE, _LEAST_SIDE = 4096, 64
# Of a row alone: 512 per thread of 4 warps, beyond which compiling takes minutes.
_ROW = 1 << 16
# By the warps of a block: 4 per thread, as a call that asks for few warps has short rows.
_FEW_WARPS = {1: 128, 2: 256}
# Triton's words for operands of tl.dot of two types.
_OPERANDS_DIFFER = re.compile(r"operands must be same dtype\. Got (\w+) and (\w+)")
_TOO_LARGE = re.compile(r"numel \((\d+)\) exceeds triton maximum tensor numel")
_HALVES = ("float16", "bfloat16", "fp16", "bf16")


@record
class Attempt:
    """Arguments to compile a kernel with; `origin` is the call that passes them, if any.

    `how` is where they come from: such a call, a declaration by a decorator, or a guess. `assumed`
    are the sides of tiles that neither gives, `guessed` all constexprs and types of elements that
    such a call leaves open. `integers` are what the call passes, and the assumed sizes that one
    tile covers.
    """

    arguments: tuple[Argument, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    origin: str = ""
    how: How = "guessed"
    assumed: tuple[str, ...] = ()
    guessed: tuple[str, ...] = ()
    integers: Mapping[str, int] = field(default_factory=dict)


@record
class Guesses:
    """The attempts for a kernel: by its calls, and by its source.

    `given` are constexprs that the user sets.
    """

    jitted: Jitted
    usage: Usage
    calls: Sequence[LaunchArguments]
    given: Mapping[str, signatures.Value] = field(default_factory=dict)

    def is_passed(self, name: str) -> bool:
        """Whether a call passes a known value for a parameter."""
        return any(name in call.values for call in self.calls)

    def attempts(self, configuration: AutotuneConfig) -> Iterator[Attempt]:
        """The arguments to try, in order and without duplicates."""
        seen: set[tuple[Argument, ...]] = set()
        for attempt in self._all(configuration):
            if attempt.arguments not in seen:
                seen.add(attempt.arguments)
                yield attempt

    def without_nones(self, attempt: Attempt, line: str) -> Attempt | None:
        """The attempt with a guess for each None that a source line uses; None if it uses none."""
        words = set(re.findall(r"\w+", line))
        guessed = inference.guess(self.jitted.parameters, self.usage)
        replaced = tuple(
            like if (a.type, a.value) == ("constexpr", None) and a.name in words else a
            for a, like in zip(attempt.arguments, guessed, strict=True)
        )
        return replace(attempt, arguments=replaced) if replaced != attempt.arguments else None

    def with_operands(
        self, attempt: Attempt, error: str, configuration: AutotuneConfig
    ) -> Attempt | None:
        """The attempt with one type for the operands of tl.dot, if the error is that they differ.

        The type is the one that is not assumed of operands.
        """
        differ = _OPERANDS_DIFFER.search(error)
        types = [signatures.TYPE_NAMES.get(t, t) for t in differ.groups()] if differ else []
        known = next((type_ for type_ in types if type_ != TRIED[0].operand), None)
        if known is None or attempt.how == "declared":
            return None
        calls = (call for call in self.calls if call.place == attempt.origin)
        call = next(calls, LaunchArguments(""))
        return self._attempt(configuration, call, replace(TRIED[0], operand=known))

    def with_smaller(self, attempt: Attempt, error: str) -> Attempt | None:
        """The attempt with shorter assumed sides, if Triton refuses a tile of so many elements."""
        refused = _TOO_LARGE.search(error)
        sides = (a for a in attempt.arguments if a.name in attempt.assumed)
        shorter = {a.name: int(a.value) for a in sides if _is_size(a.value)}
        if attempt.how == "declared" or not refused or not shorter:
            return None
        # One that Triton just takes would compile for minutes.
        for _ in range((int(refused[1]) // (4 * _TILE)).bit_length()):
            shorter = _halved(shorter, shorter)
        arguments = tuple(
            signatures.constant(a.name, max(1, shorter[a.name])) if a.name in shorter else a
            for a in attempt.arguments
        )
        return replace(attempt, arguments=arguments)

    def _all(self, configuration: AutotuneConfig) -> Iterator[Attempt]:
        if self.jitted.declared:
            fixed = dict(configuration.constexprs) | dict(self.given)
            known = (
                signatures.constant(a.name, fixed[a.name]) if a.name in fixed else a
                for a in self.jitted.declared
            )
            yield Attempt(tuple(known), how="declared")
        nothing = LaunchArguments("")
        # Tiles that are computed from assumed sizes may fit no kernel: then those of its names.
        first = [
            variant
            for call in self.calls[:1]
            for variant in (
                call,
                replace(
                    call,
                    values={n: v for n, v in call.values.items() if not inference.is_block(n)},
                ),
            )
        ]
        for call in self.calls:
            yield self._attempt(configuration, call, TRIED[0])
        for defaults in TRIED:
            for call in (*first, nothing):
                yield self._attempt(configuration, call, defaults)

    def _attempt(
        self, configuration: AutotuneConfig, call: LaunchArguments, defaults: Defaults
    ) -> Attempt:
        fixed = dict(configuration.constexprs) | dict(self.given)
        passed = {name: value for name, value in call.values.items() if name not in fixed}
        arguments = self._arguments(fixed, passed, defaults)
        if _FEW_WARPS.get(warps := call.options.get("num_warps", 0)):
            passed |= self._narrowed(passed, _FEW_WARPS[warps])
            arguments = self._arguments(fixed, passed, defaults)
        chosen = self.jitted.chosen(arguments, passed)
        arguments = self._arguments(chosen | fixed, passed, defaults)
        # Heuristics may choose what is no parameter of the kernel.
        of_heuristics = {n: v for n, v in chosen.items() if n in ("num_warps", "num_stages")}
        options = {**call.options, **of_heuristics}
        if configuration.before_launch:
            # The values with the block shapes that a configuration's hook gives to descriptors.
            descriptors = {
                name: SimpleNamespace(block_shape=list(value.block))
                for name, value in passed.items()
                if isinstance(value, AssumedDescriptor)
            }
            constants = {a.name: resolved(a.value) for a in arguments if a.type == "constexpr"}
            with contextlib.suppress(Exception):  # the user's code, given made-up values
                configuration.before_launch(dict(passed) | constants | descriptors)
            shaped = dict(passed) | {
                name: replace(passed[name], block=tuple(map(int, descriptor.block_shape)))
                for name, descriptor in descriptors.items()
            }
            arguments = self._arguments(chosen | fixed, shaped, defaults)
        how: How = "called" if call.place else "guessed"
        open_ = (AssumedSize, AssumedNumber, type(None))
        told = {n for n, v in call.values.items() if not isinstance(v, open_)}
        told |= {*fixed} | {p.name for p in self.jitted.parameters if p.has_default}
        sizes = {a.name for a in arguments if a.type == "constexpr"} - told
        sides = sorted(n for n in sizes if n in self.usage.ranged or inference.is_block(n))
        types = {n for n, v in passed.items() if isinstance(v, AssumedTensor) and not _element(v)}
        types |= {a.name for a in arguments if a.type.startswith("*") and a.name not in passed}
        open_names = (sizes | types) - {n for n, v in call.values.items() if v is None}
        guessed = tuple(a.name for a in arguments if a.name in open_names and call.place)
        covered = {v.size for v in call.values.values() if isinstance(v, CoveringSize)}
        compiled_in = {a.name for a in arguments if a.type == "constexpr"}
        integers = {
            name: int(value)
            for name, value in call.values.items()
            if isinstance(value, int) and name not in compiled_in
            if not isinstance(value, AssumedSize) or value in covered
        }
        return Attempt(arguments, options, call.place, how, tuple(sides), guessed, integers)

    def _narrowed(self, passed: Mapping[str, Any], most: int) -> dict[str, AssumedSize]:
        """The assumed sides of tiles that are longer than a block of few warps mostly takes."""
        sides = (name for name in passed if name in self.usage.ranged)
        long = (n for n in sides if isinstance(passed[n], AssumedSize) and passed[n] > most)
        return {name: AssumedSize(most) for name in long}

    def _few_turns(self, assumed: Collection[str], known: Mapping[str, Any]) -> dict[str, int]:
        """Small bounds of unrolled loops in place of assumed sizes, which may take minutes.

        With a step of its own, a loop has fewer turns than its bound, unless the step is small.
        """
        few = {}
        for name in self.usage.unrolled.keys() & {*assumed}:
            by = self.usage.unrolled[name]
            step = Scope({}, {**known}).value(by) if by else 1
            if not by or (isinstance(step, int) and known[name] > _MOST_TURNS * step > 0):
                few[name] = inference.FEW_TURNS * step
        return few

    def _side(self, assumed: Collection[str], known: Mapping[str, Any]) -> int:
        """The longest assumed side of a tile whose other sides are known to be a power of two."""
        others = [known.get(name) for name in self.usage.ranged.difference(assumed)]
        rest = math.prod(n for n in others if isinstance(n, int) and n > 0 and n & (n - 1) == 0)
        return max(_LEAST_SIDE, _TILE // rest) if len(self.usage.ranged) > 1 else _ROW

    def _alike(self, passed: Mapping[str, Any]) -> dict[str, str]:
        """Element types by pointer, from the uses of any pointer to a tensor of the same type."""
        tensors = {n: v for n, v in passed.items() if isinstance(v, AssumedTensor)}
        unknown = {n: tensor.name for n, tensor in tensors.items() if _element(tensor) is None}
        known = {n: t for n, t in self.usage.pointers.items() if t and n in unknown}
        types = {unknown[name]: type_ for name, type_ in reversed(known.items())}
        return {n: types[tensor] for n, tensor in unknown.items() if tensor in types} | known

    def _arguments(
        self, fixed: Mapping[str, signatures.Value], passed: Mapping[str, Any], defaults: Defaults
    ) -> tuple[Argument, ...]:
        parameters = self.jitted.parameters
        # The passed values without tiles of 1 that follow from assumed sizes.
        assumed = {name for name, value in passed.items() if isinstance(value, AssumedSize)}
        # Nor are those below 1 tiles.
        tiles = {
            name
            for name, value in passed.items()
            if inference.is_block(name) and isinstance(value, int) and value < 1 + (name in assumed)
        }
        apart = {name: SIZE for name in assumed & self.usage.row_strides if passed[name] == 1}
        apart |= {n: 1 for n in self.usage.only_strides if isinstance(passed.get(n), OpenStride)}
        few = self._few_turns(assumed, {**passed, **fixed})
        # A side of an operand of tl.dot that is assumed is one that compiles and fits registers.
        sides = assumed & self.usage.ranged
        most = _DOT_SIDE if self.usage.has_dot else self._side(sides, {**passed, **fixed})
        few |= {name: most for name in sides if passed[name] > most}
        passed = {
            name: value for name, value in (dict(passed) | few | apart).items() if name not in tiles
        }
        # A half type that a call passes on is that of tensors of which it is assumed.
        halves = (str(value).removeprefix("torch.") for value in passed.values())
        half = next((signatures.TYPE_NAMES.get(h, h) for h in halves if h in _HALVES), None)
        if half and defaults == TRIED[0]:
            defaults = replace(defaults, element=half)
        guessed = inference.guess(parameters, self.usage, fixed, defaults)
        tried = {"fp16": defaults.operand, "i64": defaults.index}
        alike = {name: tried.get(each, each) for name, each in self._alike(passed).items()}
        arguments = tuple(
            _passed(parameter, like, passed[parameter.name], alike.get(parameter.name))
            if parameter.name in passed and parameter.name not in fixed
            else like
            for parameter, like in zip(parameters, guessed, strict=True)
        )
        told = {n for n, v in passed.items() if not isinstance(v, AssumedSize)} | {*fixed}
        told |= {p.name for p in parameters if p.has_default}
        known = {a.name: a.value for a in arguments if a.type == "constexpr"}
        sizes = {n: int(v) for n, v in known.items() if _is_size(v) and n not in told}
        sizes |= self._as_asserted(sizes, known)
        sizes |= self._of_cubes(sizes, known)
        return tuple(
            signatures.constant(a.name, sizes[a.name]) if a.name in sizes else a for a in arguments
        )

    def _as_asserted(
        self, sizes: Mapping[str, int], known: Mapping[str, signatures.Value]
    ) -> dict[str, int]:
        """The guessed `sizes` as the kernel's tl.static_assert allow them."""
        allowed, names = dict(sizes), self.jitted.function.fn.__globals__

        def value(test: ast.expr, others: Mapping[str, int]) -> Any:
            return Scope(names, {**known, **allowed, **others}).value(test)

        tests = self.usage.static_asserts if sizes else []
        for test, holds in (part for each in tests for part in parts(each)):
            named = {n.id for n in ast.walk(test) if isinstance(n, ast.Name)}
            own = {name: size for name, size in allowed.items() if name in named}
            allowed |= allowed_sizes(test, holds, own, value)
        return allowed

    def _of_cubes(
        self, sizes: Mapping[str, int], known: Mapping[str, signatures.Value]
    ) -> dict[str, int]:
        """Shorter guessed sides for tiles of three axes or more, of as many elements as others."""
        shorter = dict(sizes)
        for sides in self.usage.cubes:
            own = {*sides} & {*sizes}
            while own and max(shorter[name] for name in own) > 1:
                lengths = (str({**known, **shorter}.get(each, each)) for each in sides)
                if math.prod(int(each) for each in lengths if each.isdigit()) <= _TILE:
                    break
                shorter = _halved(shorter, own)
        return shorter


def _is_size(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _halved(sizes: Mapping[str, int], names: Collection[str]) -> dict[str, int]:
    """Sizes of which the largest of some `names` is halved."""
    largest = max(names, key=lambda name: sizes[name])
    return {**sizes, largest: sizes[largest] // 2}


def _passed(
    parameter: signatures.Parameter, guessed: Argument, value: Any, alike: str | None = None
) -> Argument:
    """The argument for a value that a call passes; `guessed` supplies what the value leaves open.

    `alike` is the element type of another tensor of the same type.
    """
    name = parameter.name
    if isinstance(value, AssumedTensor):
        is_pointer = guessed.type.startswith("*")
        other = guessed.type.removeprefix("*") if is_pointer else "fp16"
        element = _element(value) or alike or other
        allowed = [t for a in value.allowed if (t := _type_name(a))]
        element = allowed[0] if allowed and element not in allowed else element
        return signatures.argument(name, f"*{element}:16")
    if isinstance(value, AssumedDescriptor):
        return Argument(name, f"tensordesc<{_element(value.tensor) or 'fp16'}{value.type}>")
    if parameter.is_constexpr or value is None:
        # Triton's type for one of PyTorch's.
        import triton.language as tl

        text = str(value)
        if text.startswith("torch."):
            value = getattr(tl, text.removeprefix("torch."), value)
        return signatures.constant(name, plain(value))
    if isinstance(value, bool):
        return Argument(name, "i1")
    if isinstance(value, int):
        # An integer as the launcher specialises it.
        if isinstance(value, AssumedCount):
            return guessed
        if parameter.is_specialized and value == 1:
            return signatures.constant(name, 1)
        type_ = parameter.type or ("i32" if -(2**31) <= value < 2**31 else "i64")
        return Argument(name, type_, parameter.is_specialized and value % 16 == 0)
    return Argument(name, "fp32") if isinstance(value, float) else guessed


def _element(tensor: AssumedTensor) -> str | None:
    return _type_name(tensor.dtype)


def _type_name(dtype: Any) -> str | None:
    return signatures.TYPE_NAMES.get(str(dtype).removeprefix("torch."))


# Compilations that only show whether a kernel compiles, each in a process of its own.
#
# A few can be started ahead, so that all cores compile.

_WRITES = re.compile(r"\b(?:st\.(?:\w+\.)*global|atom|red|multimem|cp\.async\.bulk|cp\.reduce)\.")


@record
class Problem:
    """Why a kernel does not compile. `is_kernel`: it does not with any arguments.

    `is_slow`: it may, given more time. `plain_global` is one that Triton refuses, with its place.
    """

    text: str
    is_kernel: bool = False
    is_slow: bool = False
    plain_global: tuple[str, str, int] | None = None


def problem_of(error: Exception, functions: Sequence[Any]) -> Problem:
    """The problem that an error of the compiler tells; `functions` are all jitted functions."""
    refused = plain_global(error, functions)
    return Problem(in_words(error, functions), is_of_source(error), plain_global=refused)


@record
class TrialCompilations:
    """Trial compilations for one target. `log` has the jitted functions; nothing is logged."""

    target: Any
    log: EventLog
    _begun: dict[str, ForkedTask] = field(default_factory=dict)

    def begin(
        self, jitted: Jitted, arguments: Sequence[Argument], options: Mapping[str, Any]
    ) -> None:
        """Start to compile a kernel in a process, unless that compilation is already running."""
        key = _key(jitted, arguments, options)
        if key not in self._begun:
            self._begun[key] = self._task(jitted, arguments, options)

    def problem(
        self,
        jitted: Jitted,
        arguments: Sequence[Argument],
        options: Mapping[str, Any],
        seconds: float,
    ) -> Problem | None:
        """The problem with these arguments; None if the kernel compiles and writes something."""
        self.begin(jitted, arguments, options)
        task = self._begun.pop(_key(jitted, arguments, options))
        try:
            failed = task.result(seconds)
        except TimeoutError:
            return Problem(f"within {seconds:.2g} s with these arguments", is_slow=True)
        except ChildProcessError:
            return Problem("the compiler crashes with these arguments")
        return Problem(**failed) if failed else None

    def close(self) -> None:
        """End the compilations whose problems were not asked for."""
        for task in self._begun.values():
            task.close()
        self._begun.clear()

    def _task(
        self, jitted: Jitted, arguments: Sequence[Argument], options: Mapping[str, Any]
    ) -> ForkedTask:
        self.log.how = None
        # One whose source has no store writes nothing with any arguments.
        is_test = not jitted.usage({}).may_write

        def compiled() -> dict[str, Any] | None:
            try:
                kernel = compile_for(self.target, jitted, arguments, options)
                written = _WRITES.search(str(kernel.asm["ptx"]))
            except Exception as error:
                return asdict(problem_of(error, self.log.functions))
            if written or is_test:
                return None
            return asdict(Problem("it writes nothing with these arguments"))

        return ForkedTask(compiled)


def _key(jitted: Jitted, arguments: Sequence[Argument], options: Mapping[str, Any]) -> str:
    return f"{jitted.name} {arguments} {sorted(options.items(), key=str)}"
