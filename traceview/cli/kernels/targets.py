"""The targets of `traceview ptx`: one or several, and the files that they are in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from traceview.cli.output import STDOUT
from traceview.outputs import unpacked_name

_ENDINGS = (".py", ".ptx", ".cubin", ".cu", ".sqlite", ".nsys-rep", ".json")


def targets_of(
    target: str | None, diff: tuple[str, str] | None, options: dict[str, Any]
) -> list[str]:
    """The targets to inspect. With TARGET, --diff names two kernels of it, added to `options`."""
    if diff is None or target is None:
        return [target] if target else list(diff or ())
    if options["kernel"]:
        raise click.UsageError("--diff already names the kernels of TARGET; leave out --kernel")
    options["kernel"] = list(diff)
    return [target]


def is_diff(targets: Sequence[str], options: dict[str, Any]) -> bool:
    values = [*options.values(), *options["constexprs"].values()]
    return len(targets) > 1 or any(isinstance(value, list) for value in values)


def no_target(html: str | None, json_: str | None) -> str:
    for option, path in (("--html", html), ("--json", json_)):
        if path and path != STDOUT:
            return (
                f"{option} took {path!r} as its output path, so TARGET is missing. "
                f"Put TARGET first: traceview ptx {path} {option}"
            )
    return "Missing argument 'TARGET'."


def file_of(target: str) -> Path:
    """The file that a target is in: `gelu.py` of `gelu.py:kernel`."""
    file, colon, _ = target.rpartition(":")
    return Path(file if colon and not Path(target).exists() else target)


def stem_of(targets: Sequence[str]) -> str:
    """The file name of an HTML page without its ending: the names of the targets, joined by `-`."""
    names = [unpacked_name(file_of(target).resolve()) for target in targets]
    stems = (Path(name).stem if Path(name).suffix in _ENDINGS else name for name in names)
    return "-".join(dict.fromkeys(stems)) or "kernels"
