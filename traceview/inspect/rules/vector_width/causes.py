"""What may keep an access narrow: each cause with the change that tests it and the remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from traceview.headless.change import Change
from traceview.inspect.rules.remedies import named_as_tile
from traceview.ptx.model import Argument, Compiled

WIDE_BITS = 128
_SMALLEST_BLOCK = 16
_LARGEST_STRIDE = 16
_LARGEST_BLOCK = 1 << 16
# Of the operands of tl.dot: a larger tile fits neither registers nor shared memory, and takes
# ptxas minutes to fail.
_LARGEST_OF_PRODUCT = 512
_PRODUCT = re.compile(r"\b(?:wgmma|mma|tcgen05)\.")
TOO_FEW = "each thread has too few neighbouring elements"


@dataclass(frozen=True)
class Cause:
    """A cause in words, the change that would show it, and the imperative that removes it."""

    said: str
    change: Change
    action: str


@dataclass(frozen=True)
class Suspects:
    """What an access depends on: the arguments in its address and in its mask."""

    address: tuple[Argument, ...]
    mask: tuple[Argument, ...]


def undeclared(suspects: Suspects) -> list[Argument]:
    """The arguments that matter and that the compiler was not told to be divisible by 16."""
    listed = dict.fromkeys(suspects.address + suspects.mask)
    return [a for a in listed if not a.divisible_by_16 and _may_be_divisible(a)]


def single_causes(suspects: Suspects, few: Sequence[Cause]) -> list[Cause]:
    """Causes that one change can show, the likeliest first; `few` are those of a lack of work."""
    return [*(not_divisible(argument) for argument in undeclared(suspects)), *few]


def not_divisible(argument: Argument) -> Cause:
    """The argument's value or address is not known to be a multiple of 16."""
    name, change = argument.name, Change(divisible=(argument.name,))
    if argument.type.startswith("*"):
        return Cause(
            f"{name} is not known to be aligned to 16 bytes",
            change,
            f"Let {name} start at a multiple of 16 bytes",
        )
    now = f" (it was {argument.value})" if argument.value is not None else ""
    return Cause(
        f"{name} is not known to be divisible by 16{now}",
        change,
        f"Pad {name} to a multiple of 16",
    )


def all_divisible(names: Sequence[str]) -> Cause:
    """Several arguments at once, where none alone is the cause."""
    listed = _listed(names)
    return Cause(
        f"neither of {listed} is known to be divisible by 16",
        Change(divisible=tuple(names)),
        f"Make {listed} multiples of 16 (sizes padded, pointers aligned)",
    )


def too_few_elements(compiled: Compiled, factor: int, *, tiles: bool) -> Iterator[Cause]:
    """A thread has too few neighbouring elements: fewer threads or a larger tile give it more.

    With `tiles` False no larger tile is tried: it would not bring more elements. A constexpr that
    is no tile by its name is no remedy, as its value may be the data's.
    """
    warps = compiled.num_warps or 1
    for fewer in _halvings(warps, factor):
        yield Cause(TOO_FEW, Change(num_warps=fewer), f"Use num_warps={fewer}")
    for name, larger in _larger(compiled, factor) if tiles else ():
        if named_as_tile(name):
            yield Cause(TOO_FEW, Change(constexprs=((name, larger),)), f"Use {name}={larger}")


def perhaps_too_few(compiled: Compiled, factor: int) -> Iterator[Cause]:
    """The same for constexprs by other names, which may be the data's or a tile's."""
    for name, larger in _larger(compiled, factor):
        if not named_as_tile(name):
            action = f"If {name} is free to choose, use {name}={larger}"
            yield Cause(TOO_FEW, Change(constexprs=((name, larger),)), action)


def _larger(compiled: Compiled, factor: int) -> Iterator[tuple[str, int]]:
    """Constexprs that may be sizes, with the size that would suffice."""
    products = _PRODUCT.search(compiled.ptx or "")
    most = _LARGEST_OF_PRODUCT if products else _LARGEST_BLOCK
    for argument in compiled.arguments:
        value = argument.value
        larger = value * factor if isinstance(value, int) and _is_block(value) else 0
        if argument.type == "constexpr" and 0 < larger <= most:
            yield argument.name, larger


def known_late(arguments: Sequence[Argument]) -> Iterator[Cause]:
    """Integers that are a multiple of less than 16: as constants the compiler knows of what."""
    for argument in arguments:
        name, value = argument.name, argument.value
        if _is_integer(argument) and isinstance(value, int) and value > 1 and value % 16:
            yield Cause(
                f"{name} is known only at run time",
                Change(constexprs=((name, value),)),
                f"Declare {name}: tl.constexpr",
            )


def stride(argument: Argument) -> Cause:
    """The elements of a thread lie an argument's value apart: would they not if it were 1?"""
    name, value = argument.name, argument.value
    change = Change(constexprs=((name, 1),))
    if isinstance(value, int):
        action = f"Pass {name}=1: a contiguous tensor, or the axes in another order"
        return Cause(f"the elements of a thread lie {name}={value} apart", change, action)
    action = f"Pass {name}=1, which Triton compiles for, or make it a tl.constexpr"
    said = f"the elements of a thread lie {name} apart, which only the run tells"
    return Cause(said, change, action)


def fixed_strides(compiled: Compiled, apart: int) -> Iterator[Cause]:
    """A compile-time integer that is the distance, if 1 in its place widens the access."""
    for argument in compiled.arguments:
        value = argument.value
        small = isinstance(value, int) and not isinstance(value, bool)
        if argument.type == "constexpr" and small and value == apart <= _LARGEST_STRIDE:
            yield Cause(
                f"the elements of a thread lie {argument.name}={value} apart",
                Change(constexprs=((argument.name, 1),)),
                f"Lay the data out so that {argument.name} is 1",
            )


def _is_integer(argument: Argument) -> bool:
    return argument.type.startswith(("i", "u")) and argument.type not in ("i1", "u1")


def _may_be_divisible(argument: Argument) -> bool:
    """Pointers and integers; floats, flags and constants have no such property."""
    return argument.type.startswith(("*", "i", "u")) and argument.type != "i1"


def _is_block(value: object) -> bool:
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    return value >= _SMALLEST_BLOCK and value & (value - 1) == 0


def _halvings(warps: int, factor: int) -> Iterator[int]:
    """The number of warps that suffices; where one is too many, the least there is."""
    if warps > 1:
        yield max(1, warps // factor)


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
