"""The change of the user's source that kept remedies make, as a diff."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from traceview.base.records import record
from traceview.trials.remedies import ProgramRemedy, SourceEdit
from traceview.trials.tryout.runs import Program
from traceview.trials.tryout.source import (
    diff,
    edited,
    keyword_edits,
    line_edits,
    read_source,
    removal,
)
from traceview.trials.tryout.verdict import Trial


@record
class Patch:
    """A unified diff, and what is left to do by hand: (remedy, how)."""

    diff: str
    by_hand: tuple[tuple[str, str], ...]


def patch_of(program: Program, trials: Iterable[Trial]) -> Patch:
    """The patch of these trials, each of one remedy."""
    by_file: dict[str, list[SourceEdit]] = {}
    by_hand = []
    for trial in trials:
        for remedy in trial.planned.remedies:
            edits, missing = _edits(program, remedy, trial)
            for file, edit in edits:
                of_file = by_file.setdefault(file, [])
                if edit not in of_file:
                    of_file.append(edit)
            if not edits and not missing:
                missing = [remedy.how or remedy.line or remedy.does]
            by_hand += [(remedy.name, how) for how in missing]
    pieces = []
    for file, of_file in sorted(by_file.items()):
        text = read_source(Path(file))
        pieces.append(diff(_shown(file, program), text, edited(text, of_file)))
    return Patch("".join(pieces), tuple(by_hand))


def _edits(
    program: Program, remedy: ProgramRemedy, trial: Trial
) -> tuple[list[tuple[str, SourceEdit]], list[str]]:
    """The edits of files for a remedy, and the changes that are none of a call of the user's."""
    edits, missing = [], []
    script = str(program.script)
    if remedy.rewrites:
        edits += [(script, edit) for edit in remedy.rewrites(read_source(program.script))]
    if remedy.line:
        edits += [(script, edit) for edit in line_edits(read_source(program.script), remedy.line)]
    for name, file, line, end, callee, keywords in trial.sites:
        if name not in (remedy.name, *remedy.needs):
            continue
        try:
            source = read_source(Path(file))
            found = keyword_edits(source, end, callee, keywords) if keywords else None
            found = removal(source, end, callee) if not keywords else found
        except (OSError, SyntaxError, ValueError):  # Changed since, or none of a file.
            found = None
        if found is None:
            given = ", ".join(f"{key}={value!r}" for key, value in keywords.items())
            where = f" (from {_shown(file, program)}:{line})" if file else ""
            missing.append(f"{callee}({given or 'without it'}){where}")
        edits += [(file, edit) for edit in found or ()]
    return edits, missing


def _shown(file: str, program: Program) -> str:
    return os.path.relpath(file, program.folder)
