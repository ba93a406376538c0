"""The versions to compare: several targets, or one target with several values of an option."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from traceview import units
from traceview.errors import InputError
from traceview.records import record

MOST = 4
"""The most versions that fit side by side."""

_TOO_FEW = ("no version to compare", "only one version to compare")
_OPTIONS = {
    "kernel": "--kernel",
    "arch": "--arch",
    "signature": "--signature",
    "num_warps": "--num-warps",
    "num_stages": "--num-stages",
}


@record
class VersionRequest:
    """One version: its target, its options, and its label."""

    label: str
    target: str
    options: Mapping[str, Any]


@record
class Plan:
    """What to compare. `option` is the one that varies; None between targets.

    `varied` names the parts of a kernel's configuration that kernels are not matched by.
    """

    option: str | None
    varied: frozenset[str]
    versions: tuple[VersionRequest, ...]

    def named(self, version: VersionRequest) -> str:
        """A version as on the command line: `--num-warps 4`, `--constexpr BLOCK=256`."""
        return option_label(self.option, version.label)


def option_label(option: str | None, label: str) -> str:
    """A version's label, after the option whose value it is."""
    if option is None:
        return label
    return f"{option}{'=' if option.startswith('--constexpr') else ' '}{label}"


@record
class _VariedOption:
    """An option with several values, by its name on the command line and in Python."""

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
    """The versions to compare; an option or a constexpr whose value is a list varies.

    Raises InputError unless targets, or one option, give two to four versions.
    """
    varied = [
        _VariedOption(written, name, False, tuple(dict.fromkeys(options[name])))
        for name, written in _OPTIONS.items()
        if isinstance(options.get(name), list | tuple)
    ]
    varied += [
        _VariedOption(f"--constexpr {name}", name, True, tuple(dict.fromkeys(value)))
        for name, value in (options.get("constexprs") or {}).items()
        if isinstance(value, list | tuple)
    ]
    if varied and len(targets) != 1:
        number = units.counted(len(targets), "target")
        what = f"{varied[0].option} has several values, and there are {number}"
        raise InputError(what, "vary one option of one target, or compare targets without it")
    if len(varied) > 1:
        what = f"{varied[0].option} and {varied[1].option} both have several values"
        raise InputError(what, "vary one option at a time")
    if varied:
        option, target = varied[0], targets[0]
        versions = [VersionRequest(str(v), target, option.one(options, v)) for v in option.values]
        result = Plan(option.option, frozenset({option.name}), tuple(versions))
    else:
        # The names of files without their folders, if these differ.
        short = [PurePath(target).name for target in targets]
        labels = short if len(set(short)) == len(short) and all(short) else targets
        versions = [VersionRequest(*pair, options) for pair in zip(labels, targets, strict=True)]
        result = Plan(None, frozenset(), tuple(versions))
    count = len(result.versions)
    if not 1 < count <= MOST:
        what = f"{count} versions are too many to compare" if count > 1 else _TOO_FEW[count]
        raise InputError(what, f"give two targets, or two to {MOST} different values of an option")
    return result
