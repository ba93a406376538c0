"""The arguments of a kernel as a call in the source of its project passes them."""

from __future__ import annotations

import ast
import itertools
import math
import re
import types
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from traceview.base.records import record
from traceview.kernels.headless import inference
from traceview.kernels.headless.project import assumed_tensor
from traceview.kernels.headless.project.assumed_tensor import (
    AssumedSize,
    AssumedTensor,
    Function,
    Method,
)
from traceview.kernels.headless.project.call_sites import (
    CallSite,
    calls_elsewhere,
    calls_of,
    default_of,
)
from traceview.kernels.headless.project.conditions import sizes_of_warps
from traceview.kernels.headless.project.expressions import Scope
from traceview.kernels.headless.signatures import TYPE_NAMES, Parameter, documented_types

# The values that are known in a function where it launches a kernel, without running it.
#
# Its parameters are taken as contiguous tensors and typical sizes, and its statements are
# followed up to the launch.

_SIZED = re.compile(
    r"size|dim|len|row|col|num|block|vocab|tokens|heads?|batch|hidden|features|channels|state|"
    r"(^|_)[a-z]$|^n_|_n$",
    re.IGNORECASE,
)
_STRIDE = re.compile(r"stride", re.IGNORECASE)
_BLOCK = 64
# Of folders above a file, and of a file of constants: larger ones take long to parse.
_MOST_LEVELS, _MOST_BYTES = 8, 200_000
_BY_ANNOTATION = {"int": _BLOCK, "float": 1.0, "bool": False, "str": ""}
_DTYPES = {
    "Long": "int64",
    "Int": "int32",
    "Short": "int16",
    "Byte": "uint8",
    "Bool": "bool",
    "Half": "float16",
    "BFloat16": "bfloat16",
}
_OF_TRITON = {short: name for name, short in TYPE_NAMES.items()}


@record
class Elsewhere:
    """What the other files of a project say of one of its files."""

    file: Path
    project: Path | None

    def calls(self, name: str) -> Sequence[CallSite]:
        """The calls of a function of the file, by its name or that of its class."""
        return calls_elsewhere(name, self.file, self.project)

    def default(self, name: str) -> int | None:
        """What integer parameters of a name are by default, mostly; None without any."""
        return default_of(name, self.file, self.project)


def scope_at(
    call: ast.Call,
    function: Function | None,
    module: ast.Module,
    globals_: Mapping[str, Any],
    depth: int = 2,
    elsewhere: Elsewhere | None = None,
) -> Scope:
    """The names that are known where a call is made.

    The values of parameters come from a caller in the same module, up to `depth` callers away, the
    types of tensors also from callers `elsewhere`.
    Tensors are contiguous; they are in channels-last order where that breaks fewer of the
    function's assertions and conditions of the call.
    """
    if function is None:
        scope = Scope(globals_, functions=_functions(module))
        scope.run(module.body, call)
        return scope
    of_caller = _caller(function, module, globals_, depth, elsewhere)
    context = _context(function, module, globals_, depth, elsewhere)
    given = (call, function, module, globals_, of_caller, context, elsewhere)
    scope = _scope_in(*given, channels_last=False)
    if not scope.broken:
        return scope
    other = _scope_in(*given, channels_last=True)
    return other if other.broken < scope.broken else scope


def _scope_in(
    call: ast.Call,
    function: Function,
    module: ast.Module,
    globals_: Mapping[str, Any],
    caller: Mapping[str, Any],
    context: SimpleNamespace | None = None,
    elsewhere: Elsewhere | None = None,
    *,
    channels_last: bool,
) -> Scope:
    """The names at a call in a function, for tensors of one memory layout."""
    ranks, limits = assumed_tensor.tensor_ranks(function), sizes_of_warps(function)
    scope = Scope(globals_, ranks=ranks, limits=limits, functions=_functions(module))
    allocated = _allocated(module, scope)
    for name, value in _parameters(function, scope, elsewhere):
        if isinstance(value, AssumedTensor) and not value.dtype:
            value.dtype = allocated.get(name)
        given = caller.get(name, value)
        given = value if given is assumed_tensor.NOT_NONE and value is not None else given
        scope.assign(ast.Name(name, ast.Store()), given)
    instance = context or _instance(function, module, globals_, elsewhere)
    if instance:
        scope.known[function.args.args[0].arg] = instance
    for value in scope.known.values() if channels_last else ():
        if isinstance(value, AssumedTensor):
            value.channels_last = (value.rank or 0) >= 3
    for name, value in _required(function, call):
        if scope.known.get(name) is assumed_tensor.UNKNOWN:
            scope.known[name] = value
    scope.run(function.body, call)
    return scope


def _required(function: Function, call: ast.Call) -> Iterator[tuple[str, Any]]:
    """The names, with their values, that the branches around a call compare: `if mode == "up"`."""
    for node in ast.walk(function):
        if not isinstance(node, ast.If) or not isinstance(test := node.test, ast.Compare):
            continue
        value = test.comparators[0]
        if isinstance(test.left, ast.Name) and isinstance(value, ast.Constant):
            inside = any(each is call for part in node.body for each in ast.walk(part))
            if inside and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
                yield test.left.id, value.value


def _allocated(module: ast.Module, scope: Scope) -> dict[str, Any]:
    """The types that a module names where it allocates tensors, by the tensors' names.

    `lse = torch.empty(…, dtype=torch.float32)` in one function tells of the `lse` that another
    one takes, unless a third allocates it with another type.
    """
    types_of: dict[str, set[Any]] = {}
    for node in ast.walk(module):
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        call = node.value if isinstance(node, ast.Assign) else None
        if isinstance(target, ast.Name) and isinstance(call, ast.Call):
            dtypes = (k.value for k in call.keywords if k.arg == "dtype")
            named = [scope.value(each) for each in dtypes if ast.unparse(each).startswith("torch.")]
            types_of.setdefault(target.id, set()).update(named)
    return {name: next(iter(found)) for name, found in types_of.items() if len(found) == 1}


def _functions(module: ast.Module) -> dict[str, ast.FunctionDef]:
    """The functions of a module that are no kernels, by name."""
    return {
        node.name: node
        for node in module.body
        if isinstance(node, ast.FunctionDef) and not node.decorator_list
    }


def _instance(
    function: Function,
    module: ast.Module,
    globals_: Mapping[str, Any],
    elsewhere: Elsewhere | None = None,
) -> SimpleNamespace | None:
    """The object of a method, with the attributes that `__init__` sets without a call.

    None for a function that is not a method of a class with `__init__`.
    """
    owner = next(
        (n for n in ast.walk(module) if isinstance(n, ast.ClassDef) and function in n.body), None
    )
    methods = [node for node in owner.body if isinstance(node, Function)] if owner else []
    init = next((method for method in methods if method.name == "__init__"), None)
    if init is None or not function.args.args:
        return None
    scope, instance = Scope(globals_), SimpleNamespace()
    scope.known |= dict(_parameters(init, scope, elsewhere))
    for node in ast.walk(init):
        if not isinstance(node, ast.Assign) or any(isinstance(n, ast.Call) for n in ast.walk(node)):
            continue
        value = scope.value(node.value)
        for target in node.targets:
            if isinstance(target, ast.Attribute) and value is not assumed_tensor.UNKNOWN:
                setattr(instance, target.attr, value)
    return instance


def _context(
    function: Function,
    module: ast.Module,
    globals_: Mapping[str, Any],
    depth: int,
    elsewhere: Elsewhere | None,
) -> SimpleNamespace | None:
    """The `ctx` of a torch.autograd.Function: in `backward`, with what `forward` saves."""
    classes = (node for node in ast.walk(module) if isinstance(node, ast.ClassDef))
    owner = next((each for each in classes if _is_autograd(each, function)), None)
    if owner is None or function.name == "forward":
        return SimpleNamespace() if owner else None
    context = SimpleNamespace()
    methods = (each for each in owner.body if isinstance(each, Function))
    for forward in (each for each in methods if each.name == "forward"):
        of_caller = _caller(forward, module, globals_, depth, elsewhere)
        # To its end: no call is this one.
        nowhere = ast.Call(ast.Name("", ast.Load()), [], [])
        _scope_in(nowhere, forward, module, globals_, of_caller, context, channels_last=False)
    return context


def _caller(
    function: Function,
    module: ast.Module,
    globals_: Mapping[str, Any],
    depth: int,
    elsewhere: Elsewhere | None,
) -> dict[str, Any]:
    """The arguments of a function as far as they are known: those of its first call in its module.

    Of calls in other files, the data types in the call that shows most of them, and the largest of
    the sizes that may be typical ones.
    """
    classes = (node for node in ast.walk(module) if isinstance(node, ast.ClassDef))
    is_forward = function.name == "forward"
    owner = next((c.name for c in classes if is_forward and _is_autograd(c, function)), "")
    first_call = _first_call(module, None, owner or function.name) if depth else None
    if first_call is not None and first_call[0] is not function:
        scope = scope_at(first_call[1], first_call[0], module, globals_, depth - 1, elsewhere)
        return _arguments(first_call[1], function, scope, bool(owner))
    # What a parameter is by default is usual, whatever a test passes.
    of = function.args
    needed = [a.arg for a in (*of.posonlyargs, *of.args)][: -len(of.defaults) or None]
    needed += [a.arg for a, d in zip(of.kwonlyargs, of.kw_defaults, strict=True) if d is None]
    passed = [
        _arguments(site.call, function, scope, bool(owner))
        for site in (elsewhere.calls(owner or function.name) if elsewhere and depth else ())
        for known in [globals_of(site.module, globals_)]
        for scope in [scope_at(site.call, site.function, site.module, known, 1)]
    ]
    types_of = [{n: t for n in needed if (t := _typed(n, each.get(n)))} for each in passed]
    sized = {n: of_size for n in needed if (of_size := _sized(n, [p.get(n) for p in passed]))}
    typed = max(types_of, key=len, default={})
    for name in typed.keys() & sized.keys():
        sized[name].dtype = typed[name].dtype
    return typed | sized


def _is_autograd(node: ast.ClassDef, function: Function) -> bool:
    """Whether a class is a torch.autograd.Function whose forward or backward is given."""
    return (
        function.name in ("forward", "backward")
        and function in node.body
        and any(ast.unparse(base).endswith("Function") for base in node.bases)
    )


def _typed(name: str, value: Any) -> Any:
    """A parameter as far as the type of what is passed shows it: a tensor or a type; else None."""
    if isinstance(value, AssumedTensor):
        return AssumedTensor(name, value.dtype) if value.dtype else None
    return value if isinstance(value, assumed_tensor.torch_().dtype) else None


def _sized(name: str, passed: Sequence[Any]) -> Any:
    """A parameter as far as calls show its size: a number, or a tensor; else None."""
    # How many rows or columns a test has says little, and is no constant of the kernel.
    is_side = inference.is_block(name) or AssumedTensor(name).size(name=name) != assumed_tensor.SIZE
    usual = [n for n in passed if assumed_tensor.is_usual(n) and is_side]
    tensors = [v for v in passed if isinstance(v, AssumedTensor) and v.sizes]
    if usual and not tensors:
        return AssumedSize(max(usual))
    # Of one call: those of several need not fit together.
    largest = max(tensors, key=lambda each: math.prod(each.sizes.values()), default=None)
    return largest and AssumedTensor(name, rank=largest.rank, sizes=dict(largest.sizes))


def _arguments(
    call: ast.Call, function: Function, scope: Scope, without_first: bool
) -> dict[str, Any]:
    """What a call passes to the parameters of a function, as far as it is known."""
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)][without_first:]
    starred = any(isinstance(a, ast.Starred) for a in call.args)
    passed = {} if starred else dict(zip(names, map(scope.value, call.args), strict=False))
    passed |= {k.arg: scope.value(k.value) for k in call.keywords if k.arg}
    # An attribute of a tensor that is not known reads as a method.
    unknown = assumed_tensor.UNKNOWN
    return {
        name: assumed_tensor.NOT_NONE if value is unknown or isinstance(value, Method) else value
        for name, value in passed.items()
    }


def _first_call(
    node: ast.AST, function: Function | None, name: str
) -> tuple[Function | None, ast.Call] | None:
    for child in ast.iter_child_nodes(node):
        inside = child if isinstance(child, Function) else function
        called = ast.unparse(child.func) if isinstance(child, ast.Call) else ""
        if called.removesuffix(".apply") == name and isinstance(child, ast.Call):
            return inside, child
        nested = _first_call(child, inside, name)
        if nested:
            return nested
    return None


def _parameters(
    function: Function, scope: Scope, elsewhere: Elsewhere | None = None
) -> Iterator[tuple[str, Any]]:
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    listed = [*zip(positional, defaults, strict=True)]
    listed += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    documented, tested = documented_types(function), _parametrized(function, scope)
    needed = assumed_tensor.needed_tensors(function)
    for argument, default in listed:
        annotation = ast.unparse(argument.annotation) if argument.annotation else ""
        if argument.arg in tested:
            yield argument.arg, tested[argument.arg]
        elif default is not None and not (_is_none(default) and argument.arg in needed):
            yield argument.arg, scope.value(default)
        elif argument.arg in scope.ranks or re.search(r"Tensor\b", annotation):
            dtype = _annotated_dtype(annotation) or _OF_TRITON.get(documented.get(argument.arg, ""))
            yield argument.arg, AssumedTensor(argument.arg, _torch_dtype(dtype))
        else:
            value = _typical(argument.arg, annotation)
            is_size = isinstance(value, AssumedSize) or not annotation
            by_default = elsewhere.default(argument.arg) if elsewhere and is_size else None
            yield argument.arg, AssumedSize(by_default) if by_default else value


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _parametrized(function: Function, scope: Scope) -> dict[str, Any]:
    """What pytest or a benchmark gives to parameters of a test: data types and usual sizes.

    Of each a half type, if any is one, and the largest size.
    """
    given, torch = dict[str, Any](), assumed_tensor.torch_()
    for name, value in _settings(function, scope):
        is_half = given.get(name) in (torch.float16, torch.bfloat16)
        if isinstance(value, torch.dtype) and not (is_half and value is torch.float32):
            given[name] = value
        elif assumed_tensor.is_usual(value):
            given[name] = AssumedSize(max(value, given.get(name, 0)))
    return given


def _settings(function: Function, scope: Scope) -> Iterator[tuple[str, Any]]:
    """The names with the values that decorators give them, of pytest and triton.testing."""
    calls = [n for d in function.decorator_list for n in ast.walk(d) if isinstance(n, ast.Call)]
    for call in calls:
        called = ast.unparse(call.func).rpartition(".")[2]
        listed = {k.arg: scope.value(k.value) for k in call.keywords if k.arg}
        names, rows = listed.get("x_names"), listed.get("x_vals")
        if called == "parametrize" and len(call.args) > 1:
            names, rows = map(scope.value, call.args[:2])
        elif called != "Benchmark":
            continue
        elif isinstance(fixed := listed.get("args"), dict):
            yield from fixed.items()
        names = re.findall(r"\w+", names) if isinstance(names, str) else names
        if not isinstance(names, (list, tuple)) or not isinstance(rows, (list, tuple, range)):
            continue
        for row in reversed(rows):
            # One value may be for several names.
            values = row if isinstance(row, (list, tuple)) else [row] * len(names)
            yield from zip(names, values, strict=False)


def _torch_dtype(name: str | None) -> Any:
    return getattr(assumed_tensor.torch_(), name) if name else None


def _annotated_dtype(annotation: str) -> str | None:
    """The type that `torch.LongTensor` names; FloatTensor is also written where half is passed."""
    named = re.search(r"\b(Long|Int|Short|Byte|Bool|Half|BFloat16)Tensor\b", annotation)
    return _DTYPES[named[1]] if named else None


def _typical(name: str, annotation: str) -> Any:
    if name in ("num_warps", "num_stages", "num_ctas"):
        return assumed_tensor.UNKNOWN
    if annotation == "bool":
        return False
    if annotation == "int" and inference.is_block(name):
        return AssumedSize(_BLOCK)
    if annotation == "int" and _SIZED.search(name):
        return AssumedTensor(name).size(name=name)
    if annotation == "float":
        return assumed_tensor.AssumedNumber(1.0)
    if "dtype" in annotation or name.endswith("dtype"):
        return assumed_tensor.torch_().float16
    return assumed_tensor.UNKNOWN


_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "enable_fp_fusion")


@record
class LaunchArguments:
    """The arguments of a call site: `values` of parameters where known, and compile `options`."""

    place: str
    values: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, int] = field(default_factory=dict)


def launch_arguments(
    site: CallSite,
    parameters: Sequence[Parameter],
    globals_: Mapping[str, Any],
    project: Path | None = None,
) -> LaunchArguments:
    """The arguments at a call site; `globals_` are the names of the module that the kernel is in.

    A module other than the kernel's own is not imported: its constants are read from its source.
    """
    elsewhere = Elsewhere(site.file, project)
    scope = scope_at(site.call, site.function, site.module, globals_, elsewhere=elsewhere)
    passed = dict(_passed(site.call, parameters, scope))
    left_open = {id(assumed_tensor.UNKNOWN), id(assumed_tensor.NOT_NONE)}
    known = {name: value for name, value in passed.items() if id(value) not in left_open}
    options = {n: known[n] for n in _OPTIONS if type(known.get(n)) in (int, bool)}
    options = {n: value for n, value in options.items() if n != "num_warps" or 1 <= value <= 32}
    names = [parameter.name for parameter in parameters]
    return LaunchArguments(site.place, {n: known[n] for n in names if n in known}, options)


def call_kernel_factories(
    path: str, names: Mapping[str, Any], project: Path | None, kernel: str | None = None
) -> None:
    """Call the functions of a file, by `names`, that define kernels, or one kernel alone.

    What they need is passed as the first call in the project passes it, else by its annotation.
    Kernels that a function defines before it raises are kept.
    """
    for node in ast.parse(Path(path).read_bytes()).body:
        if not isinstance(node, ast.FunctionDef):
            continue
        inner = [each for each in ast.walk(node) if isinstance(each, ast.FunctionDef)]
        wanted = (f for f in inner if f is not node and kernel in (None, f.name))
        decorators = (d for each in wanted for d in each.decorator_list)
        if any("jit" in ast.unparse(d).split("(")[0] for d in decorators):
            with suppress(Exception):
                names[node.name](**_needed(node, Path(path), names, project))


def _needed(
    factory: ast.FunctionDef, file: Path, names: Mapping[str, Any], project: Path | None
) -> dict[str, Any]:
    """The arguments of a function that have no default."""
    of = factory.args
    places = [*of.posonlyargs, *of.args]
    needed = places[: len(places) - len(of.defaults)]
    needed += [a for a, d in zip(of.kwonlyargs, of.kw_defaults, strict=True) if d is None]
    site = next(calls_of(factory.name, file, project), None) if needed else None
    passed = dict[str, Any]()
    if site:
        scope = scope_at(site.call, site.function, site.module, names)
        given = zip((a.arg for a in places), site.call.args, strict=False)
        by_name = ((k.arg, k.value) for k in site.call.keywords if k.arg)
        passed = {name: scope.value(value) for name, value in (*given, *by_name)}
    guesses = {
        a.arg: _BY_ANNOTATION.get(ast.unparse(a.annotation or ast.Name("int"))) for a in needed
    }
    known = {n: v for n, v in passed.items() if isinstance(v, (bool, int, float, str))}
    return guesses | known


def globals_of(
    module: ast.Module, known: Mapping[str, Any], file: Path | None = None
) -> dict[str, Any]:
    """The constants of a module that is not imported, on top of the names in `known`.

    With its `file`, also those that it imports by name from a file of its project.
    """
    imported = dict(_imported_constants(module, file)) if file else {}
    scope = Scope({"torch": assumed_tensor.torch_(), **imported, **known})
    scope.known |= imported
    for node in module.body:
        if isinstance(node, ast.Assign):
            value = scope.value(node.value)
            for target in node.targets:
                scope.assign(target, value)
    modules = {n: v for n, v in known.items() if isinstance(v, types.ModuleType)}
    return {"torch": assumed_tensor.torch_(), **modules, **scope.known}


def _imported_constants(module: ast.Module, file: Path) -> Iterator[tuple[str, Any]]:
    """The numbers and texts that a file imports by name from another one of its project."""
    for node in module.body:
        if not isinstance(node, ast.ImportFrom) or not node.module:
            continue
        place = Path(*node.module.split(".")).with_suffix(".py")
        folders = file.parents[node.level - 1 :][:1] if node.level else file.parents[:_MOST_LEVELS]
        path = next((folder / place for folder in folders if (folder / place).is_file()), None)
        if path is None or path.stat().st_size > _MOST_BYTES:
            continue
        with suppress(OSError, ValueError, SyntaxError):
            values = globals_of(ast.parse(path.read_bytes()), {})
            for name in node.names:
                if isinstance(value := values.get(name.name), (int, float, str)):
                    yield name.asname or name.name, value


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
    names = deque(parameter.name for parameter in parameters)
    for at, argument in enumerate(call.args):
        if isinstance(argument, ast.Starred):
            # Those named as strides are for the unpacked values that follow one another.
            run = list(itertools.takewhile(_STRIDE.search, names))
            following = sum(1 for _ in itertools.takewhile(_is_several_strides, call.args[at:]))
            groups = [len([*each]) for _, each in itertools.groupby(run or names, _strided)]
            # Other names have theirs in common, too: san, sah, sad.
            is_own = bool(names and _strided(names[0])) and min(groups[:following], default=0) > 1
            alike = len(groups) == following if run else is_own
            equal = len(run) // max(following, 1)
            most = (groups[0] if groups and alike else equal) or share
            yield from _unpacked(argument, names, most, unpacked[id(argument)])
        else:
            yield names.popleft() if names else "", scope.value(argument)
    for keyword in call.keywords:
        value = scope.value(keyword.value)
        if keyword.arg:
            yield keyword.arg, value
        elif isinstance(value, dict):
            yield from value.items()


def _strided(name: str) -> str:
    """The part of a stride's name that names its tensor: q of q_stride_b, stride_q of stride_qb."""
    head = name.rpartition("_")[0]
    return name[:-1] if head in ("", "stride") else head


def _is_several_strides(argument: ast.expr) -> bool:
    return isinstance(argument, ast.Starred) and bool(_STRIDE.search(ast.unparse(argument)))


def _several(node: ast.expr, scope: Scope) -> Any:
    """The value that is unpacked; of `(a, b) if x is not None else 0`, the pair."""
    value = scope.value(node)
    if isinstance(value, assumed_tensor.Shape) and value.tensor.rank:
        return tuple(value[at] for at in range(value.tensor.rank))
    if isinstance(node, ast.IfExp) and isinstance(value, int):
        return scope.value(node.body)
    return value


def _unpacked(
    argument: ast.Starred, names: deque[str], most: int, value: Any
) -> Iterator[tuple[str, Any]]:
    """The arguments of `*x.stride()`, at most as many as there are parameters left for it."""
    is_known = isinstance(value, (tuple, list))
    count = len(value) if is_known else most
    are_strides = "stride" in ast.unparse(argument)
    for at in range(min(count, len(names))):
        name = names.popleft()
        stride = 1 if at == most - 1 else assumed_tensor.SIZE
        usual = stride if are_strides or _STRIDE.search(name) else assumed_tensor.UNKNOWN
        yield name, value[at] if is_known else usual
