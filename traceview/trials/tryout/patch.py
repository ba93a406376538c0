"""The change of the user's source that kept remedies make, as a diff."""

from __future__ import annotations

import ast
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from traceview.base.records import record
from traceview.trials.remedies import ProgramRemedy, SourceEdit
from traceview.trials.tryout import source
from traceview.trials.tryout.runs import Program
from traceview.trials.tryout.source import diff
from traceview.trials.tryout.verdict import Trial


@record
class Patch:
    """A unified diff, and what is left to do by hand: (remedy, how)."""

    diff: str
    by_hand: tuple[tuple[str, str], ...]


@dataclass
class _Changes:
    """What changes in one file: edits, and the keywords that calls get, by their end and name.

    A call that gets none is removed.
    """

    edits: list[SourceEdit] = field(default_factory=list)
    calls: dict[tuple[source.Place, str], Mapping[str, Any]] = field(default_factory=dict)

    def and_(self, other: _Changes) -> _Changes:
        """Both. Raises ValueError where they give one call different things."""
        calls = {**self.calls, **other.calls}
        for call in self.calls.keys() & other.calls.keys():
            one, two = self.calls[call], other.calls[call]
            calls[call] = {**one, **two}
            if bool(one) is not bool(two) or calls[call] != {**two, **one}:
                raise ValueError(f"different changes of {call[1]}")
        return _Changes(list(dict.fromkeys(self.edits + other.edits)), calls)

    def made(self, text: str) -> str:
        """The text with them. Raises SyntaxError or ValueError where that is no Python."""
        edits = list(self.edits)
        for (end, callee), keywords in self.calls.items():
            edits += _of_call(text, end, callee, keywords) or ()
        after = source.edited(text, edits)
        ast.parse(after)
        return after


def patch_of(program: Program, trials: Iterable[Trial]) -> Patch:
    """The patch of these trials, each of one remedy."""
    by_file: dict[str, _Changes] = {}
    texts: dict[str, tuple[str, str]] = {}
    by_hand = []
    for trial in trials:
        for remedy in trial.planned.remedies:
            changes, missing = _changes(program, remedy, trial)
            try:
                merged = {
                    file: by_file.get(file, _Changes()).and_(change)
                    for file, change in changes.items()
                }
                for file, change in merged.items():
                    before = source.read_source(Path(file))
                    texts[file] = before, change.made(before)
            except (SyntaxError, ValueError):  # Not together with those before.
                merged = {}
            by_file |= merged
            if not merged and (changes or not missing):
                missing = [remedy.how or remedy.line or remedy.does]
            by_hand += [(remedy.name, how) for how in missing]
    pieces = [diff(_shown(file, program), *texts[file]) for file in sorted(by_file)]
    return Patch("".join(pieces), tuple(by_hand))


def _changes(
    program: Program, remedy: ProgramRemedy, trial: Trial
) -> tuple[dict[str, _Changes], list[str]]:
    """The changes of files for a remedy, and those that are none of a call of the user's."""
    changes: defaultdict[str, _Changes] = defaultdict(_Changes)
    missing = []
    if remedy.rewrites and (edits := remedy.rewrites(source.read_source(program.script))):
        changes[str(program.script)].edits += edits
    if remedy.line:
        edits = source.line_edits(source.read_source(program.script), remedy.line)
        changes[str(program.script)].edits += edits
    for name, file, line, end, callee, keywords in trial.sites:
        if name not in (remedy.name, *remedy.needs):
            continue
        try:
            found = _of_call(source.read_source(Path(file)), end, callee, keywords)
        except (OSError, SyntaxError, ValueError):  # Changed since, or none of a file.
            found = None
        if found is None:
            given = ", ".join(f"{key}={value!r}" for key, value in keywords.items())
            where = f" (from {_shown(file, program)}:{line})" if file else ""
            missing.append(f"{callee}({given or 'without it'}){where}")
        elif found:
            calls = changes[file].calls
            calls[end, callee] = {**calls.get((end, callee), {}), **keywords}
    return changes, missing


def _of_call(
    text: str, end: source.Place, callee: str, keywords: Mapping[str, Any]
) -> list[SourceEdit] | None:
    if not keywords:
        return source.removal(text, end, callee)
    return source.keyword_edits(text, end, callee, keywords)


def _shown(file: str, program: Program) -> str:
    return os.path.relpath(file, program.folder)
