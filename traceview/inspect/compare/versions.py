"""Which versions a comparison is of: several targets, or one with several values of one option."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from traceview.errors import InputError

MOST = 4
"""Versions that can be told apart side by side."""

_OPTIONS = {
    "kernel": "--kernel",
    "arch": "--arch",
    "signature": "--signature",
    "num_warps": "--num-warps",
    "num_stages": "--num-stages",
}


@dataclass(frozen=True)
class Asked:
    """One version: what to inspect, with which options, and what to call it."""

    label: str
    target: str
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Plan:
    """What to compare. `option` differs on purpose, None between targets.

    `varied` is what is then no part of a kernel's configuration.
    """

    option: str | None
    varied: frozenset[str]
    versions: tuple[Asked, ...]

    def named(self, asked: Asked) -> str:
        """A version as it would be asked for: `--num-warps 4`, `--constexpr BLOCK=256`."""
        return named(self.option, asked.label)


def named(option: str | None, label: str) -> str:
    """The label of a version behind what it is a value of."""
    if option is None:
        return label
    return f"{option}{'=' if option.startswith('--constexpr') else ' '}{label}"


@dataclass(frozen=True)
class _Several:
    """An option with several values: as it is written, and as it is called in Python."""

    option: str
    name: str
    is_constexpr: bool
    values: tuple[Any, ...]

    def one(self, options: Mapping[str, Any], value: Any) -> Mapping[str, Any]:
        """The options with one of the values."""
        if not self.is_constexpr:
            return {**options, self.name: value}
        return {**options, "constexprs": {**options["constexprs"], self.name: value}}


def plan(targets: Sequence[str], options: Mapping[str, Any]) -> Plan:
    """The versions that targets and options ask for: an option varies if its value is a list.

    So does a constexpr. Raises InputError unless two to four versions follow from one thing.
    """
    several = list(_several(options))
    if several and len(targets) != 1:
        what = f"there are {len(targets)} targets, and {several[0].option} has several values"
        raise InputError(what, "compare one thing at a time")
    if len(several) > 1:
        what = f"{several[0].option} and {several[1].option} both have several values"
        raise InputError(what, "compare one thing at a time")
    made = _of_option(targets[0], options, several[0]) if several else _of_targets(targets, options)
    if not 1 < len(made.versions) <= MOST:
        what = f"there are {len(made.versions)} versions to compare"
        raise InputError(what, f"give two targets, or two to {MOST} different values of an option")
    return made


def _several(options: Mapping[str, Any]) -> Iterator[_Several]:
    for name, written in _OPTIONS.items():
        if isinstance(value := options.get(name), list | tuple):
            yield _Several(written, name, False, tuple(dict.fromkeys(value)))
    for name, value in (options.get("constexprs") or {}).items():
        if isinstance(value, list | tuple):
            yield _Several(f"--constexpr {name}", name, True, tuple(dict.fromkeys(value)))


def _of_targets(targets: Sequence[str], options: Mapping[str, Any]) -> Plan:
    named = zip(_apart(targets), targets, strict=True)
    return Plan(None, frozenset(), tuple(Asked(label, target, options) for label, target in named))


def _apart(targets: Sequence[str]) -> Sequence[str]:
    """The names of files without their folders, if that tells them apart."""
    short = [PurePath(target).name for target in targets]
    return short if len(set(short)) == len(short) and all(short) else targets


def _of_option(target: str, options: Mapping[str, Any], several: _Several) -> Plan:
    versions = (Asked(str(v), target, several.one(options, v)) for v in several.values)
    return Plan(several.option, frozenset({several.name}), tuple(versions))
