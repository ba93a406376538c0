"""Tensors that a wrapper of a kernel is assumed to get: contiguous, of typical sizes and rank."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from traceview.base.records import record

_HEAD = re.compile(
    r"(.*head_?(dim|size).*|d|h_?d|d_?head|.*dim_?head|d_?(qk?|k|v|kv)|[kv]|dh(qk|hv|v)?|rotary_?dim|d_?state)",
    re.I,
)
# The parts of a head with and without positions (DeepSeek's attention).
_HEAD_PART = re.compile(r"(qk?_?)?(nope|rope)(_?head)?_?dim", re.I)
_BATCH = re.compile(r"(bs?z?|b(atch)?(_?size)?|num_?(seqs|reqs)|z|e|num_experts)", re.I)
_HEADS = re.compile(
    r"(n?h|hq|hv|n_?[qkv]{1,2}h|n?_?heads?(_\w)?|num_(kv_|q_|v_)?heads|n_?(kv|q|k|v)_?heads?|nheads|ngroups|g)",
    re.I,
)
_HIDDEN = re.compile(r"x|hidden(_states)?|inputs?|residual|activations", re.I)
_ATTENTION = re.compile(r"(q|k|v|query|key|value|do|o|kv_?\w*|k_cache|v_cache)", re.I)
_TAPS = re.compile(r"k[hw]|kernel(_?(size|h|w|height|width))?|(d_?)?conv(_width)?|width", re.I)
_FILTER = re.compile(r"w|weights?|filters?|kernel", re.I)
_VOCABULARY = re.compile(r"(v|n?_?vocab(_?size)?|n_?classes)", re.I)
_LOGITS = re.compile(r"logits", re.I)
# Complex numbers, of which the last dimension has the real and the imaginary part.
_OF_PAIRS = re.compile(r"(^|_)real$", re.I)
# Of a quantization: the group of MX formats, and the least of the others.
_GROUP, _GROUP_SIZE = re.compile(r"(quant_)?group_?size", re.IGNORECASE), 32
# Experts of a token in routers of mixtures (Mixtral 2, Qwen3 and DeepSeek 8).
_CHOSEN, _CHOSEN_COUNT = re.compile(r"(num_)?top_?k", re.IGNORECASE), 8
# Tokens of a block of a paged cache.
_PAGE, _PAGE_SIZE = re.compile(r"(kv_?)?(block|page)_?size", re.IGNORECASE), 64
_TAP_COUNT, _HEADS_APART = 4, 3
# The last dimension of a tensor of unknown rank has this number, if any does.
_MOST_RANK = 4
_LEAST_USUAL = 16
SIZE, _HEAD_SIZE, _BATCH_SIZE, _HEAD_COUNT, _VOCABULARY_SIZE = 1024, 64, 4, 16, 32768
_NAMED = {_HEADS: _HEAD_COUNT, _GROUP: _GROUP_SIZE, _CHOSEN: _CHOSEN_COUNT, _PAGE: _PAGE_SIZE}
_METHODS = (
    "contiguous view reshape flatten squeeze unsqueeze to transpose permute t "
    "expand data_ptr view_as expand_as type_as movedim narrow"
)
_OF_SAME_RANK = ("transpose", "permute", "t", "movedim")
_KEEPING = (
    "detach clone cuda requires_grad_ zero_ fill_ abs clamp mul div add sub neg mul_ div_ normal_ "
    "uniform_ clamp_ roll flip"
)
_OF_ITSELF = frozenset(_KEEPING.split())
_SAME = _OF_ITSELF.union(_METHODS.split())
_CASTS = {
    "float": "float32",
    "half": "float16",
    "bfloat16": "bfloat16",
    "int": "int32",
    "long": "int64",
}
_NEW = re.compile(r"new_(empty|zeros|ones|full|tensor)")


class Unknown(Exception):  # noqa: N818 (a state of an expression, no failure of ours)
    """Raised for an expression whose value cannot be derived."""


UNKNOWN = object()
"""The value of a name that cannot be derived."""
NOT_NONE = object()
"""Such a value of a parameter that is None by default, and that a call passes."""


class AssumedSize(int):
    """A typical size. Results of arithmetic on it are plain integers, except the quotient 1."""


class AssumedNumber(float):
    """A number that only its annotation is known of."""


class CoveringSize(AssumedSize):
    """The power of two that covers an assumed `size`."""

    size = 0


class AssumedCount(AssumedSize):
    """How many parts an assumed size has: 1 only because that is as small."""


class OpenStride(AssumedSize):
    """The stride of a dimension that may be the last one, as the rank is unknown."""


@dataclass
class AssumedTensor:
    """A tensor of which little is known; `dtype` and `rank` are None if nothing shows them.

    Tensors with the same `name` and without a `dtype` have the same type. `channels_last`: the
    elements along dimension 1 are adjacent in memory. `sizes` are those of dimensions that the
    project shows, and `allowed` the only types that it takes, if it says so.
    """

    name: str
    dtype: Any = None
    rank: int | None = None
    channels_last: bool = False
    sizes: dict[int, int] = field(default_factory=dict)
    allowed: tuple[Any, ...] = ()

    @property
    def dimensions(self) -> int:
        """The rank. Raises Unknown if nothing shows it."""
        if self.rank is None:
            raise Unknown
        return self.rank

    def stride(self, at: int) -> AssumedSize:
        """The stride of the dimension `at`."""
        last = (self.rank or _MOST_RANK) - 1
        ones = (1, 1 - (self.rank or 0)) if self.channels_last else (-1, last)
        if at in (last - 1, -2) and _OF_PAIRS.search(self.name):
            return AssumedSize(2)
        kind = OpenStride if self.rank is None and at not in ones else AssumedSize
        return kind(1 if at in ones else SIZE)

    def size(self, at: int | None = None, name: str = "") -> AssumedSize:
        """A typical size of the dimension `at`, or of the one that is called `name`."""
        known = self.sizes.get(self.place(at)) if at is not None else None
        return AssumedSize(known or self._size(at, name))

    def place(self, at: int) -> int:
        """A dimension as `sizes` counts it: from the first one, if the rank is known."""
        return at + self.rank if at < 0 and self.rank else at

    def moved(self, how: str, to: Sequence[Any]) -> dict[int, int]:
        """The sizes after a method that exchanges dimensions; none after any other method."""
        order = [*range(self.rank or 0)]
        listed = to[0] if to and isinstance(to[0], (tuple, list)) else to
        places = [self.place(at) for at in listed]
        if how == "permute" and sorted(places) == order:
            order = places
        elif how == "transpose" and len(places) == 2 and {*places} <= {*order}:
            first, second = places
            order[first], order[second] = second, first
        else:
            return {}
        return {at: self.sizes[old] for at, old in enumerate(order) if old in self.sizes}

    def _size(self, at: int | None, name: str) -> int:
        at = self.rank - 1 if at == -1 and self.rank else at
        # V of anything but an operand of attention, or of one tensor per head, is rather a
        # vocabulary.
        is_per_head = self.rank == _MOST_RANK and at == _MOST_RANK - 1
        is_head = len(name) > 1 or is_per_head or _ATTENTION.fullmatch(self.name)
        if name and _HEAD_PART.fullmatch(name):
            return _HEAD_SIZE // 2
        if name and is_head and _HEAD.fullmatch(name):
            return _HEAD_SIZE
        if name and _TAPS.fullmatch(name) and _FILTER.fullmatch(self.name):
            return _TAP_COUNT
        if name and _VOCABULARY.fullmatch(name):
            return _VOCABULARY_SIZE
        is_last = at == -1 or (at is not None and at >= 2 and at + 1 == (self.rank or _MOST_RANK))
        if is_last and _LOGITS.search(self.name):
            return _VOCABULARY_SIZE
        if name and _BATCH.fullmatch(name) and not is_last:
            return _BATCH_SIZE
        # H of B, S, H = x.shape is the hidden size.
        is_end = at in (-1, (self.rank or 0) - 1)
        is_hidden = is_end and name in ("H", "h") and _HIDDEN.fullmatch(self.name)
        for pattern, size in _NAMED.items():
            if name and pattern.fullmatch(name) and not is_hidden:
                return size
        # Of three dimensions the last may hold all heads.
        is_inner = is_last and (not name or (at or 0) >= _HEADS_APART)
        if is_inner and _ATTENTION.fullmatch(self.name):
            return _HEAD_SIZE
        return SIZE


@record
class AssumedDescriptor:
    """A tensor descriptor (TMA) with the shape of its blocks."""

    tensor: AssumedTensor
    block: tuple[int, ...]

    @property
    def type(self) -> str:
        """Its type in Triton's notation, with `element` as that of the tensor."""
        return f"[{', '.join(map(str, self.block))}]"


@record
class Shape:
    """The shape or the strides of a tensor, of unknown length."""

    tensor: AssumedTensor
    is_strides: bool = False

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            rank = self.tensor.rank
            left = len(range(rank)[at]) if rank else None
            return replace(self, tensor=replace(self.tensor, rank=left))
        return self.tensor.stride(at) if self.is_strides else self.tensor.size(at)


@dataclass
class Method:
    """A bound method of an assumed tensor."""

    tensor: AssumedTensor
    name: str

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        tensor, name = self.tensor, self.name
        if name in ("size", "stride"):
            shape = Shape(tensor, name == "stride")
            return shape[arguments[0]] if arguments else shape
        if name == "numel":
            return AssumedSize(SIZE if tensor.rank == 1 else SIZE * SIZE)
        if name == "element_size":
            return int(dtype_of(tensor).itemsize)
        if name in ("is_contiguous", "is_cuda"):
            return True
        if name in ("dim", "ndimension"):
            return tensor.dimensions
        if name in ("to", "view", "reshape", "type") or _NEW.fullmatch(name):
            dtype = dtype_in(arguments, keywords)
            keeps = name in ("to", "type") or (name == "view" and dtype)
            rank = tensor.rank if keeps else rank_of(arguments)
            dtype = dtype or tensor.dtype
            sizes = tensor.sizes if keeps else sizes_in(arguments)
            return replace(tensor, dtype=dtype, rank=rank, channels_last=False, sizes=sizes)
        if name in _CASTS:
            return replace(tensor, dtype=getattr(torch_(), _CASTS[name]), channels_last=False)
        if name == "contiguous":
            return replace(tensor, channels_last=False)
        if name in _SAME:
            rank = tensor.rank if name in _OF_SAME_RANK else None
            sizes = tensor.moved(name, arguments)
            moved = replace(tensor, rank=rank, channels_last=False, sizes=sizes)
            return tensor if name in _OF_ITSELF else moved
        raise Unknown


def torch_() -> Any:
    import torch

    return torch


def dtype_of(tensor: AssumedTensor) -> Any:
    """The data type of a tensor, float16 if nothing says it."""
    half = torch_().float16
    usual = half if not tensor.allowed or half in tensor.allowed else tensor.allowed[0]
    return tensor.dtype or usual


def dtype_in(arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    kind = torch_().dtype
    return next((a for a in (*arguments, *keywords.values()) if isinstance(a, kind)), None)


_OF_TENSORS = frozenset(
    ("shape", "stride", "dtype", "numel", "contiguous", "data_ptr", "is_contiguous", "size")
)
_OPERAND = re.compile(r"(q|k|v|query|key|value)s?(_(states?|layer|heads?))?", re.I)
Function = ast.FunctionDef | ast.AsyncFunctionDef


def tensor_ranks(function: Function) -> dict[str, int | None]:
    """The names that are used as tensors, with the dimensions that their uses show, or None."""
    shown: dict[str, int] = defaultdict(int)
    # Where x is rebound if it has 4 dimensions, it has another number behind that.
    rebinding = {id(each) for node in ast.walk(function) for each in _rebinding(node)}
    rebinding |= {id(each) for part in _switched_off(function) for each in ast.walk(part)}
    for node in ast.walk(function):
        if id(node) in rebinding:
            continue
        owner = node.value if isinstance(node, ast.Attribute) else None
        if isinstance(owner, ast.Name) and getattr(node, "attr", "") in _OF_TENSORS:
            shown[owner.id] += 0
        for name, rank in _uses(node):
            shown[name] = max(shown[name], rank)
    # Uses show the least rank, `b, h, d = q.shape` the rank; other operands of attention have the
    # same.
    whole = {
        _shape_of(node.value)
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple)
        if not any(isinstance(each, ast.Starred) for each in node.targets[0].elts)
    }
    operands = [name for name in shown if _OPERAND.fullmatch(name)]
    most = max((shown[name] for name in operands), default=0)
    shown |= dict.fromkeys((name for name in operands if name not in whole), most)
    return {name: rank if rank > 1 else None for name, rank in shown.items()}


def _uses(node: ast.AST) -> Iterator[tuple[str, int]]:
    """The names of tensors in a node, with the least rank that it shows."""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
        name = _shape_of(node.value)
        starred = any(isinstance(each, ast.Starred) for each in node.targets[0].elts)
        if name and not starred:
            yield name, len(node.targets[0].elts)
        elif isinstance(node.value, ast.Tuple) and not starred:
            rest = len(node.targets[0].elts) - len(node.value.elts) + 1
            shapes = (each.value for each in node.value.elts if isinstance(each, ast.Starred))
            yield from ((owner, rest) for shape in shapes if (owner := _shape_of(shape)))
    if isinstance(node, ast.Compare):
        yield from _compared(node)
    if isinstance(node, ast.Call):
        yield from _with_last(node)
    name, index = None, None
    if isinstance(node, ast.Subscript):
        name, index = _shape_of(node.value), node.slice
    elif isinstance(node, ast.Call) and node.args:
        name, index = _shape_of(node.func), node.args[0]
    if isinstance(index, ast.Constant) and type(index.value) is int and name:
        yield name, index.value + 1


def _rebinding(node: ast.AST) -> list[ast.Compare]:
    """The comparisons in the test of an if that are of a tensor which its branch rebinds."""
    if not isinstance(node, ast.If):
        return []
    names = [n for part in node.body for n in ast.walk(part) if isinstance(n, ast.Name)]
    bound = {name.id for name in names if isinstance(name.ctx, ast.Store)}
    compared = (each for each in ast.walk(node.test) if isinstance(each, ast.Compare))
    return [each for each in compared if _shape_of(each.left, ("ndim", "dim")) in bound]


def _switched_off(function: Function) -> Iterator[ast.stmt]:
    """The statements under `if option:` of an option that is False by default."""
    of = function.args
    defaults = [*zip([*of.posonlyargs, *of.args][::-1], of.defaults[::-1], strict=False)]
    defaults += [(a, d) for a, d in zip(of.kwonlyargs, of.kw_defaults, strict=True) if d]
    off = {a.arg for a, d in defaults if isinstance(d, ast.Constant) and d.value is False}
    for node in ast.walk(function):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id in off:
            yield from node.body


def needed_tensors(function: Function) -> frozenset[str]:
    """The names whose shapes and strides are taken, though no condition asks whether they are."""
    tests = [n.test for n in ast.walk(function) if isinstance(n, (ast.If, ast.IfExp, ast.Assert))]
    tests += [n for n in ast.walk(function) if isinstance(n, (ast.Compare, ast.BoolOp))]
    named = {n.id for test in tests for n in _tested(test)}
    used = {name for node in ast.walk(function) for name, _ in _uses(node)}
    return frozenset(used - named)


def _tested(test: ast.expr) -> Iterator[ast.Name]:
    """The names in a condition, without those of whose attributes it is."""
    if isinstance(test, ast.Name):
        yield test
    elif not isinstance(test, ast.Attribute):
        parts = (part for part in ast.iter_child_nodes(test) if isinstance(part, ast.expr))
        for part in parts:
            yield from _tested(part)


def _with_last(call: ast.Call) -> Iterator[tuple[str, int]]:
    """The ranks in `kernel[grid](x.stride(2), x.stride(-1))`, which passes two dimensions."""
    passed: dict[str, set[int]] = defaultdict(set)
    for part in (p for each in (*call.args, *call.keywords) for p in ast.walk(each)):
        if isinstance(part, ast.Call) and len(part.args) == 1:
            name, at = _shape_of(part.func), part.args[0]
            if name and isinstance(part.func, ast.Attribute) and part.func.attr == "stride":
                passed[name].add(_index(at))
    for name, indices in passed.items():
        if -1 in indices:
            yield name, max(indices) + 2


def _index(node: ast.expr) -> int:
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return 0
    return value if isinstance(value, int) else 0


def _compared(node: ast.Compare) -> Iterator[tuple[str, int]]:
    """The ranks in `x.shape == (m, n)` and `x.ndim == 2`."""
    right = node.comparators[0]
    name = _shape_of(node.left)
    if name and isinstance(right, ast.Tuple):
        yield name, len(right.elts)
    name = _shape_of(node.left, ("ndim", "dim")) if isinstance(node.ops[0], ast.Eq) else None
    if name and isinstance(right, ast.Constant) and type(right.value) is int:
        yield name, right.value


def _shape_of(
    node: ast.expr, attributes: Sequence[str] = ("shape", "size", "stride")
) -> str | None:
    node = node.func if isinstance(node, ast.Call) and not node.args else node
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.value.id if node.attr in attributes else None
    return None


def rank_of(sizes: Sequence[Any]) -> int | None:
    """The rank of a tensor that is created with these sizes."""
    if not sizes:
        return None
    if isinstance(sizes[0], Shape):
        return None if sizes[0].is_strides else sizes[0].tensor.rank
    if isinstance(sizes[0], (tuple, list)):
        return len(sizes[0])
    return len(sizes) if all(isinstance(size, int) for size in sizes) else None


def sizes_in(sizes: Sequence[Any]) -> dict[int, int]:
    """The sizes, by dimension, with which a tensor is created, as far as they are usual ones."""
    if sizes and isinstance(sizes[0], Shape):
        shape = sizes[0]
        return {} if shape.is_strides else dict(shape.tensor.sizes)
    listed = sizes[0] if sizes and isinstance(sizes[0], (tuple, list)) else sizes
    # The typical size is what others are assumed to be, which their names may tell better.
    return {at: int(size) for at, size in enumerate(listed) if is_usual(size) and size != SIZE}


def is_usual(size: Any) -> bool:
    """Whether a size that a test passes may be one of a real program: 32, neither 3 nor 1000."""
    return isinstance(size, int) and size >= _LEAST_USUAL and size & (size - 1) == 0
