"""What may keep an access narrow: each cause with the change that tests it and the remedy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from traceview.ptx.model import Argument, Compiled
from traceview.ptx.trials import Change

WIDE_BITS = 128
_SMALLEST_BLOCK = 16
_LARGEST_STRIDE = 16
_LARGEST_BLOCK = 1 << 16


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


def single_causes(compiled: Compiled, suspects: Suspects, width: int, moved: int) -> list[Cause]:
    """Causes that one change can show, the likeliest first.

    `width` is the bits that the access moves now, `moved` those of all such accesses of the line.
    """
    causes = [not_divisible(argument) for argument in undeclared(suspects)]
    if moved < WIDE_BITS:
        causes += too_few_elements(compiled, WIDE_BITS // max(width, 1))
    return causes + [cause for a in suspects.address for cause in strides(a)]


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


def all_divisible(arguments: Sequence[Argument]) -> Cause:
    """Several arguments at once, where none alone is the cause."""
    names = tuple(argument.name for argument in arguments)
    listed = _listed(names)
    return Cause(
        f"neither of {listed} is known to be divisible by 16",
        Change(divisible=names),
        f"Make {listed} multiples of 16 (sizes padded, pointers aligned)",
    )


def too_few_elements(compiled: Compiled, factor: int) -> Iterator[Cause]:
    """A thread has too few neighbouring elements: fewer threads or a larger block give it more."""
    said = "each thread has too few neighbouring elements"
    warps = compiled.num_warps or 1
    for fewer in _halvings(warps, factor):
        yield Cause(said, Change(num_warps=fewer), f"Use num_warps={fewer}")
    for argument in compiled.arguments:
        value = argument.value
        if argument.type == "constexpr" and _is_block(value) and isinstance(value, int):
            larger = value * factor
            if larger <= _LARGEST_BLOCK:
                change = Change(constexprs=((argument.name, larger),))
                yield Cause(said, change, f"Use {argument.name}={larger}")


def strides(argument: Argument) -> Iterator[Cause]:
    """An integer in the address: known too late, or not 1."""
    name, value = argument.name, argument.value
    if argument.type.startswith("*") or argument.type in ("constexpr", "i1"):
        return
    if isinstance(value, int) and value > 1:
        yield Cause(
            f"{name} is known only at run time",
            Change(constexprs=((name, value),)),
            f"Declare {name}: tl.constexpr",
        )
        apart = f"the elements of a thread lie {name}={value} apart"
        action = f"Pass {name}=1: a contiguous tensor, or the axes in another order"
    else:
        apart = f"the elements of a thread lie {name} apart, which only the run tells"
        action = f"Pass {name}=1, which Triton compiles for, or make it a tl.constexpr"
    yield Cause(apart, Change(constexprs=((name, 1),)), action)


def fixed_strides(compiled: Compiled) -> Iterator[Cause]:
    """A small compile-time integer that would be a stride if 1 in its place widened the access."""
    for argument in compiled.arguments:
        value = argument.value
        small = isinstance(value, int) and not isinstance(value, bool) and value > 1
        if argument.type == "constexpr" and small and int(value or 0) <= _LARGEST_STRIDE:
            yield Cause(
                f"the elements of a thread lie {argument.name}={value} apart",
                Change(constexprs=((argument.name, 1),)),
                f"Lay the data out so that {argument.name} is 1",
            )


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
