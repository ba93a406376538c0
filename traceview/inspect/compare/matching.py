"""Matching of items across versions: kernels by configuration, lines, findings.

A rule gives an item a key; items with the same key in different versions match. Rules are tried
from the strictest to the loosest, and each leaves alone the items that earlier rules matched.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Generic, TypeVar

from traceview.findings import SEVERITIES, Finding
from traceview.inspect.kernel_report import KernelReport, source_of
from traceview.records import record

T = TypeVar("T")
_Position = tuple[int, int]
"""The number of a version, and of an item in it."""
Matched = tuple[T | None, ...]


@record
class MatchRule(Generic[T]):
    """A key for an item, unique in each version.

    With `in_order` several items of one key, as many in each version, match in their order.
    """

    key: Callable[[T], Hashable]
    in_order: bool = False


def match(versions: Sequence[Sequence[T]], rules: Iterable[MatchRule[T]]) -> list[Matched[T]]:
    """Tuples of matching items, one item or None per version, in order of first appearance.

    An item without a counterpart in any other version is alone in its tuple.
    """
    rules = tuple(rules)
    places: dict[_Position, _Position] = {}
    count = len(versions)
    # Keys that every version has come first: of three, two must not be matched too early.
    for least in range(count, 1, -1):
        for rule in rules:
            _join(versions, rule, least, places)
    joined: dict[_Position, list[T | None]] = {}
    for version, items in enumerate(versions):
        for index, item in enumerate(items):
            first = places.get((version, index), (version, index))
            joined.setdefault(first, [None] * count)[version] = item
    return [tuple(items) for items in joined.values()]


def _join(
    versions: Sequence[Sequence[T]],
    rule: MatchRule[T],
    least: int,
    places: dict[_Position, _Position],
) -> None:
    """Match the items that have the same key by one rule in at least `least` versions.

    Without `in_order` matched items still count as items of their key: the last two left over need
    not be alike.
    """
    keyed: dict[Hashable, list[list[_Position]]] = {}
    for version, items in enumerate(versions):
        for index, item in enumerate(items):
            of_key = keyed.setdefault(rule.key(item), [[] for _ in versions])
            of_key[version].append((version, index))
    for positions in keyed.values():
        if rule.in_order:
            positions = [[place for place in side if place not in places] for side in positions]
        positions = [side for side in positions if side]
        counts = {len(side) for side in positions}
        if len(positions) < least or len(counts) > 1 or not (rule.in_order or counts == {1}):
            continue
        for same in zip(*positions, strict=True):
            if not any(place in places for place in same):
                places.update(dict.fromkeys(same, same[0]))


def match_kernels(
    versions: Sequence[Sequence[KernelReport]], varied: frozenset[str] = frozenset()
) -> list[Matched[KernelReport]]:
    """The kernels of several versions, matched by name and configuration.

    `varied` are the constexprs, or `num_warps` and `num_stages`, that differ on purpose. Where
    every version has kernels of one name only, the names need not be equal. A configuration that
    no other version has stays alone.
    """
    named = not all(len({kernel.name for kernel in kernels}) == 1 for kernels in versions)

    def rule(
        parts: Callable[[KernelReport], Hashable], in_order: bool = False
    ) -> MatchRule[KernelReport]:
        return MatchRule(lambda k: (named and k.name, parts(k)), in_order)

    def block(kernel: KernelReport) -> Hashable:
        sizes = ("num_warps", "num_stages")
        return tuple(getattr(kernel.compiled, name) for name in sizes if name not in varied)

    return match(
        versions,
        (
            rule(lambda k: (block(k), _types(k), _constexprs(k, varied)), in_order=True),
            rule(lambda k: (_types(k), _constexprs(k, varied))),
            rule(_types),
            rule(lambda _: None),
        ),
    )


def _types(kernel: KernelReport) -> Hashable:
    """The types of the run-time arguments, and whether they are divisible by 16."""
    return tuple(
        (argument.type, argument.divisible_by_16)
        for argument in kernel.compiled.arguments
        if argument.type != "constexpr"
    )


def _constexprs(kernel: KernelReport, varied: frozenset[str]) -> Hashable:
    return frozenset(
        (argument.name, repr(argument.value))
        for argument in kernel.compiled.arguments
        if argument.type == "constexpr" and argument.name not in varied
    )


# Findings of several versions of a kernel: which are the same, which appear, which vanish.

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


def match_findings(versions: Sequence[Sequence[Finding]]) -> tuple[Matched[Finding], ...]:
    """The findings, the worst first, each with its counterpart in each version or None.

    Two findings are the same if their remedies differ only in numbers: first on the same line,
    then on any line.
    """
    rules: tuple[MatchRule[Finding], ...] = (
        MatchRule(lambda finding: (source_of(finding), _remedy(finding)), in_order=True),
        MatchRule(_remedy, in_order=True),
    )
    matched: list[Matched[Finding]] = match(versions, rules)
    ranks = {severity: rank for rank, severity in enumerate(SEVERITIES)}
    return tuple(sorted(matched, key=lambda same: min(ranks[f.severity] for f in same if f)))


def _remedy(finding: Finding) -> Hashable:
    return _NUMBER.sub("#", finding.action)
