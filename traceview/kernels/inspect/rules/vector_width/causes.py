"""Narrow accesses, and causes that may keep them narrow, each with the change that tests it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from traceview.base.records import record
from traceview.kernels.headless.compile_options import Change
from traceview.kernels.inspect.recompilations import Place, widths
from traceview.kernels.inspect.rules.remedies import Remedy, is_tile, named_as_tile, reduced_tiles
from traceview.kernels.ptx.addresses.slicing import Array, Origin
from traceview.kernels.ptx.addresses.strides import Layout
from traceview.kernels.ptx.model import Access, Argument, Compiled, RequestCost, SourceLine
from traceview.kernels.ptx.ttgir.vector_limit import Culprit

WIDE_BITS = 128
_MOST_NAMES = 3
_SMALLEST_BLOCK = 16
_LARGEST_STRIDE = 16
_LARGEST_BLOCK = 1 << 16
# For operands of tl.dot: a larger tile fits neither registers nor shared memory, and ptxas takes
# minutes to fail on it.
_LARGEST_MMA_TILE = 512
_STRIDE = re.compile(r"stride|pitch|step|incr?$|^ld[a-z]?$|_ld$|^s[a-z]{1,2}$", re.IGNORECASE)
_MMA = re.compile(r"\b(?:wgmma|mma|tcgen05)\.")
TOO_FEW = "each thread has too few adjacent elements"


@record
class Cause:
    """A cause as a clause, the change that would prove it, and the imperative that removes it."""

    clause: str
    change: Change
    remedy: str


@record
class Suspects:
    """The arguments that the address and the mask of an access depend on.

    `loaded_from` are the arguments that the address depends on through loaded values.
    """

    address: tuple[Argument, ...]
    mask: tuple[Argument, ...]
    loaded_from: tuple[Argument, ...] = ()


@record
class Narrow:
    """The narrow accesses of one line to one array, and what their addresses and masks depend on.

    `fraction` is their share of the bits that the line moves to or from the array, `moved` the bits
    that a thread moves through them in one pass. `cost` is the request cost of the most frequent of
    them. `helpers` are the lines of inlined helpers that make them. `used`: all of the array's
    accesses together need all that they move; `used_fraction`: the fraction of it that they need,
    if known. `shared`: neighbouring threads of the kernel read the same elements, shifted, as in a
    stencil; `overlapping`: all of them store to the same. `assembled`: the line shifts the loaded
    bytes into words. `paced`: each iteration moves on by a value known at run time, as from row to
    row; `reread`: the next outer loop reads the same again.
    """

    place: Place
    array: Array
    accesses: tuple[Access, ...]
    fraction: float
    moved: int
    address: Origin
    suspects: Suspects
    layout: Layout
    cost: RequestCost | None = None
    helpers: tuple[SourceLine, ...] = ()
    used: bool = False
    shared: bool = False
    overlapping: bool = False
    assembled: bool = False
    paced: bool = False
    reread: bool = False
    used_fraction: float | None = None

    @property
    def coalesced(self) -> bool:
        """Whether neighbouring threads move neighbouring elements, in whatever order."""
        lane = self.layout.lane
        return lane is not None and abs(lane.of) == self.layout.width_bytes and not lane.parameter

    @property
    def walks(self) -> bool:
        """Whether a thread's next iteration goes on where the one before it ended."""
        layout = self.layout
        is_run = self.count == 1 or layout.consecutive
        return is_run and 0 < abs(layout.loop_step or 0) <= self.count * layout.width_bytes

    @property
    def width(self) -> int:
        """The width of the widest access, in bits."""
        return max(widths(self.accesses))

    @property
    def count(self) -> int:
        """Number of instructions."""
        return sum(access.count for access in self.accesses)

    @property
    def tiles(self) -> bool:
        """Whether a larger tile covers more data: the accesses advance by tiles."""
        in_loop = any(access.loop_depth for access in self.accesses)
        return in_loop or self.layout.moves_with_block


@record
class NarrowReason:
    """Why an access is narrow, and what to do.

    `cause` is a clause without a subordinating word (`n is not known to be divisible by 16`),
    empty where the cause is unknown. `proven` says that a recompilation, or the addresses in the
    PTX, show it; else it is inferred. `widened_bits` is the width that a recompilation reached.
    `remedies` are those in `remedy` that were recompiled, `otherwise` what to do without them.
    `conditional`: the remedy changes what is computed unless the data are as it says. `uncertain`:
    it has a price that may outweigh what it gains. `kept`: the access is best as it is.
    `coalesced`: neighbouring threads of a CUDA C++ kernel move neighbouring elements. `refuted`:
    without the cause the access is as narrow. `inherent`: the data decide, not the code. `sized`:
    the size of the tile is the cause.
    """

    cause: str
    remedy: str
    basis: str
    proven: bool = False
    widened_bits: int | None = None
    remedies: tuple[Remedy, ...] = ()
    otherwise: str = ""
    conditional: bool = False
    uncertain: bool = False
    kept: bool = False
    coalesced: bool = False
    refuted: bool = False
    inherent: bool = False
    sized: bool = False

    def joined(self, others: Sequence[NarrowReason]) -> NarrowReason | None:
        """One reason for all, if their causes differ in one name and none was recompiled.

        Of those that the same recompilation widens as much, what all of them advise.
        """
        every = (self, *others)
        if self.remedies and len({(r.cause, r.widened_bits, r.remedies) for r in every}) == 1:
            return min(every, key=lambda reason: len(reason.remedy))
        if len({(each.remedy, each.proven) for each in every}) > 1:
            return None
        if any(each.remedies or each.widened_bits for each in every):
            return None
        cause = _joined([each.cause for each in every])
        return replace(self, cause=cause) if cause else None


def _joined(texts: Sequence[str]) -> str:
    """Texts that differ in one word, as one text: `elements are stride_x or stride_y apart`."""
    words = [text.split() for text in dict.fromkeys(texts)]
    places = [at for at, each in enumerate(zip(*words, strict=False)) if len(set(each)) > 1]
    if len({len(each) for each in words}) > 1 or len(places) > 1:
        return ""
    if not places:
        return texts[0]
    (at,) = places
    end = words[0][at][-1] if words[0][at][-1] in ",:" else ""
    names = [each[at].rstrip(",:") for each in words]
    more = [
        *names[:_MOST_NAMES],
        *([f"{len(names) - _MOST_NAMES} more"] * (len(names) > _MOST_NAMES)),
    ]
    listed = f"{', '.join(more[:-1])} or {more[-1]}{end}"
    return " ".join([*words[0][:at], listed, *words[0][at + 1 :]])


def not_declared_divisible(suspects: Suspects) -> list[Argument]:
    """The arguments of an access that are not declared to be divisible by 16 and could be."""
    listed = dict.fromkeys(suspects.address + suspects.mask)
    return [a for a in listed if not a.divisible_by_16 and _may_be_divisible(a)]


def undeclared(suspects: Suspects) -> list[Cause]:
    """Causes that one change can prove: arguments that are not declared to be divisible."""
    return [not_divisible(argument) for argument in not_declared_divisible(suspects)]


def not_divisible(argument: Argument) -> Cause:
    """A cause: the compiler does not know that an argument is a multiple of 16."""
    name, change = argument.name, Change(divisible=(argument.name,))
    if argument.type.startswith("*"):
        return Cause(
            f"{name} is not known to be aligned to 16 bytes",
            change,
            f"Align {name} to 16 bytes",
        )
    now = f" (it was {argument.value})" if argument.value is not None else ""
    if not argument.is_specialized and isinstance(argument.value, int) and not argument.value % 16:
        clause = f"{name} is in do_not_specialize{now}"
        return Cause(clause, change, f"Take {name} out of do_not_specialize")
    return Cause(
        f"{name} is not known to be divisible by 16{now}",
        change,
        f"Pad {name} to a multiple of 16{specialized([argument])}",
    )


def with_value(name: str, compiled: Compiled) -> str:
    """An argument with the value that it was launched with, if known: `stride (8)`."""
    value = next((a.value for a in compiled.arguments if a.name == name), None)
    return name if value is None else f"{name} ({value})"


def padded(culprit: Culprit, compiled: Compiled) -> str:
    """The constexpr that a constant comes from by its value; empty if there is none."""
    value = culprit.constant if culprit.opcode == "arith.constant" else None
    listed = (a for a in compiled.arguments if a.type == "constexpr" and type(a.value) is int)
    same = [a.name for a in listed if a.value == value]
    # Of two with one value, which it is cannot be told.
    return same[0] if len(same) == 1 else ""


def no_multiple(name: str, value: int, need: int) -> Cause:
    """A cause: a constexpr, a size or the pitch of rows, is no multiple of what a vector needs."""
    more = -(-value // need) * need
    return Cause(
        f"{name}={value} is not a multiple of {need}",
        Change(constexprs=((name, more),)),
        f"Pad {name} to a multiple of {need}, such as {more}",
    )


def every_constant(constants: Sequence[Cause]) -> list[Cause]:
    """Several constants as one cause, in a list; empty for fewer than two."""
    if len(constants) < 2:
        return []
    return [
        Cause(
            " and ".join(cause.clause for cause in constants),
            Change(constexprs=tuple(c for each in constants for c in each.change.constexprs)),
            " and ".join(cause.remedy for cause in constants).replace(" and Pad", " and pad"),
        )
    ]


def by_loaded(narrow: Narrow, remedy: str = "") -> NarrowReason:
    """The reason for a gather or a scatter, whose addresses no declaration can be true of."""
    what = "gather" if narrow.place[1] in ("load", "async-copy") else "scatter"
    grouped = (
        f"Sort or group the indices{loaded_from(narrow)}, or move a whole row at each index: a "
        "tile of two axes, [indices, row]. What a small table holds is rather computed"
    )
    return NarrowReason(
        f"this is a {what}: the compiler cannot know whether loaded addresses are contiguous",
        remedy or grouped,
        "the address is computed from loaded values",
    )


def own_bound(narrow: Narrow) -> str:
    """The remedy for a mask that differs within a vector: no declaration can be true of it."""
    if narrow.place[1] in ("store", "atomic"):
        return (
            "If the rest may be overwritten, store under a mask whose bound is a multiple of 16, "
            "and select the values with tl.where: what has to stay is then read, too"
        )
    return (
        "Load under a mask with the array's own bound, a multiple of 16, and apply the rest of the "
        "condition with tl.where"
    )


def declared(each: str, value: str, need: int) -> str:
    """The remedy for a value that may be a multiple: what to declare, and when not to."""
    return (
        f"Only if every {each} is a multiple of {need} (with one that is not, the kernel fails or "
        f"its results are wrong), declare it: tl.multiple_of({value}, {need})"
    )


def loaded_from(narrow: Narrow) -> str:
    """The integer arrays that an address is loaded from: ` from index`; empty if unknown."""
    integers = [a.name for a in narrow.suspects.loaded_from if a.type.startswith(("*i", "*u"))]
    return f" from {in_words(integers)}" if integers else ""


def specialized(arguments: Sequence[Argument]) -> str:
    """The end of a remedy that lets the compiler see the values of arguments, if needed."""
    unseen = [argument.name for argument in arguments if not argument.is_specialized]
    return f", and take {in_words(unseen)} out of do_not_specialize" if unseen else ""


def all_divisible(names: Sequence[str]) -> Cause:
    """A cause: several arguments at once, where none alone is the cause."""
    return Cause(
        not_known_divisible(names),
        Change(divisible=tuple(names)),
        f"Make {in_words(names)} multiples of 16 (pad sizes, align pointers)",
    )


def not_known_divisible(names: Sequence[str]) -> str:
    """The clause that none of these arguments is known to be divisible by 16."""
    if len(names) == 1:
        return f"{names[0]} is not known to be divisible by 16"
    if len(names) == 2:
        return f"neither {names[0]} nor {names[1]} is known to be divisible by 16"
    return f"none of {in_words(names)} is known to be divisible by 16"


def too_few_elements(compiled: Compiled, factor: int, *, tiles: bool) -> Iterator[Cause]:
    """Causes: a thread has too few adjacent elements, which fewer warps or a larger tile change.

    With `tiles` False no larger tile is tried: it would not give a thread more elements. A
    constexpr that is not a tile by its name is left out, as its value may be a size of the data. So
    is the tile of a whole row: a larger one has more masked elements.
    """
    warps = compiled.num_warps or 1
    for fewer in _halvings(warps, factor):
        yield Cause(TOO_FEW, Change(num_warps=fewer), f"num_warps={fewer}")
    for name, larger in _larger(compiled, factor) if tiles else ():
        if named_as_tile(name) and not _is_whole_row(compiled, name):
            change = Change(constexprs=((name, larger),), resizes=True)
            yield Cause(TOO_FEW, change, f"{name}={larger}")


def is_row(compiled: Compiled, shape: Sequence[int]) -> bool:
    """Whether a tile of one axis is a row of the data, whose size no other tile can have.

    It is if no constexpr of its size is a tile by its name along which blocks or loops advance.
    """
    sizes = [size for size in shape if size > 1]
    same = [a.name for a in compiled.arguments if a.type == "constexpr" and [a.value] == sizes]
    free = (name for name in same if named_as_tile(name) and not _is_whole_row(compiled, name))
    return bool(same) and not any(free)


def growing(compiled: Compiled, shape: Sequence[int]) -> list[str]:
    """The constexprs of a tile's sides along which blocks advance, of a kernel that has others.

    Only these may grow as they like: others may be of a format, or the step of a loop.
    """
    sizes = {a.name: a.value for a in compiled.arguments if type(a.value) is int}
    body = _body(compiled.source_text or _text_of(compiled.source_file or ""), compiled.name)
    # What is computed of a program's number without being scaled is one, too.
    numbers: set[str] = set()
    assigned = [n for n in body if isinstance(n, ast.Assign) and not _scales(n.value)]
    for node in assigned * _MOST_STEPS:
        if "program_id(" in ast.unparse(node.value) or numbers & _named_in(node.value):
            numbers |= {each.id for each in node.targets if isinstance(each, ast.Name)}
    factors = {
        name
        for node in body
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)
        for one, other in ((node.left, node.right), (node.right, node.left))
        if numbers & _named_in(one) or "program_id(" in ast.unparse(one)
        for name in _named_in(other)
    }
    # One that no tl.arange has, or that is not named as a tile, is rather a size of the data.
    calls = [n for n in body if isinstance(n, ast.Call) and ast.unparse(n.func).endswith("arange")]
    factors &= {name for call in calls for each in call.args for name in _named_in(each)}
    factors = {name for name in factors if named_as_tile(name)}
    names = [n for n, size in sizes.items() if n in factors and size in shape and size > 1]
    return names if len(names) < len(sizes) else []


_MOST_STEPS = 3


def _scales(node: ast.expr) -> bool:
    return any(isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mult) for n in ast.walk(node))


def _named_in(node: ast.expr) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


@lru_cache(maxsize=4)
def _text_of(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8") if file.endswith(".py") else ""
    except (OSError, ValueError):
        return ""


@lru_cache(maxsize=4)
def _body(text: str, kernel: str) -> list[ast.AST]:
    """The nodes of a kernel's statements in a source; none where it has no such kernel."""
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except SyntaxError:
        return []
    bodies = [n for n in nodes if isinstance(n, ast.FunctionDef) and n.name == kernel]
    return [node for body in bodies[:1] for part in body.body for node in ast.walk(part)]


def _is_whole_row(compiled: Compiled, name: str) -> bool:
    """Whether a constexpr only shapes tiles: neither blocks nor iterations advance by it."""
    text = (compiled.launch or {}).get("source") or compiled.source_text or ""
    inside = _body(text, compiled.name)
    shapes = [node for node in inside if _is_shape(node)]
    uses, in_shapes = (
        sum(_is_named(part, name) for node in each for part in ast.iter_child_nodes(node))
        for each in (inside, shapes)
    )
    return 0 < uses == in_shapes


def _is_shape(node: ast.AST) -> bool:
    is_range = isinstance(node, ast.Call) and ast.unparse(node.func).endswith("arange")
    return is_range or isinstance(node, (ast.Tuple, ast.List))


def _is_named(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def perhaps_too_few(compiled: Compiled, factor: int) -> Iterator[Cause]:
    """Causes of too few elements: constexprs not named as tiles, perhaps sizes of the data."""
    for name, larger in _larger(compiled, factor):
        if not named_as_tile(name):
            remedy = f"If {name} is a free choice, use {name}={larger}"
            yield Cause(TOO_FEW, Change(constexprs=((name, larger),), resizes=True), remedy)


def _larger(compiled: Compiled, factor: int) -> Iterator[tuple[str, int]]:
    """Constexprs that may be sizes, each with the size that would suffice.

    A tile that is reduced as a whole, without a mask, is left out: its size is that of a group of
    the data.
    """
    groups = {reduction.size for reduction in reduced_tiles(compiled) if reduction.is_group}
    most = _LARGEST_MMA_TILE if _MMA.search(compiled.ptx or "") else _LARGEST_BLOCK
    for argument in compiled.arguments:
        value = argument.value
        larger = value * factor if is_tile(value, _SMALLEST_BLOCK) else 0
        if argument.type == "constexpr" and 0 < larger <= most and value not in groups:
            yield argument.name, larger


def with_divisible(cause: Cause, names: Sequence[str]) -> Cause:
    """A cause together with arguments that are not known to be divisible by 16."""
    return Cause(
        f"{cause.clause}, and {not_known_divisible(names)}",
        replace(cause.change, divisible=tuple(names)),
        f"{cause.remedy}, and pad or align {in_words(names)} to a multiple of 16",
    )


def both(cause: Cause, few: Cause) -> Cause:
    """A cause together with that of too few elements per thread."""
    change, more = cause.change, few.change
    return Cause(
        f"{cause.clause}, and {few.clause}",
        replace(more, divisible=change.divisible, constexprs=change.constexprs + more.constexprs),
        f"{cause.remedy}, and use {few.remedy}",
    )


def divisible_and_few(few: Cause, names: Sequence[str]) -> Cause:
    """A cause of too few elements together with arguments that are not known to be divisible."""
    return Cause(
        f"{few.clause} and {not_known_divisible(names)}",
        replace(few.change, divisible=tuple(names)),
        f"Pad or align {in_words(names)} to a multiple of 16, and use {few.remedy}",
    )


def run_time_integers(arguments: Sequence[Argument]) -> Iterator[Cause]:
    """Causes: run-time integers that are no multiples of 16, which help only as constants."""
    for argument in arguments:
        name, value = argument.name, argument.value
        if _is_integer(argument) and isinstance(value, int) and value > 1 and value % 16:
            yield Cause(
                f"{name} is known only at run time",
                Change(constexprs=((name, value),)),
                f"Declare {name} as tl.constexpr",
            )


def stride(argument: Argument) -> Cause:
    """A cause: an argument's value is the stride between a thread's elements; 1 would remove it."""
    name, value = argument.name, argument.value
    change = Change(constexprs=((name, 1),))
    if value == 1:
        clause, remedy = unseen_one(name)
        return Cause(clause, change, remedy)
    if isinstance(value, int):
        remedy = f"Pass a contiguous tensor or reorder the axes, so that {name}=1"
        return Cause(f"a thread's elements are {name}={value} apart", change, remedy)
    remedy = (
        f"Pass {name}=1, which Triton specializes on unless the parameter has an annotation, or "
        "declare it as tl.constexpr"
    )
    clause = f"a thread's elements are {name} apart, which is known only at run time"
    return Cause(clause, change, remedy)


def unseen_one(name: str) -> tuple[str, str]:
    """The clause and the remedy for a stride that is 1 where the compiler does not see it."""
    return (
        f"{name} is 1, but the compiler does not know that (its annotation or do_not_specialize "
        "hides it)",
        f"Declare {name} as tl.constexpr, or without an annotation",
    )


def fixed_strides(compiled: Compiled, apart: int) -> Iterator[Cause]:
    """Causes: compile-time integers that equal the stride, so that 1 in their place may help."""
    for argument in compiled.arguments:
        value = argument.value
        small = isinstance(value, int) and not isinstance(value, bool)
        is_stride = argument.type == "constexpr" and named_as_stride(argument.name)
        if is_stride and small and value == apart <= _LARGEST_STRIDE:
            yield Cause(
                f"a thread's elements are {argument.name}={value} apart",
                Change(constexprs=((argument.name, 1),)),
                f"Lay the data out so that {argument.name} is 1",
            )


def named_as_stride(name: str) -> bool:
    """Whether an argument is a stride by its name; another may be a size, which cannot be 1."""
    return bool(_STRIDE.search(name))


def _is_integer(argument: Argument) -> bool:
    return argument.type.startswith(("i", "u")) and argument.type not in ("i1", "u1")


def _may_be_divisible(argument: Argument) -> bool:
    """Whether an argument is a pointer or an integer; others have no divisibility."""
    return argument.type.startswith(("*", "i", "u")) and argument.type != "i1"


def _halvings(warps: int, factor: int) -> Iterator[int]:
    """The number of warps divided by a factor, at least one; none for a single warp."""
    if warps > 1:
        yield max(1, warps // factor)


def in_words(names: Sequence[str]) -> str:
    """Names as a list in a sentence: `a, b and c`."""
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
