"""The values that a function has computed where it launches a kernel, without running it.

Its parameters are taken as contiguous tensors and typical sizes. What follows from them, from the
module's constants and from pure functions is computed; everything else is UNKNOWN.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import itertools
import operator
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from traceview.headless.project.assumed_tensor import (
    SIZE,
    UNKNOWN,
    AssumedDescriptor,
    AssumedSize,
    AssumedTensor,
    Method,
    Shape,
    Unknown,
    dtype_in,
    dtype_of,
    torch_,
)

_MOST_TURNS = 64
_CREATED = "empty zeros ones full rand randn randint tensor arange empty_strided"
_FACTORIES = frozenset(_CREATED.split())
_OF_TENSORS = frozenset(
    ("shape", "stride", "dtype", "numel", "contiguous", "data_ptr", "is_contiguous", "size")
)
Function = ast.FunctionDef | ast.AsyncFunctionDef
_OPERANDS = ("q", "k", "v", "query", "key", "value")
_SIZED = re.compile(
    r"size|dim|len|row|col|num|block|vocab|tokens|heads?|batch|hidden|features|channels|"
    r"(^|_)[a-z]$|^n_|_n$",
    re.IGNORECASE,
)
_LIKE = re.compile(r"(empty|zeros|ones|full|rand|randn)_like|clone")
_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.Not: operator.not_,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}


@dataclass
class Scope:
    """The names at a place in a function: `known` of the function, `globals_` of its module.

    `ranks` are the names that are used as tensors, with the number of dimensions or None.
    """

    globals_: Mapping[str, Any]
    known: dict[str, Any] = field(default_factory=dict)
    ranks: Mapping[str, int | None] = field(default_factory=dict)

    def value(self, node: ast.expr) -> Any:
        """The value of an expression, or UNKNOWN."""
        try:
            return self._value(node)
        except Exception:
            # Code of the project, computed with what it was not written for.
            return UNKNOWN

    def _value(self, node: ast.expr) -> Any:
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            raise Unknown
        return method(node)

    def _constant(self, node: ast.Constant) -> Any:
        return node.value

    def _name(self, node: ast.Name) -> Any:
        for names in (self.known, self.globals_, vars(builtins)):
            if node.id in names:
                value = names[node.id]
                if value is UNKNOWN:
                    raise Unknown
                return value
        raise Unknown

    def _attribute(self, node: ast.Attribute) -> Any:
        owner = self._value(node.value)
        if not isinstance(owner, AssumedTensor):
            return getattr(owner, node.attr)
        if node.attr == "shape":
            return Shape(owner)
        if node.attr == "dtype":
            return dtype_of(owner)
        if node.attr in ("T", "mT", "data", "grad"):
            return owner
        if node.attr == "device":
            return torch_().device("cuda", 0)
        if node.attr in ("is_cuda", "requires_grad"):
            return True
        if node.attr in ("ndim", "itemsize"):
            raise Unknown
        return Method(owner, node.attr)

    def _subscript(self, node: ast.Subscript) -> Any:
        owner = self._value(node.value)
        if isinstance(owner, AssumedTensor):
            return owner
        if isinstance(node.slice, ast.Slice):
            bounds = (node.slice.lower, node.slice.upper, node.slice.step)
            return owner[slice(*(None if b is None else self._value(b) for b in bounds))]
        return owner[self._value(node.slice)]

    def _binop(self, node: ast.BinOp) -> Any:
        left, right = self._value(node.left), self._value(node.right)
        tensor = next((v for v in (left, right) if isinstance(v, AssumedTensor)), None)
        return tensor or _OPERATORS[type(node.op)](left, right)

    def _unaryop(self, node: ast.UnaryOp) -> Any:
        return _OPERATORS[type(node.op)](self._value(node.operand))

    def _boolop(self, node: ast.BoolOp) -> Any:
        is_and = isinstance(node.op, ast.And)
        value: Any = is_and
        for part in node.values:
            value = self._value(part)
            if bool(value) != is_and:
                return value
        return value

    def _compare(self, node: ast.Compare) -> bool:
        left = self._value(node.left)
        for kind, right in zip(node.ops, map(self._value, node.comparators), strict=True):
            if isinstance(left, Shape) or isinstance(right, Shape):
                raise Unknown
            if not _OPERATORS[type(kind)](left, right):
                return False
            left = right
        return True

    def _ifexp(self, node: ast.IfExp) -> Any:
        test = self.value(node.test)
        return self._value(node.body if test is UNKNOWN or test else node.orelse)

    def _tuple(self, node: ast.Tuple) -> Any:
        return tuple(map(self.value, node.elts))

    def _list(self, node: ast.List) -> Any:
        return list(map(self.value, node.elts))

    def _listcomp(self, node: ast.ListComp) -> Any:
        scopes = [self]
        for generator in node.generators:
            scopes = [inner for scope in scopes for inner in scope._turns(generator)]
        return [scope.value(node.elt) for scope in scopes]

    def _turns(self, generator: ast.comprehension) -> Iterator[Scope]:
        """A scope for each turn of a loop in a comprehension."""
        for value in itertools.islice(self._value(generator.iter), _MOST_TURNS):
            inner = Scope(self.globals_, dict(self.known), self.ranks)
            inner.assign(generator.target, value)
            if all(inner.value(test) is not False for test in generator.ifs):
                yield inner

    def _set(self, node: ast.Set) -> Any:
        return set(map(self.value, node.elts))

    def _dict(self, node: ast.Dict) -> Any:
        pairs = zip(node.keys, node.values, strict=True)
        return {self._value(key): self.value(value) for key, value in pairs if key is not None}

    def _call(self, node: ast.Call) -> Any:
        function = self._value(node.func)
        arguments = [self._value(a) for a in node.args if not isinstance(a, ast.Starred)]
        keywords = {k.arg: self._value(k.value) for k in node.keywords if k.arg}
        if function is dict:
            return {k.arg: self.value(k.value) for k in node.keywords if k.arg}
        if isinstance(function, Method):
            return function(*arguments, **keywords)
        name = str(getattr(function, "__name__", ""))
        first = arguments[0] if arguments else None
        if isinstance(first, AssumedTensor) and _LIKE.fullmatch(name):
            return replace(first, dtype=dtype_in((), keywords) or first.dtype)
        if name in _FACTORIES and str(getattr(function, "__module__", "")) in ("torch", "None"):
            dtype = dtype_in((), keywords) or torch_().float32
            return AssumedTensor(name, dtype, _rank_of(arguments))
        if isinstance(first, AssumedTensor) and name in ("from_tensor", "TensorDescriptor"):
            at = 1 if name == "from_tensor" else 3
            block = keywords.get("block_shape") or arguments[at]
            return AssumedDescriptor(first, tuple(map(int, block)))
        if function is isinstance and isinstance(first, AssumedTensor):
            return "Tensor" in ast.unparse(node.args[1])
        given = (*arguments, *keywords.values())
        if any(isinstance(each, (AssumedTensor, Shape)) for each in given):
            return self._of_tensor(function, name)
        return function(*arguments, **keywords)

    def _of_tensor(self, function: Any, name: str) -> Any:
        if function in (max, min, sum, len) or name == "prod":
            return SIZE * SIZE if name == "prod" else SIZE
        raise Unknown

    def assign(self, target: ast.expr, value: Any) -> None:
        """Bind a name, or the names of a tuple."""
        if isinstance(target, ast.Name):
            if value is UNKNOWN and target.id in self.ranks:
                value = AssumedTensor(target.id)
            if isinstance(value, AssumedTensor) and value.rank is None:
                value = replace(value, rank=self.ranks.get(target.id))
            self.known[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            for at, part in enumerate(target.elts):
                self.assign(part, _part(value, at, part, len(target.elts)))


def _part(value: Any, at: int, target: ast.expr, count: int) -> Any:
    """The part of a value that goes to one of `count` targets."""
    if isinstance(value, Shape):
        name = target.id if isinstance(target, ast.Name) else ""
        if value.is_strides:
            return 1 if at == count - 1 else SIZE
        return value.tensor.size(at, name)
    if isinstance(value, (tuple, list)) and at < len(value):
        return value[at]
    if isinstance(value, AssumedTensor):
        return value
    return UNKNOWN


def scope_at(
    call: ast.Call,
    function: Function | None,
    module: ast.Module,
    globals_: Mapping[str, Any],
    depth: int = 2,
) -> Scope:
    """The names that are known where a call is made.

    What a parameter is comes from a caller in the same module, up to `depth` callers away.
    """
    scope = Scope(globals_)
    if function is None:
        _run(module.body, scope, call)
        return scope
    scope.ranks = _ranks(function)
    caller = _caller(function, module, globals_, depth)
    for name, value in _parameters(function, scope):
        scope.assign(ast.Name(name, ast.Store()), caller.get(name, value))
    _run(function.body, scope, call)
    return scope


def _caller(
    function: Function, module: ast.Module, globals_: Mapping[str, Any], depth: int
) -> dict[str, Any]:
    """The arguments of the first call of a function in its module, as far as they are known."""
    found = _first_call(module, None, function.name) if depth else None
    if found is None or found[0] is function:
        return {}
    scope = scope_at(found[1], found[0], module, globals_, depth - 1)
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    passed = (
        {}
        if any(isinstance(a, ast.Starred) for a in found[1].args)
        else dict(zip(names, map(scope.value, found[1].args), strict=False))
    )
    passed |= {k.arg: scope.value(k.value) for k in found[1].keywords if k.arg}
    return {name: value for name, value in passed.items() if value is not UNKNOWN}


def _first_call(
    node: ast.AST, function: Function | None, name: str
) -> tuple[Function | None, ast.Call] | None:
    for child in ast.iter_child_nodes(node):
        inside = child if isinstance(child, Function) else function
        called = child.func if isinstance(child, ast.Call) else None
        if isinstance(called, ast.Name) and called.id == name and isinstance(child, ast.Call):
            return inside, child
        found = _first_call(child, inside, name)
        if found:
            return found
    return None


def _parameters(function: Function, scope: Scope) -> Iterator[tuple[str, Any]]:
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    listed = [*zip(positional, defaults, strict=True)]
    listed += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    for argument, default in listed:
        annotation = ast.unparse(argument.annotation) if argument.annotation else ""
        if default is not None:
            yield argument.arg, scope.value(default)
        elif argument.arg in scope.ranks or re.search(r"\bTensor\b", annotation):
            yield argument.arg, AssumedTensor(argument.arg)
        else:
            yield argument.arg, _typical(argument.arg, annotation)


def _typical(name: str, annotation: str) -> Any:
    """A typical value of a parameter by its annotation."""
    if name in ("num_warps", "num_stages", "num_ctas"):
        return UNKNOWN
    if annotation == "bool":
        return False
    if annotation == "int" and _SIZED.search(name):
        return AssumedTensor(name).size(name=name)
    if annotation == "float":
        return 1.0
    if "dtype" in annotation or name.endswith("dtype"):
        return torch_().float16
    return UNKNOWN


def _ranks(function: Function) -> dict[str, int | None]:
    """The names that are used as tensors, with the dimensions that their uses show, or None."""
    shown: dict[str, int] = defaultdict(int)
    for node in ast.walk(function):
        owner = node.value if isinstance(node, ast.Attribute) else None
        if isinstance(owner, ast.Name) and getattr(node, "attr", "") in _OF_TENSORS:
            shown[owner.id] += 0
        for name, rank in _uses(node):
            shown[name] = max(shown[name], rank)
    # Uses show the least rank; operands of attention have the same.
    operands = [name for name in shown if name.lower() in _OPERANDS]
    shown |= dict.fromkeys(operands, max((shown[name] for name in operands), default=0))
    return {name: rank if rank > 1 else None for name, rank in shown.items()}


def _uses(node: ast.AST) -> Iterator[tuple[str, int]]:
    """The names of tensors in a node, with the least rank that it shows."""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
        name = _shape_of(node.value)
        starred = any(isinstance(each, ast.Starred) for each in node.targets[0].elts)
        if name and not starred:
            yield name, len(node.targets[0].elts)
    index: ast.expr | None = None
    if isinstance(node, ast.Compare) and isinstance(node.comparators[0], ast.Tuple):
        name = _shape_of(node.left)
        if name:
            yield name, len(node.comparators[0].elts)
    if isinstance(node, ast.Subscript):
        name, index = _shape_of(node.value), node.slice
    elif isinstance(node, ast.Call) and node.args:
        name, index = _shape_of(node.func), node.args[0]
    if isinstance(index, ast.Constant) and type(index.value) is int and name:
        yield name, index.value + 1


def _shape_of(node: ast.expr) -> str | None:
    """The name of the tensor in `x.shape`, `x.size()`, `x.stride`."""
    node = node.func if isinstance(node, ast.Call) and not node.args else node
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.value.id if node.attr in ("shape", "size", "stride") else None
    return None


def _rank_of(sizes: Sequence[Any]) -> int | None:
    """The rank of a tensor that is created with these sizes."""
    if not sizes:
        return None
    if isinstance(sizes[0], Shape):
        return None if sizes[0].is_strides else sizes[0].tensor.rank
    if isinstance(sizes[0], (tuple, list)):
        return len(sizes[0])
    return len(sizes) if all(isinstance(size, int) for size in sizes) else None


def _run(body: Sequence[ast.stmt], scope: Scope, until: ast.Call) -> bool:
    """Follow statements up to a call; whether it was reached."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        if isinstance(node, ast.If):
            if _run_if(node, scope, until):
                return True
            continue
        inner = [*getattr(node, "body", ()), *getattr(node, "orelse", ())]
        if isinstance(node, ast.For):
            scope.assign(node.target, _first_of(scope.value(node.iter)))
        if inner:
            if _run(inner, scope, until):
                return True
            continue
        if any(part is until for part in ast.walk(node)):
            return True
        _run_simple(node, scope)
    return False


def _run_if(node: ast.If, scope: Scope, until: ast.Call) -> bool:
    branches = [b for b in (node.body, node.orelse) if _holds(b, until)]
    if branches:
        return _run(branches[0], scope, until)
    test = scope.value(node.test)
    if test is UNKNOWN:
        # Either may be what runs.
        return _run(node.body, scope, until) or _run(node.orelse, scope, until)
    return _run(node.body if test else node.orelse, scope, until)


def _holds(body: Sequence[ast.stmt], call: ast.Call) -> bool:
    return any(part is call for node in body for part in ast.walk(node))


def _first_of(value: Any) -> Any:
    with contextlib.suppress(TypeError, StopIteration):
        return next(iter(value))
    return UNKNOWN


def _run_simple(node: ast.stmt, scope: Scope) -> None:
    if isinstance(node, ast.Assign):
        value = scope.value(node.value)
        for target in node.targets:
            scope.assign(target, value)
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        scope.assign(node.target, scope.value(node.value))
    elif isinstance(node, ast.Assert):
        _assume(node.test, scope)
    elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        grown = ast.BinOp(ast.Name(node.target.id, ast.Load()), node.op, node.value)
        scope.assign(node.target, scope.value(grown))


def _assume(test: ast.expr, scope: Scope) -> None:
    """Take what `assert bits in [8, 4, 2, 1]` allows: of a size the largest, else the middle."""
    if not (isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.In)):
        return
    allowed, value = scope.value(test.comparators[0]), scope.value(test.left)
    if not (
        isinstance(test.left, ast.Name) and isinstance(allowed, (tuple, list, set)) and allowed
    ):
        return
    if value is UNKNOWN:
        scope.assign(test.left, list(allowed)[len(allowed) // 2])
    elif isinstance(value, AssumedSize) and value not in allowed:
        scope.assign(test.left, AssumedSize(max(allowed)))
