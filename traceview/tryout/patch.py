"""The change of the user's source that kept remedies make, as a diff."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from traceview.records import record
from traceview.remedies import ProgramRemedy, SourceEdit
from traceview.tryout.runs import Program
from traceview.tryout.source import diff, edited, keyword_edits, line_edit, removal
from traceview.tryout.verdict import Trial


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
            edits = list(_edits(program, remedy, trial))
            for file, edit in edits:
                of_file = by_file.setdefault(file, [])
                if edit not in of_file:
                    of_file.append(edit)
            if not edits:
                by_hand.append((remedy.name, remedy.how or remedy.line or remedy.does))
    pieces = []
    for file, of_file in sorted(by_file.items()):
        text = Path(file).read_text("utf-8")
        shown = os.path.relpath(file, program.folder)
        pieces.append(diff(shown, text, edited(text, _merged(of_file))))
    return Patch("".join(pieces), tuple(by_hand))


def _edits(
    program: Program, remedy: ProgramRemedy, trial: Trial
) -> Iterator[tuple[str, SourceEdit]]:
    script = str(program.script)
    text = program.script.read_text("utf-8")
    if remedy.rewrites:
        yield from ((script, edit) for edit in remedy.rewrites(text))
    if remedy.line:
        yield from ((script, edit) for edit in line_edit(text, remedy.line) or ())
    for name, file, line, callee, keywords in trial.sites:
        if name not in (remedy.name, *remedy.needs):
            continue
        source = Path(file).read_text("utf-8")
        if keywords:
            found = keyword_edits(source, line, callee, keywords)
        else:
            found = removal(source, line, callee)
        yield from ((file, edit) for edit in found or ())


def _merged(edits: Sequence[SourceEdit]) -> list[SourceEdit]:
    """Insertions at one place as one edit: `edited` takes none that overlap."""
    at: dict[tuple[int, int, int, int], str] = {}
    for edit in edits:
        key = (edit.line, edit.column, edit.end_line, edit.end_column)
        at[key] = at.get(key, "") + edit.text
    return [SourceEdit(*key, text) for key, text in at.items()]
