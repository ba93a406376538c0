"""Values of names and expressions in a function of a project, which is followed, not run.

What follows from known names, the module's constants and pure functions is computed; everything
else is UNKNOWN.
"""

from __future__ import annotations

import ast
import builtins
import itertools
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, TypeGuard

from traceview.kernels.headless.project.assumed_tensor import (
    NOT_NONE,
    SIZE,
    UNKNOWN,
    AssumedCount,
    AssumedDescriptor,
    AssumedSize,
    AssumedTensor,
    CoveringSize,
    Method,
    Shape,
    Unknown,
    dtype_in,
    dtype_of,
    rank_of,
    sizes_in,
    tensor_ranks,
    torch_,
)
from traceview.kernels.headless.project.conditions import allowed_sizes, is_refusal, parts

_MOST_TURNS = 64
_SWITCH = re.compile(r"trans(pose)?(_|d|$)|is_trans", re.IGNORECASE)
_CREATED = "empty zeros ones full rand randn randint tensor arange empty_strided"
_FACTORIES = frozenset(_CREATED.split())
_INTEGERS = ("arange", "randint")
_LIKE = re.compile(r"(empty|zeros|ones|full|rand|randn)_like|clone|Parameter")
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

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
# What may change any name, or ends a function without a value.
_UNFOLLOWED = (ast.For, ast.AsyncFor, ast.While, ast.Match, ast.Raise)


@dataclass
class Scope:
    """The names at a place in a function: `known` in the function, `globals_` in its module.

    `ranks` maps the names that are used as tensors to their number of dimensions or None. `limits`
    are the most that some sizes are assumed to be. `broken` counts the conditions that the program
    needs and that do not hold. `functions` are those of the
    module, whose results are followed where they are called with tensors.
    """

    globals_: Mapping[str, Any]
    known: dict[str, Any] = field(default_factory=dict)
    ranks: Mapping[str, int | None] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    broken: int = 0
    functions: Mapping[str, ast.FunctionDef] = field(default_factory=dict)
    returned: Any = None

    def value(self, node: ast.expr) -> Any:
        """The value of an expression, or UNKNOWN."""
        try:
            return self._value(node)
        except Exception:
            # Code of the project, computed with what it was not written for.
            return UNKNOWN

    def expect(self, test: ast.expr, holds: bool) -> None:
        """Count a condition that is known not to have the value that the program needs."""
        value = self.value(test)
        self.broken += isinstance(value, (bool, int)) and bool(value) != holds

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
        if node.attr == "ndim":
            return owner.dimensions
        if node.attr == "itemsize":
            raise Unknown
        return Method(owner, node.attr)

    def _subscript(self, node: ast.Subscript) -> Any:
        owner = self._value(node.value)
        if isinstance(owner, AssumedTensor):
            taken = self._leading_integers(node.slice)
            left = (owner.rank or 0) - taken
            sizes = {at - taken: n for at, n in owner.sizes.items() if at >= taken}
            return owner if left < 1 else replace(owner, rank=left, sizes=sizes)
        if isinstance(owner, dict):
            key = self.value(node.slice)
            return _any_entry(owner) if key is UNKNOWN and owner else owner[key]
        if isinstance(node.slice, ast.Slice):
            bounds = (node.slice.lower, node.slice.upper, node.slice.step)
            return owner[slice(*(None if b is None else self._value(b) for b in bounds))]
        return owner[self._value(node.slice)]

    def _leading_integers(self, index: ast.expr) -> int:
        """The dimensions that `x[b, h]` and `x[0, :, :]` select one element of, before others."""
        parts = index.elts if isinstance(index, ast.Tuple) else [index]
        at = list(map(self.value, parts))
        return sum(1 for _ in itertools.takewhile(lambda each: type(each) is int, at))

    def _binop(self, node: ast.BinOp) -> Any:
        left, right = self._value(node.left), self._value(node.right)
        tensor = next((v for v in (left, right) if isinstance(v, AssumedTensor)), None)
        if _are_equal_sizes(left, right) and isinstance(node.op, ast.FloorDiv):
            return AssumedSize(1)
        result = tensor or _OPERATORS[type(node.op)](left, right)
        is_part = isinstance(node.op, ast.FloorDiv) and isinstance(left, AssumedSize)
        return AssumedCount(1) if is_part and result == 1 else result

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
        if test is UNKNOWN and isinstance(node.test, ast.Name):
            # A switch that nothing sets is off: `x.stride(3 if trans_x else 2)`.
            test = not _SWITCH.match(node.test.id)
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
        """One scope per iteration of a loop in a comprehension."""
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
        helper = self.functions.get(ast.unparse(node.func))
        passed = [self.value(argument) for argument in node.args] if helper else []
        of_tensors = any(isinstance(each, (AssumedTensor, Shape)) for each in passed)
        if helper and not node.keywords:
            try:
                result = self._result_of(helper, passed)
            except (Unknown, ValueError):
                result = UNKNOWN
            # Numbers alone are given to the function itself where its source is not understood.
            if of_tensors or result is not UNKNOWN:
                return result
        return self._called(node)

    def _called(self, node: ast.Call) -> Any:
        function = self.value(node.func)
        arguments = [self._value(a) for a in node.args if not isinstance(a, ast.Starred)]
        if function is UNKNOWN:
            is_view = isinstance(node.func, ast.Attribute) and node.func.attr in ("view", "reshape")
            if not is_view or len(arguments) < len(node.args) or not rank_of(arguments):
                raise Unknown
            # A tensor of unknown origin, such as of a layer, in its new shape.
            shape = rank_of(arguments), sizes_in(arguments)
            return AssumedTensor(ast.unparse(node.func), rank=shape[0], sizes=shape[1])
        if function is dict:
            return {k.arg: self.value(k.value) for k in node.keywords if k.arg}
        unpacked = (self.value(k.value) for k in node.keywords if not k.arg)
        keywords = {n: v for each in unpacked if isinstance(each, dict) for n, v in each.items()}
        keywords |= {k.arg: self._value(k.value) for k in node.keywords if k.arg}
        if isinstance(function, Method):
            result = function(*arguments, **keywords)
            unseen = len(arguments) < len(node.args) and isinstance(result, AssumedTensor)
            return replace(result, rank=None, sizes={}) if unseen else result
        name = str(getattr(function, "__name__", ""))
        first = arguments[0] if arguments else None
        if isinstance(first, AssumedTensor) and _LIKE.fullmatch(name):
            return replace(first, dtype=dtype_in((), keywords) or first.dtype)
        if name in _FACTORIES and str(getattr(function, "__module__", "")) in ("torch", "None"):
            alike = self._dtype_owner(node)
            if alike:
                rank = rank_of(arguments)
                return replace(alike, rank=rank, channels_last=False, sizes=sizes_in(arguments))
            usual = torch_().int64 if name in _INTEGERS else torch_().float32
            dtype = dtype_in((), keywords) or usual
            sizes = sizes_in(arguments) if name not in _INTEGERS else {}
            return AssumedTensor(name, dtype, rank_of(arguments), sizes=sizes)
        if isinstance(first, AssumedTensor) and name in ("from_tensor", "TensorDescriptor"):
            at = 1 if name == "from_tensor" else 3
            block = keywords.get("block_shape") or arguments[at]
            return AssumedDescriptor(first, tuple(map(int, block)))
        if function is isinstance and isinstance(first, AssumedTensor):
            # Not of a subclass, such as DTensor.
            return bool(re.search(r"\bTensor\b", ast.unparse(node.args[1])))
        return _plainly(function, name, arguments, keywords)

    def _result_of(self, helper: ast.FunctionDef, passed: Sequence[Any]) -> Any:
        """What a function of the module returns, its own calls of such functions left out."""
        scope = Scope(self.globals_, ranks=tensor_ranks(helper))
        for argument, value in zip(helper.args.args, passed, strict=True):
            scope.assign(ast.Name(argument.arg, ast.Store()), value)
        scope.run(helper.body)
        return scope.returned

    def run(self, body: Sequence[ast.stmt], until: ast.Call | None = None) -> bool:
        """Follow statements up to a call; return whether it is reached.

        Without a call they are followed up to a return, whose value `returned` has then. Raises
        Unknown at a loop or an error before it.
        """
        kept = (node for node in body if not isinstance(node, _DEFINITIONS))
        return any(self._reaches(node, until) for node in kept)

    def _reaches(self, node: ast.stmt, until: ast.Call | None) -> bool:
        """Follow one statement, as `run` does."""
        if isinstance(node, ast.If):
            return self._run_if(node, until)
        if until is None and isinstance(node, _UNFOLLOWED):
            raise Unknown
        if isinstance(node, ast.For):
            self.assign(node.target, _first_of(self.value(node.iter)))
        if inner := [*getattr(node, "body", ()), *getattr(node, "orelse", ())]:
            return self.run(inner, until)
        if until is None and isinstance(node, ast.Return):
            self.returned = self._value(node.value) if node.value else None
            return True
        if until is not None and _has([node], until):
            return True
        self._run_simple(node)
        return False

    def _run_if(self, node: ast.If, until: ast.Call | None) -> bool:
        both = (node.body, node.orelse)
        branches = [body for body in both if until and _has(body, until)]
        if branches:
            self.expect(node.test, branches[0] is node.body)
            return self.run(branches[0], until)
        if until is not None and is_refusal(node):
            self._assume(node.test, holds=False)
        test = self.value(node.test)
        if test is UNKNOWN and until is not None:
            # Either branch may run.
            return self.run(node.body, until) or self.run(node.orelse, until)
        return self.run(node.body if test is not UNKNOWN and test else node.orelse, until)

    def _run_simple(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Assign):
            self._run_assign(node)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self.assign(node.target, self.value(node.value))
        elif isinstance(node, ast.Assert):
            self._assume(node.test)
            self.expect(node.test, True)
        elif isinstance(call := getattr(node, "value", None), ast.Call) and (
            isinstance(call.func, ast.Attribute) and call.func.attr == "save_for_backward"
        ):
            saved = ast.Attribute(call.func.value, "saved_tensors", ast.Store())
            self.assign(saved, tuple(map(self.value, call.args)))
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            grown = ast.BinOp(ast.Name(node.target.id, ast.Load()), node.op, node.value)
            self.assign(node.target, self.value(grown))

    def _run_assign(self, node: ast.Assign) -> None:
        names, values = node.targets[0], node.value
        parts = values.elts if isinstance(values, ast.Tuple) else []
        starred = sum(isinstance(part, ast.Starred) for part in parts)
        if isinstance(names, ast.Tuple) and starred == 1:
            self.assign_all(names.elts, parts)
            return
        value = self.size_named(names, values) or self.value(values)
        for target in node.targets:
            self.assign(target, value)

    def _assume(self, test: ast.expr, *, holds: bool = True) -> None:
        """Apply a condition that the program needs to what is assumed of sizes and types."""
        for part, value in parts(test, holds):
            self._assume_listed(part, value)
            if tensor := self._typed_tensor(part, value):
                tensor.allowed = tensor.allowed or self._types_in(part)
            # Strides follow from how tensors lie in memory.
            if "stride" not in ast.unparse(part):
                self._assume_sizes(part, value)

    def _typed_tensor(self, test: ast.expr, holds: bool) -> AssumedTensor | None:
        """The tensor of whose type alone a condition is, such as `x.dtype in (…)`."""
        listed = test.values if isinstance(test, ast.BoolOp) else [test]
        kinds = (ast.In, ast.Eq) if holds else (ast.NotIn, ast.NotEq)
        owners = set[str]()
        for each in listed:
            left = each.left if isinstance(each, ast.Compare) else None
            if not isinstance(each, ast.Compare) or not isinstance(each.ops[0], kinds):
                return None
            if not isinstance(left, ast.Attribute) or left.attr != "dtype":
                return None
            owners.add(ast.unparse(left.value))
        named = ast.parse(owners.pop(), mode="eval").body if len(owners) == 1 else None
        owner = self.value(named) if named else None
        return owner if isinstance(owner, AssumedTensor) and not owner.dtype else None

    def _types_in(self, test: ast.expr) -> tuple[Any, ...]:
        """The types that a condition names."""
        kind = torch_().dtype
        listed = test.values if isinstance(test, ast.BoolOp) else [test]
        rights = [each.comparators[0] for each in listed if isinstance(each, ast.Compare)]
        # The type of another tensor is assumed itself.
        named = (self.value(r) for r in rights if not ast.unparse(r).endswith(".dtype"))
        values = [each if isinstance(each, (tuple, list, set)) else [each] for each in named]
        return tuple(each for some in values for each in some if isinstance(each, kind))

    def _assume_sizes(self, test: ast.expr, holds: bool) -> None:
        """Replace assumed sizes that a condition rules out: `assert d <= 256`."""
        nodes = {ast.unparse(n): n for n in ast.walk(test) if self._is_size(n)}
        inner = {ast.unparse(n) for each in nodes.values() for n in ast.walk(each) if n is not each}
        nodes = {text: node for text, node in nodes.items() if text not in inner}
        sizes = {text: int(self.value(node)) for text, node in nodes.items()}

        def value(condition: ast.expr, candidate: Mapping[str, int]) -> Any:
            return replace(self, known={**self.known, **candidate}).value(condition)

        for text, size in allowed_sizes(test, holds, sizes, value).items():
            node = nodes[text]
            if size != sizes[text] and isinstance(node, ast.Name):
                self.assign(node, AssumedSize(size))
            elif size != sizes[text] and (place := self._dimension(node)):
                place[0].sizes[place[0].place(place[1])] = size

    def _is_size(self, node: ast.AST) -> TypeGuard[ast.expr]:
        if not isinstance(node, ast.expr) or not isinstance(self.value(node), AssumedSize):
            return False
        return isinstance(node, ast.Name) or self._dimension(node) is not None

    def _dimension(self, node: ast.AST) -> tuple[AssumedTensor, int] | None:
        """The tensor and the dimension of `x.shape[1]` and `x.size(1)`."""
        owner, at = None, None
        if isinstance(node, ast.Subscript):
            shape, at = self.value(node.value), self.value(node.slice)
            owner = shape.tensor if isinstance(shape, Shape) and not shape.is_strides else None
        elif isinstance(node, ast.Call) and len(node.args) == 1:
            method, at = self.value(node.func), self.value(node.args[0])
            is_size = isinstance(method, Method) and method.name == "size"
            owner = method.tensor if is_size else None
        return (owner, at) if owner and type(at) is int else None

    def _assume_listed(self, test: ast.expr, holds: bool) -> None:
        """Apply `assert bits in [8, 4, 2]`: a size becomes the largest, an unknown the middle."""
        kind = ast.In if holds else ast.NotIn
        if not (isinstance(test, ast.Compare) and isinstance(test.ops[0], kind)):
            return
        allowed, value = self.value(test.comparators[0]), self.value(test.left)
        if not (
            isinstance(test.left, ast.Name) and isinstance(allowed, (tuple, list, set)) and allowed
        ):
            return
        if value is UNKNOWN:
            self.assign(test.left, list(allowed)[len(allowed) // 2])
        elif isinstance(value, AssumedSize) and value not in allowed:
            self.assign(test.left, AssumedSize(max(allowed)))

    def _dtype_owner(self, call: ast.Call) -> AssumedTensor | None:
        for keyword in call.keywords:
            dtype = keyword.value
            if keyword.arg == "dtype" and isinstance(dtype, ast.Attribute):
                owner = self.value(dtype.value)
                if dtype.attr == "dtype" and isinstance(owner, AssumedTensor) and not owner.dtype:
                    return owner
        return None

    def assign_all(self, targets: Sequence[ast.expr], values: Sequence[ast.expr]) -> None:
        """Bind the names of a tuple to values, one of which may be starred: `*x.shape, n`."""
        count = len(targets) - len(values) + 1
        waiting = list(targets)
        for each in values:
            starred = isinstance(each, ast.Starred)
            value = self.value(each.value if isinstance(each, ast.Starred) else each)
            taken = [waiting.pop(0) for _ in range(count if starred else 1) if waiting]
            for at, target in enumerate(taken):
                self.assign(target, _part(value, at, target, count) if starred else value)

    def size_named(self, target: ast.expr, value: ast.expr) -> AssumedSize | None:
        """The size in `heads = x.shape[1]` and `x.size(1)`, as the name suggests; else None."""
        if not isinstance(target, ast.Name):
            return None
        shape, at = None, UNKNOWN
        if isinstance(value, ast.Subscript):
            shape, at = self.value(value.value), self.value(value.slice)
        elif isinstance(value, ast.Call) and len(value.args) == 1:
            method, at = self.value(value.func), self.value(value.args[0])
            is_size = isinstance(method, Method) and method.name == "size"
            shape = Shape(method.tensor) if is_size else None
        if not isinstance(shape, Shape) or shape.is_strides or isinstance(at, slice):
            return None
        return shape.tensor.size(at if type(at) is int else None, target.id)

    def assign(self, target: ast.expr, value: Any) -> None:
        """Bind a name, or the names of a tuple."""
        if isinstance(target, ast.Name):
            if (value is UNKNOWN or value is NOT_NONE) and target.id in self.ranks:
                value = AssumedTensor(target.id)
            if isinstance(value, AssumedTensor) and value.rank is None:
                value = replace(value, rank=self.ranks.get(target.id))
            most = self.limits.get(target.id, 0)
            if most and isinstance(value, AssumedSize) and type(value) is not CoveringSize:
                value = AssumedSize(min(value, most))
            self.known[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            for at, part in enumerate(target.elts):
                self.assign(part, _part(value, at, part, len(target.elts)))
        elif isinstance(target, ast.Attribute):
            owner = self.value(target.value)
            if isinstance(owner, SimpleNamespace):
                setattr(owner, target.attr, value)


def _has(body: Sequence[ast.stmt], call: ast.Call) -> bool:
    return any(part is call for node in body for part in ast.walk(node))


def _first_of(value: Any) -> Any:
    with suppress(TypeError, StopIteration):
        return next(iter(value))
    return UNKNOWN


def _plainly(
    function: Any, name: str, arguments: Sequence[Any], keywords: Mapping[str, Any]
) -> Any:
    """What a function returns that is called; a typical size of one that is given a tensor.

    Raises Unknown for another function of a tensor.
    """
    first = arguments[0] if arguments else None
    if function in (list, tuple) and isinstance(first, Shape) and first.tensor.rank:
        return function(first[at] for at in range(first.tensor.rank))
    if any(isinstance(each, (AssumedTensor, Shape)) for each in (*arguments, *keywords.values())):
        if function in (max, min, sum, len) or name == "prod":
            return SIZE * SIZE if name == "prod" else SIZE
        raise Unknown
    if name == "cdiv" and _are_equal_sizes(*arguments):
        return AssumedSize(1)
    result = function(*arguments, **keywords)
    if name == "cdiv" and isinstance(first, AssumedSize) and result == 1:
        return AssumedCount(1)
    # The power of two that covers an assumed size is assumed, too, unless another bound sets it.
    rounds = function in (max, int) or name == "next_power_of_2"
    is_assumed = rounds and any(isinstance(a, AssumedSize) and a <= result for a in arguments)
    others = [a for a in arguments if not isinstance(a, AssumedSize)]
    if not is_assumed or result in others:
        return result
    covering = CoveringSize(result)
    covering.size = max(a for a in arguments if isinstance(a, AssumedSize))
    return covering if name == "next_power_of_2" else AssumedSize(result)


def _are_equal_sizes(*values: Any) -> bool:
    """Whether values are assumed sizes, whose quotient is 1 only because they are assumed."""
    return all(isinstance(value, AssumedSize) for value in values) and len({*values}) == 1


def _any_entry(table: Mapping[Any, Any]) -> Any:
    """An entry of a table whose key is unknown: any is a plausible setting, fp32 always works."""
    single = torch_().float32
    return table[single] if single in table else next(iter(table.values()))


def _part(value: Any, at: int, target: ast.expr, count: int) -> Any:
    if isinstance(value, Shape):
        name = target.id if isinstance(target, ast.Name) else ""
        if value.is_strides:
            return replace(value.tensor, rank=count).stride(at)
        return value.tensor.size(at, name)
    if isinstance(value, (tuple, list)) and at < len(value):
        return value[at]
    if isinstance(value, AssumedTensor):
        return value
    return UNKNOWN
