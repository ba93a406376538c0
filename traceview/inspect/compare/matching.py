"""Which things of several versions belong together: kernels by their configuration, and lines.

Each rule names a thing; things of one name in different versions belong together. Rules are tried
from the strictest to the loosest, and what one has joined the next leaves alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from traceview.inspect.kernel_report import KernelReport

T = TypeVar("T")
Place = tuple[int, int]
Matched = tuple[T | None, ...]


@dataclass(frozen=True)
class Rule(Generic[T]):
    """A name for a thing; it must be that of a single thing in each version.

    With `in_order` things of one name, as many in each version, are joined in their order.
    """

    name: Callable[[T], Hashable]
    in_order: bool = False


def match(versions: Sequence[Sequence[T]], rules: Iterable[Rule[T]]) -> list[Matched[T]]:
    """Things that belong together, one or None of each version, in the order of their first.

    A thing that has no counterpart in any other version is alone in its tuple.
    """
    rules = tuple(rules)
    places: dict[Place, Place] = {}
    count = len(versions)
    # First those that every version has: in three, the second and third must not be joined early.
    for least in range(count, 1, -1):
        for rule in rules:
            _join(versions, rule, least, places)
    joined: dict[Place, list[T | None]] = {}
    for version, things in enumerate(versions):
        for index, thing in enumerate(things):
            first = places.get((version, index), (version, index))
            joined.setdefault(first, [None] * count)[version] = thing
    return [tuple(things) for things in joined.values()]


def _join(
    versions: Sequence[Sequence[T]], rule: Rule[T], least: int, places: dict[Place, Place]
) -> None:
    """Join what one rule joins, in so many versions or more. `places` leads to the first of each.

    What is loosely named counts even if it is joined: the last two left over need not be alike.
    """
    named = [_by_name(things, rule) for things in versions]
    for name in dict.fromkeys(name for each in named for name in each):
        there = [[(v, i) for i in each.get(name, ())] for v, each in enumerate(named)]
        if rule.in_order:
            there = [[place for place in each if place not in places] for each in there]
        there = [each for each in there if each]
        counts = {len(each) for each in there}
        if len(there) < least or len(counts) > 1 or not (rule.in_order or counts == {1}):
            continue
        for same in zip(*there, strict=True):
            if not any(place in places for place in same):
                places.update(dict.fromkeys(same, same[0]))


def _by_name(things: Sequence[T], rule: Rule[T]) -> dict[Hashable, list[int]]:
    by_name: dict[Hashable, list[int]] = defaultdict(list)
    for index, thing in enumerate(things):
        by_name[rule.name(thing)].append(index)
    return by_name


_Naming = Callable[[KernelReport], Hashable]


def match_kernels(
    versions: Sequence[Sequence[KernelReport]], varied: frozenset[str] = frozenset()
) -> list[Matched[KernelReport]]:
    """The kernels of several versions by name and configuration.

    `varied` are the constexprs, or `num_warps` and `num_stages`, that differ on purpose. Where
    every version has kernels of a single name, these belong together whatever it is. Of several
    configurations of a kernel, those that no other version has are alone.
    """
    named = not all(len({kernel.name for kernel in kernels}) == 1 for kernels in versions)

    def rule(
        parts: Callable[[KernelReport], Hashable], in_order: bool = False
    ) -> Rule[KernelReport]:
        return Rule(lambda k: (named and k.name, parts(k)), in_order)

    return match(
        versions,
        (
            rule(lambda k: (_block(k, varied), _types(k), _constexprs(k, varied)), in_order=True),
            rule(lambda k: (_types(k), _constexprs(k, varied))),
            rule(_types),
            rule(lambda _: None),
        ),
    )


def _block(kernel: KernelReport, varied: frozenset[str]) -> Hashable:
    compiled = kernel.compiled
    each = {"num_warps": compiled.num_warps, "num_stages": compiled.num_stages}
    return tuple(value for name, value in each.items() if name not in varied)


def _types(kernel: KernelReport) -> Hashable:
    """The types of the arguments that are passed at run time, with what is known of them."""
    return tuple(_runtime(kernel))


def _runtime(kernel: KernelReport) -> Iterator[Hashable]:
    for argument in kernel.compiled.arguments:
        if argument.type != "constexpr":
            yield argument.type, argument.divisible_by_16


def _constexprs(kernel: KernelReport, varied: frozenset[str]) -> Hashable:
    return frozenset(
        (argument.name, repr(argument.value))
        for argument in kernel.compiled.arguments
        if argument.type == "constexpr" and argument.name not in varied
    )
