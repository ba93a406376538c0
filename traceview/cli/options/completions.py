"""Values that the shell completes: names of analyses, and ranges of the trace on the line."""

from __future__ import annotations

from pathlib import Path

import click
from click.shell_completion import CompletionItem

_MOST = 200
_ACTIVE = frozenset("$`\\!;&|<>()'\"")
OURS = "traceview:"
"""Name prefix of the ranges that `traceview record` adds around calls; not worth selecting."""


def complete_analyses(
    _: click.Context, parameter: click.Parameter, typed: str
) -> list[CompletionItem]:
    """Names of analyses, each with its question; after a comma, the next one."""
    from traceview.analyses import ALL
    from traceview.explanation import explanations

    before, comma, last = typed.rpartition(",")
    known = explanations() if parameter.name == "explain" else ALL
    items = [(each.name, each.question) for each in known]
    return [
        CompletionItem(f"{before}{comma}{name}", help=question)
        for name, question in items
        if name.startswith(last)
    ]


def complete_ranges(ctx: click.Context, _: click.Parameter, typed: str) -> list[CompletionItem]:
    """Names of the ranges in TRACE, with * for numbers; none if that cannot be read."""
    # While the option's value is missing, click leaves the whole line unparsed.
    words = [*(ctx.params.get("traces") or ()), *ctx.args]
    trace = next((Path(word) for word in words if word and Path(word).is_file()), None)
    names = _range_names(trace) if trace else []
    return [CompletionItem(name) for name in names if name.startswith(typed)][:_MOST]


def _range_names(trace: Path) -> list[str]:
    from traceview.facts.ranges.ranges import range_tree
    from traceview.trace.load import load

    try:
        # Not traceview.load, which runs nsys for a .nsys-rep: a key press must start no program.
        names = range_tree(load(trace)).patterns.names
    except Exception:  # A shell has no place for an error message.
        return []
    globs = {str(name).replace("#", "*") for name in names if not str(name).startswith(OURS)}
    return sorted(name for name in globs if name and len(name) <= _MOST and _is_inert(name))


def _is_inert(name: str) -> bool:
    """Whether a name stands for itself on a command line: bash inserts it without quotes."""
    return name.isprintable() and not _ACTIVE & set(name)
