"""Uses of the parameters in the source of a Triton kernel, without running it.

Pointers are the parameters that addresses are computed from; casts and uses give their types.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from functools import cached_property

from traceview.base.records import record
from traceview.kernels.headless.signatures import TYPE_NAMES

Functions = Mapping[str, ast.FunctionDef]

_BUILTINS = frozenset(("range", "min", "max", "abs", "len", "print", "float", "int"))
_LOADS = {"load"}
_OF_DESCRIPTOR = ("load", "store", "gather", "scatter")
_SHAPE_OF_DESCRIPTOR = ("block_type", "block_shape")
_MADE = {"make_block_ptr", "make_tensor_descriptor"}
_PASSES_ON = {"advance", "multiple_of", "max_contiguous", "max_constancy", "cast"} | _MADE
_POINTER_NAME = re.compile(r"(?:^|_)p(?:oin)?te?rs?$|Ptr$|^[A-Z]\w{0,2}$|_p$")
# PyTorch's indices are int64; operands of tl.dot are mostly half precision.
_INDEX, _OPERAND, _BITS, _PACKED = "i64", "fp16", "i32", "u8"
# The leading parameters of tl.dot_scaled, and the element types of its formats.
_SCALED = ("lhs", "lhs_scale", "lhs_format", "rhs", "rhs_scale", "rhs_format")
_FORMATS = {"e2m1": _PACKED, "e4m3": "fp8e4nv", "e5m2": "fp8e5", "bf16": "bf16", "fp16": "fp16"}
_BIT_OPERATORS = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.LShift, ast.RShift)
# Positions, and functions that take fp32 alone.
_OF_OWN_TYPE = frozenset(
    ("argmax", "argmin", "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "sigmoid")
)
_RESHAPES = ("interleave", "join", "trans", "reshape", "broadcast_to", "expand_dims", "permute")


_TYPE_WORDS = {
    **TYPE_NAMES,
    **{f"{kind}{bits}": f"{kind}{bits}" for kind in "iu" for bits in (8, 16, 32, 64)},
    **{f"{kind}{bits}": f"fp{bits}" for kind in ("f", "fp") for bits in (16, 32, 64)},
    "bf16": "bf16",
}
"""The names of types that may end a variable's name."""


@record
class Usage:
    """The uses of a kernel's parameters; `helpers` are the jitted functions that it may call.

    `stated` are the element types that comments give to pointers.
    """

    function: ast.FunctionDef
    helpers: Functions = field(default_factory=dict)
    seen: frozenset[str] = frozenset()
    stated: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters, in order."""
        arguments = self.function.args
        listed = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        return tuple(argument.arg for argument in listed)

    @cached_property
    def _bases(self) -> frozenset[str]:
        """The parameters that addresses may start from: those not annotated as constexpr."""
        arguments = self.function.args
        listed = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        notes = ((a.arg, a.annotation and ast.unparse(a.annotation)) for a in listed)
        return frozenset(name for name, note in notes if "constexpr" not in (note or ""))

    @cached_property
    def pointers(self) -> dict[str, str | None]:
        """The pointer parameters, with the inferred element type or None."""
        element_types: dict[str, str | None] = {}
        for call, address in self._accesses():
            root = self._root(address)
            if root:
                element_types[root] = element_types.get(root) or self._stored_type(call)
        for name, type_ in self._of_helpers():
            element_types[name] = element_types.get(name) or type_
        for root, type_ in self._loaded_types():
            element_types[root] = element_types.get(root) or type_
        # The parameters that a pointer is chosen from: `a = a1 if first else a2`.
        chosen: dict[str, str | None] = {}
        for values in self._assigned.values():
            plain = [v.id for v in values if isinstance(v, ast.Name) and v.id in self.parameters]
            typed = [element_types[name] for name in plain if name in element_types]
            if typed:
                chosen |= {name: typed[0] for name in plain if name not in element_types}
        stated = {**dict(self._named_types()), **self.stated, **dict(self._asserted_types())}
        return element_types | chosen | {n: t for n, t in stated.items() if n in element_types}

    def _named_types(self) -> Iterator[tuple[str, str]]:
        """The types by names: of pointers, and of what is loaded: `w_int8 = tl.load(w_ptr + k)`."""
        for name in self.parameters:
            if type_ := _TYPE_WORDS.get(name.removesuffix("_ptr").rpartition("_")[2].lower()):
                yield name, type_
        for name, values in self._assigned.items():
            type_ = _TYPE_WORDS.get(name.rpartition("_")[2].lower())
            loads = (v for v in values if isinstance(v, ast.Call) and _called(v) == "load")
            for call in loads if type_ else ():
                address = _first(call)
                root = self._root(address) if address else None
                if root and type_:
                    yield root, type_

    def _asserted_types(self) -> Iterator[tuple[str, str]]:
        """The types in `tl.static_assert(x.dtype == tl.int8)`, of a pointer or a loaded value."""
        for call in self._calls("static_assert"):
            test = call.args[0] if call.args else None
            is_equal = isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq)
            if not isinstance(test, ast.Compare) or not is_equal:
                continue
            type_ = TYPE_NAMES.get(ast.unparse(test.comparators[0]).rpartition(".")[2])
            owner = test.left
            while isinstance(owner, ast.Attribute):
                owner = owner.value
            if type_ and isinstance(owner, ast.Name):
                named = {owner.id} & set(self.parameters)
                roots = named or set(self._values_in(owner, frozenset()))
                yield from ((root, type_) for root in roots)

    @property
    def static_asserts(self) -> list[ast.expr]:
        """The conditions that the kernel itself asserts of its constexprs."""
        return [call.args[0] for call in self._calls("static_assert") if call.args]

    @cached_property
    def called(self) -> frozenset[str]:
        """The names of functions that are called without a module prefix."""
        calls = self._calls()
        return frozenset(call.func.id for call in calls if isinstance(call.func, ast.Name))

    @cached_property
    def returns_value(self) -> bool:
        """Whether it returns a value, as no kernel does."""
        returns = (node for node in ast.walk(self.function) if isinstance(node, ast.Return))
        return any(node.value is not None for node in returns)

    @cached_property
    def compared_to(self) -> dict[str, str | int]:
        """The parameters that are compared with literals, here or in a helper; the first counts."""
        first_literals: dict[str, str | int] = {}
        for node in ast.walk(self.function):
            equal = isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Eq, ast.NotEq))
            sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
            literals = [s.value for s in sides if isinstance(s, ast.Constant)]
            for side in sides if equal and literals else ():
                if isinstance(side, ast.Name) and type(literals[0]) in (str, int):
                    first_literals.setdefault(side.id, literals[0])  # type: ignore[arg-type]
        for call, inner in self._helpers():
            for parameter, given in _bound(inner.parameters, call):
                if isinstance(given, ast.Name) and parameter in inner.compared_to:
                    first_literals.setdefault(given.id, inner.compared_to[parameter])
        return first_literals

    @cached_property
    def types(self) -> frozenset[str]:
        """The parameters that are used as data types: x.to(T), tl.zeros(..., dtype=T)."""
        dtypes = [call.args[0] for call in self._calls("to") if call.args]
        dtypes += [k.value for call in self._calls() for k in call.keywords if k.arg == "dtype"]
        return frozenset(node.id for node in dtypes if isinstance(node, ast.Name))

    @cached_property
    def load_types(self) -> frozenset[str]:
        """The parameters that loaded values are cast to: the type of a kernel's operands."""
        casts = (call for call in self._calls("to") if call.args and _is_of_load(call))
        return frozenset(c.args[0].id for c in casts if isinstance(c.args[0], ast.Name))

    @cached_property
    def flags(self) -> frozenset[str]:
        """The parameters that are an `if` condition on their own."""
        tests = [n.test for n in ast.walk(self.function) if isinstance(n, (ast.If, ast.IfExp))]
        bare = [t.operand if isinstance(t, ast.UnaryOp) else t for t in tests]
        return frozenset(node.id for node in bare if isinstance(node, ast.Name))

    @cached_property
    def numbers(self) -> Mapping[str, tuple[str, bool]]:
        """The parameters that are pointers in one branch of a flag, and numbers in the other.

        Each with the flag and its value where it is a number: in `if not IS_TENSOR: rows += start`.
        """
        found: dict[str, tuple[str, bool]] = {}
        for node in ast.walk(self.function):
            test = node.test if isinstance(node, ast.If) else None
            flag = test.operand if isinstance(test, ast.UnaryOp) else test
            if not isinstance(node, ast.If) or not isinstance(flag, ast.Name) or not node.orelse:
                continue
            branches = [ast.Module(branch, []) for branch in (node.body, node.orelse)]
            read, accessed = [{*_names(branch)} for branch in branches], list[set[str]]()
            for branch in branches:
                inside = {id(each) for each in ast.walk(branch)}
                roots = (self._root(address) for c, address in self._accesses() if id(c) in inside)
                accessed.append({root for root in roots if root})
            for at in (0, 1):
                for name in accessed[1 - at] & read[at] - accessed[at]:
                    found[name] = flag.id, (at == 0) == (test is flag)
        return found

    @cached_property
    def unrolled(self) -> Mapping[str, ast.expr | None]:
        """The parameters that bound an unrolled loop, each with the loop's step, if it has one."""
        return {
            node.id: call.args[2] if len(call.args) > 2 else None
            for call in self._calls("static_range")
            for bound in call.args[:2]
            for node in ast.walk(bound)
            if isinstance(node, ast.Name) and node.id in self.parameters
        }

    @cached_property
    def ranged(self) -> frozenset[str]:
        """The parameters that are the length of a tl.arange: sides of tiles."""
        lengths = (call.args[1] for call in self._calls("arange") if len(call.args) == 2)
        return frozenset(n.id for n in lengths if isinstance(n, ast.Name)) & {*self.parameters}

    @property
    def cubes(self) -> Iterator[list[str]]:
        """The sides of tiles of three axes or more that the kernel makes, as texts."""
        for call in self._calls("zeros", "full"):
            shape = _first(call)
            if isinstance(shape, (ast.Tuple, ast.List)) and len(shape.elts) > 2:
                yield [ast.unparse(each) for each in shape.elts]

    @cached_property
    def row_strides(self) -> frozenset[str]:
        """The parameters that scale a row, or a tl.arange, where that of an axis is not scaled.

        In `x + rows[:, None] * stride + columns[None, :]`, columns are adjacent and rows are not.
        """
        found: set[str] = set()
        for _, address in self._accesses():
            terms = list(self._ranges(address, "", frozenset()))
            bare = {axis for axis, scales in terms if axis and not scales}
            for axis, scales in terms:
                found |= scales if axis and bare - {axis} else set()
            if any(not scales for _, scales in terms):
                found.update(self._scaling_one(address, frozenset()))
        return frozenset(found)

    def _scaling_one(self, node: ast.expr, seen: frozenset[str]) -> Iterator[str]:
        """The parameters that scale an addend of an address that has no tl.arange."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            if not any(True for _ in self._ranges(node, "", frozenset())):
                named = (each.id for each in ast.walk(node) if isinstance(each, ast.Name))
                yield from (name for name in named if name in self.parameters)
        elif isinstance(node, ast.BinOp):
            for each in (node.left, node.right):
                yield from self._scaling_one(each, seen)
        elif isinstance(node, ast.Name) and node.id not in seen:
            for value in self._last_assigned(node)[:1]:
                yield from self._scaling_one(value, seen | {node.id})

    @cached_property
    def only_strides(self) -> frozenset[str]:
        """The parameters that scale the one tile of an address, whose other terms are scaled, too.

        In `w + batch * stride_b + columns * stride_c`, those of the columns are rather adjacent.
        """
        found: set[str] = set()
        others: set[str] = set()
        for call, address in self._accesses():
            if _called(call) in _MADE:
                given = [k.value for k in call.keywords if k.arg == "strides"] or call.args[2:3]
                named = [n.id for each in given for n in ast.walk(each) if isinstance(n, ast.Name)]
                (found if len(named) == 1 else others).update(named)
            scales = [names - {""} for _, names in self._ranges(address, "", frozenset())]
            is_only = len(scales) == len(scales[:1] and scales[0]) == 1
            is_only = is_only and not self._adds_unscaled(address, frozenset())
            (found if is_only else others).update(*scales)
        return frozenset(found - others)

    def _adds_unscaled(self, node: ast.expr, seen: frozenset[str]) -> bool:
        """Whether an address adds an offset that no parameter scales."""
        if isinstance(node, ast.Name):
            values = self._last_assigned(node)[:1] if node.id not in seen else []
            is_known = node.id in self.pointers or bool(values)
            return not is_known or any(self._adds_unscaled(v, seen | {node.id}) for v in values)
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
            return any(self._adds_unscaled(each, seen) for each in (node.left, node.right))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
            return names.isdisjoint(self.parameters)
        parts = _passed_on(node)
        return not parts or any(self._adds_unscaled(part, seen) for part in parts)

    def _ranges(
        self, node: ast.expr, axis: str, seen: frozenset[str]
    ) -> Iterator[tuple[str, frozenset[str]]]:
        """The ranges that an address adds: the axis as written, and the parameters scaling it."""
        if isinstance(node, ast.Name):
            for value in self._last_assigned(node)[:1] if node.id not in seen else ():
                yield from self._ranges(value, axis, seen | {node.id})
        elif isinstance(node, ast.Subscript):
            yield from self._ranges(node.value, ast.unparse(node.slice), seen)
        elif isinstance(node, ast.BinOp) and not isinstance(node.op, ast.FloorDiv):
            names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
            # The empty name stands for other factors.
            factors = {"", *names.intersection(self.parameters)}
            scaled = factors if isinstance(node.op, ast.Mult) else ()
            for each in (node.left, node.right):
                yield from ((at, s.union(scaled)) for at, s in self._ranges(each, axis, seen))
        elif isinstance(node, ast.Call):
            if _called(node) == "arange":
                yield axis, frozenset()
            for part in _passed_on(node):
                yield from self._ranges(part, axis, seen)

    @cached_property
    def has_dot(self) -> bool:
        """Whether it or a helper calls tl.dot."""
        own = any(True for _ in self._calls("dot", "dot_scaled"))
        return own or any(inner.has_dot for _, inner in self._helpers())

    @cached_property
    def may_write(self) -> bool:
        """Whether it calls a store, an atomic or a function of its own, which may."""
        names = {_called(call) for call in self._calls()}
        named = any("store" in name or name.startswith(("atomic_", "scatter")) for name in names)
        return named or bool(self.called - _BUILTINS)

    @cached_property
    def descriptors(self) -> tuple[str, ...]:
        """The parameters that are tensor descriptors: they have `load`, `store` or `block_type`."""
        methods = [call.func for call in self._calls(*_OF_DESCRIPTOR)]
        shapes = (
            node
            for node in ast.walk(self.function)
            if isinstance(node, ast.Attribute) and node.attr in _SHAPE_OF_DESCRIPTOR
        )
        owners = (node.value for node in (*methods, *shapes) if isinstance(node, ast.Attribute))
        named = {owner.id for owner in owners if isinstance(owner, ast.Name)}
        return tuple(name for name in self.parameters if name in named)

    @cached_property
    def _assigned(self) -> dict[str, list[ast.expr]]:
        assigned: dict[str, list[ast.expr]] = {}
        for node in ast.walk(self.function):
            for target, value in _assignments(node):
                assigned.setdefault(target, []).append(value)
        return assigned

    def _calls(self, *names: str) -> Iterator[ast.Call]:
        for node in ast.walk(self.function):
            if isinstance(node, ast.Call) and (not names or _called(node) in names):
                yield node

    def _accesses(self) -> Iterator[tuple[ast.Call, ast.expr]]:
        for call in self._calls():
            name, address = _called(call), _first(call)
            touches = name in ("load", "store") or name in _MADE or name.startswith("atomic_")
            if touches and address is not None:
                yield call, address

    def _root(self, address: ast.expr) -> str | None:
        """The base pointer of an address: the leftmost parameter, or one named like a pointer."""
        candidates = list(dict.fromkeys(self._addends(address, frozenset())))
        named = [name for name in candidates if _POINTER_NAME.search(name)]
        return next(iter(named or candidates), None)

    def _addends(self, node: ast.expr, seen: frozenset[str]) -> Iterator[str]:
        """The parameters that are addends of an address; factors of products do not count."""
        if isinstance(node, ast.Name):
            if node.id in self._bases:
                yield node.id
            elif node.id not in seen:
                for value in self._last_assigned(node):
                    yield from self._addends(value, seen | {node.id})
        elif isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
            yield from self._addends(node.left, seen)
            yield from self._addends(node.right, seen)
        else:
            for part in _passed_on(node):
                yield from self._addends(part, seen)

    def _last_assigned(self, name: ast.Name) -> list[ast.expr]:
        """The values assigned to a name: first the last before its use, at the end increments."""
        values = self._assigned.get(name.id, [])
        added = [node.value for node in ast.walk(self.function) if isinstance(node, ast.AugAssign)]
        whole = [value for value in values if value not in added]
        before = [value for value in whole if value.lineno <= name.lineno]
        later = [value for value in values if value not in before]
        return [*reversed(before), *later]

    def _loads_in(self, node: ast.AST, seen: frozenset[str]) -> Iterator[str]:
        """The pointers whose loaded values an expression depends on."""
        if isinstance(node, ast.Call) and _called(node) in _LOADS:
            address = _first(node)
            root = self._root(address) if address is not None else None
            yield from [root] if root else []
        elif isinstance(node, ast.Call) and _called(node) in self.helpers:
            yield from self._returned_by(node)
        elif isinstance(node, ast.Name):
            for value in self._assigned.get(node.id, ()) if node.id not in seen else ():
                yield from self._loads_in(value, seen | {node.id})
        elif not _makes_own_type(node):
            for part in ast.iter_child_nodes(node):
                yield from self._loads_in(part, seen)

    def _returned_by(self, call: ast.Call) -> Iterator[str]:
        """The pointers whose loaded values a helper returns."""
        for inner in (usage for each, usage in self._helpers() if each is call):
            returns = (n.value for n in ast.walk(inner.function) if isinstance(n, ast.Return))
            values = [value for value in returns if value is not None]
            loaded = {name for value in values for name in inner._loads_in(value, frozenset())}
            for name, given in _bound(inner.parameters, call):
                root = self._root(given) if name in loaded else None
                yield from [root] if root else []

    @cached_property
    def _operands(self) -> list[ast.expr]:
        operands = [operand for call in self._calls("dot") for operand in call.args[:2]]
        return operands + self._passed_to_helpers(lambda inner: inner._operands)

    def _passed_to_helpers(self, select: Callable[[Usage], list[ast.expr]]) -> list[ast.expr]:
        """What is passed for the parameters that helpers use in the expressions of `select`."""
        passed: list[ast.expr] = []
        for call, inner in self._helpers():
            names = {node.id for node in select(inner) if isinstance(node, ast.Name)}
            passed += [given for name, given in _bound(inner.parameters, call) if name in names]
        return passed

    def _scaled_types(self) -> Iterator[tuple[str, str]]:
        """The types of what tl.dot_scaled takes: scales are bytes, and so are pairs of 4 bits."""
        for call in self._calls("dot_scaled"):
            given = {str(k.arg): k.value for k in call.keywords}
            given |= dict(zip(_SCALED, call.args, strict=False))
            for side in ("lhs", "rhs"):
                format_ = given.get(f"{side}_format")
                text = format_.value if isinstance(format_, ast.Constant) else ""
                types = {side: _FORMATS.get(str(text)), f"{side}_scale": _PACKED}
                for name, type_ in types.items():
                    roots = self._loads_in(given.get(name, ast.Constant(None)), frozenset())
                    yield from ((root, type_) for root in roots if type_)

    def _loaded_types(self) -> Iterator[tuple[str, str]]:
        yield from self._scaled_types()
        yield from self._cast_loads("u")
        # Values that are shifted or masked are integers; those cast to 32 bits for it have fewer.
        for operand in self._bit_operands:
            yield from ((root, _PACKED) for root in self._widened_in(operand))
            yield from ((root, _BITS) for root in self._values_in(operand, frozenset()))
        for operand in self._operands:
            yield from ((root, _OPERAND) for root in self._loads_in(operand, frozenset()))
        for _, address in self._accesses():
            yield from ((root, _INDEX) for root in self._loads_in(address, frozenset()))
        yield from ((root, _INDEX) for root, _ in self._cast_loads("i"))

    def _cast_loads(self, sign: str) -> Iterator[tuple[str, str]]:
        for call in self._calls("to"):
            kind = _cast(call) or ""
            if _is_of_load(call) and kind[:1] == sign:
                yield from ((root, kind) for root in self._loads_in(call.func, frozenset()))

    @cached_property
    def _bit_operands(self) -> list[ast.expr]:
        """The operands that are shifted or masked, here or in a helper."""
        operands: list[ast.expr] = []
        for node in ast.walk(self.function):
            if isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, _BIT_OPERATORS):
                sides = (
                    [node.left, node.right]
                    if isinstance(node, ast.BinOp)
                    else [node.target, node.value]
                )
                operands += sides[:1] if isinstance(node.op, (ast.LShift, ast.RShift)) else sides
        return operands + self._passed_to_helpers(lambda inner: inner._bit_operands)

    def _values_in(self, node: ast.expr, seen: frozenset[str]) -> Iterator[str]:
        """The pointers whose loaded values an expression passes on as they are."""
        if isinstance(node, ast.Call) and _called(node) in _LOADS:
            yield from self._loads_in(node, seen)
        elif isinstance(node, ast.Call) and _called(node) in _RESHAPES:
            owner = [node.func.value] if isinstance(node.func, ast.Attribute) else []
            for part in (*node.args[:2], *owner):
                yield from self._values_in(part, seen)
        elif isinstance(node, ast.Name) and node.id not in seen:
            for value in self._assigned.get(node.id, ()):
                yield from self._values_in(value, seen | {node.id})
        elif isinstance(node, ast.Subscript):
            yield from self._values_in(node.value, seen)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, _BIT_OPERATORS):
            yield from self._values_in(node.left, seen)

    def _widened_in(self, node: ast.expr) -> Iterator[str]:
        """The pointers whose loaded values an operand is, cast to 32 bits."""
        values = self._assigned.get(node.id, []) if isinstance(node, ast.Name) else [node]
        for value in values:
            if isinstance(value, ast.Call) and _is_of_load(value) and _cast(value) == _BITS:
                yield from self._loads_in(value.func, frozenset())

    def _stored_type(self, call: ast.Call) -> str | None:
        """The type that what is stored or added is cast to, or summed in."""
        if _called(call) not in ("store", "atomic_add") or len(call.args) < 2:
            return None
        values = [call.args[1]]
        if isinstance(values[0], ast.Name):
            values = self._assigned.get(values[0].id, [])
        # A sum may be scaled before it is added.
        adds = values[-1:] if _called(call) == "atomic_add" else []
        parts = (each for value in adds for each in ast.walk(value))
        sums = [each for each in parts if isinstance(each, ast.Call) and _called(each) == "sum"]
        return next(filter(None, map(_cast, [*reversed(values), *sums])), None)

    def _of_helpers(self) -> Iterator[tuple[str, str | None]]:
        for call, inner in self._helpers():
            for parameter, given in _bound(inner.parameters, call):
                root = self._root(given) if parameter in inner.pointers else None
                if root:
                    yield root, inner.pointers[parameter]

    def _helpers(self) -> Iterator[tuple[ast.Call, Usage]]:
        for call in self._calls():
            name = _called(call)
            if name in self.helpers and name not in self.seen:
                yield call, Usage(self.helpers[name], self.helpers, self.seen | {name})


def _makes_own_type(node: ast.AST) -> bool:
    """Whether the type of a value says nothing of the operands: a comparison, an exponential."""
    has_own = isinstance(node, ast.Call) and _called(node) in _OF_OWN_TYPE
    return has_own or isinstance(node, ast.Compare)


def _assignments(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _unpacked(target, node.value)
    elif isinstance(node, (ast.AnnAssign, ast.AugAssign)) and node.value is not None:
        yield from _unpacked(node.target, node.value)


def _unpacked(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple):
        values = value.elts if isinstance(value, ast.Tuple) else [value] * len(target.elts)
        for part, given in zip(target.elts, values, strict=False):
            yield from _unpacked(part, given)


def _names(node: ast.AST) -> Iterator[str]:
    return (each.id for each in ast.walk(node) if isinstance(each, ast.Name))


def _called(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _first(call: ast.Call) -> ast.expr | None:
    """The address argument of an access; `desc` for desc.load([…])."""
    if isinstance(call.func, ast.Attribute) and _called(call) in ("load", "store"):
        owner = call.func.value
        if not (isinstance(owner, ast.Name) and owner.id in ("tl", "language", "gl")):
            return owner
    named = (k.value for k in call.keywords if k.arg in ("pointer", "base"))
    return call.args[0] if call.args else next(named, None)


def _passed_on(node: ast.expr) -> list[ast.expr]:
    """The subexpressions that an expression passes on as its address."""
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    if isinstance(node, ast.Call) and _called(node) in _PASSES_ON:
        first = _first(node)
        return [first] if first is not None else []
    func = node.func if isinstance(node, ast.Call) else None
    return [func.value] if isinstance(func, ast.Attribute) and func.attr == "to" else []


def _is_of_load(cast: ast.Call) -> bool:
    """Whether a call is `tl.load(…).to(…)`."""
    loaded = cast.func.value if isinstance(cast.func, ast.Attribute) else None
    is_load = isinstance(loaded, ast.Call) and _called(loaded) in _LOADS
    return is_load and _called(cast) == "to"


def _cast(node: ast.AST) -> str | None:
    """The type of x.to(tl.int8) and tl.sum(x, dtype=tl.float32); None for what names none."""
    if not isinstance(node, ast.Call) or _called(node) not in ("to", "sum"):
        return None
    named = [k.value for k in node.keywords if k.arg == "dtype"]
    word = next(iter([*named, *(node.args[:1] if _called(node) == "to" else [])]), None)
    return TYPE_NAMES.get(word.attr) if isinstance(word, ast.Attribute) else None


def _bound(parameters: tuple[str, ...], call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    yield from zip(parameters, call.args, strict=False)
    yield from ((k.arg, k.value) for k in call.keywords if k.arg)
