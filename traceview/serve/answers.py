"""The answers of the server: documents of plain values, bounded in size."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

import traceview
from traceview.analyses import ALL
from traceview.analyses.base import Result, Skipped
from traceview.errors import InputError, suggestion
from traceview.explanation import explained
from traceview.facts.kernel_labels import kernel_labels
from traceview.ranking import RankedFinding
from traceview.render.base.json_text import written
from traceview.render.comparison.json import render_json as comparison_json
from traceview.render.kernels.json import as_document
from traceview.render.ranks.json import render_json as job_json
from traceview.render.report.json import RANKED_FINDING, tables_document
from traceview.report import Report
from traceview.serve import brevity
from traceview.serve.folder import CODE, MOST_FILES, ServedFolder, is_named_like_recording
from traceview.serve.work import Work
from traceview.trace.load import is_report

_MOST_LISTED = (500, 100)


class Answers:
    """Answers about the recordings of one folder. The latest reports and answers are cached."""

    def __init__(self, folder: ServedFolder) -> None:
        self._folder = folder
        self._reports: Work[Report] = Work()
        self._others: Work[brevity.Document] = Work(at_once=1)

    def recordings(self) -> brevity.Document:
        """The recordings of the folder, and the files with the code of kernels."""
        document: brevity.Document = {}
        for most in _MOST_LISTED:
            for kind, named, files in (
                ("recordings", "recording", self._folder.recordings()),
                ("code", "target", self._folder.code()),
            ):
                document[kind] = [
                    {named: self._folder.name_of(file), "bytes": file.stat().st_size}
                    for file in files[:most]
                ]
                document[f"{kind}_left_out"] = max(0, len(files) - most)
            if len(brevity.compact(document)) <= brevity.MOST_SENT // 2:
                break
        return document

    def questions(self) -> brevity.Document:
        return {"questions": [{"question": a.name, "asks": a.question} for a in ALL]}

    def report(self, recording: str) -> brevity.Document:
        """The verdict, the figures to look at first, and the first findings, numbered."""
        report = self._report(recording)
        first = report.findings[: brevity.MOST_FINDINGS]
        left_out = len(report.findings) - len(first)
        outcomes = report.outcomes.items()
        document = _plain(
            {
                "verdict": vars(report.verdict) if report.verdict else None,
                "scoreboard": vars(report.scoreboard) if report.scoreboard else None,
                "findings": [_brief(number, ranked) for number, ranked in enumerate(first)],
                "findings_left_out": left_out,
                "not_answered": [name for name, of in outcomes if isinstance(of, Skipped)],
            }
        )
        return brevity.fitted(lambda _: document, None)

    def answer(
        self, recording: str, question: str, table: str | None, rows: int | None
    ) -> brevity.Document:
        """The first rows of a question's tables; of one table, also what its columns mean."""
        questions = [analysis.name for analysis in ALL]
        if question not in questions:
            raise InputError(f"no question is named {question!r}", suggestion(question, questions))
        outcome = self._report(recording)[question]
        if isinstance(outcome, Skipped):
            return {"status": outcome.status, "reason": outcome.reason, "remedy": outcome.remedy}
        meaning = explained(question)
        specs = [spec for spec in meaning.tables if table in (None, spec.name)]
        if not specs:
            names = [spec.name for spec in meaning.tables]
            raise InputError(f"{question} has no table {table!r}", suggestion(str(table), names))
        document: brevity.Document = {"status": "ok", "asks": meaning.question}
        if table is not None:
            document["columns"] = {column.name: column.meaning for column in specs[0].columns}
        document |= {"summary": dict(outcome.summary), "notes": list(outcome.notes)}
        return brevity.fitted(
            lambda most: _plain({**document, **tables_document(specs, outcome, most)}), rows
        )

    def evidence(self, recording: str, finding: int, rows: int | None) -> brevity.Document:
        """A finding with all its values, the table that shows it, and the kernels in its window."""
        report = self._report(recording)
        if not 0 <= finding < len(report.findings):
            raise InputError(
                f"there is no finding {finding}", f"there are {len(report.findings)}, from 0 on"
            )
        ranked = report.findings[finding]
        outcome = report.outcomes.get(ranked.analysis)
        specs = [
            spec
            for analysis in report.analyses
            if analysis.name == ranked.analysis
            for spec in analysis.tables
            if spec.name == ranked.finding.evidence.table
        ]

        def shown(most: int) -> brevity.Document:
            tables: brevity.Document = {}
            if specs and isinstance(outcome, Result):
                tables = tables_document(specs, outcome, most)
            kernels = self._kernels(report, ranked, most)
            return _plain({"finding": RANKED_FINDING.written(ranked), **tables, **kernels})

        return brevity.fitted(shown, rows)

    def kernel(self, target: str, kernel: str | None) -> brevity.Document:
        """The memory accesses, occupancy and findings of kernels; no program is run.

        Raises InputError for other files: inspecting a Python file runs it.
        """
        path = self._folder.file(target)
        if path.suffix not in CODE and not is_named_like_recording(path):
            raise InputError(
                f"{target} is neither a .ptx nor a .cubin nor a recording",
                "the server runs no program: use traceview ptx for a Python file",
            )
        self._folder.check_sizes([path])

        def inspected() -> brevity.Document:
            report = traceview.inspect_ptx(path, kernel=kernel)
            return _plain({**as_document(report, traceview.__version__), "target": target})

        return brevity.kernels_of(self._once("kernel", [path], inspected, kernel))

    def compare(
        self, before: Sequence[str], after: Sequence[str], rows: int | None, force: bool = False
    ) -> brevity.Document:
        sides = [self._recordings(names) for names in (before, after)]
        files = [file for side in sides for file in side]
        self._folder.check_sizes(files)

        def compared() -> brevity.Document:
            comparison = traceview.compare(*sides, force=force)
            return _parsed(comparison_json(comparison, traceview.__version__))

        document = self._once("compare", files, compared, len(sides[0]), force)
        return brevity.comparison_of(document, rows)

    def ranks(self, recordings: Sequence[str], rows: int | None) -> brevity.Document:
        files = self._recordings(recordings)
        self._folder.check_sizes(files)

        def compared() -> brevity.Document:
            job = traceview.analyze_ranks(files)
            return _parsed(job_json(job, traceview.__version__, brevity.MOST_ROWS))

        return brevity.job_of(self._once("ranks", files, compared), rows)

    def _once(
        self,
        tool: str,
        files: Sequence[Path],
        compute: Callable[[], brevity.Document],
        *options: object,
    ) -> brevity.Document:
        """The document of a tool about files as they are now, computed once."""
        return self._others.result((tool, *map(_state, files), *options), compute)

    def _recordings(self, names: Sequence[str]) -> list[Path]:
        """The files of one list. Raises InputError where two names lead to one file."""
        files = [self._recording(name) for name in names[: MOST_FILES + 1]]
        twice = next(
            (name for name, file in zip(names, files, strict=False) if files.count(file) > 1), None
        )
        if twice is not None:
            raise InputError(f"{twice} is named more than once", "name each recording once")
        return files

    def _recording(self, name: str) -> Path:
        path = self._folder.file(name)
        if is_report(path):
            raise InputError(
                f"{name} is not exported, and the server starts no program",
                "export it: nsys export --type sqlite",
            )
        return path

    def _report(self, name: str) -> Report:
        path = self._recording(name)
        self._folder.check_sizes([path])
        return self._reports.result(_state(path), lambda: traceview.analyze(traceview.load(path)))

    @staticmethod
    def _kernels(report: Report, ranked: RankedFinding, most: int) -> brevity.Document:
        """The first kernels in the window of a finding, and how many there are."""
        start_ns, end_ns = ranked.finding.evidence.start_ns, ranked.finding.evidence.end_ns
        trace = report.recording
        if trace is None or start_ns is None or end_ns is None:
            return {}
        kernels = trace.recorded("kernels")
        inside = (kernels["end_ns"] > start_ns) & (kernels["start_ns"] < end_ns)
        in_window = np.flatnonzero(inside)
        rows = in_window[np.argsort(kernels["start_ns"][in_window], kind="stable")][:most]
        labels = kernel_labels(trace).take(rows).decode()
        times = (kernels[name][rows].tolist() for name in ("start_ns", "end_ns"))
        first = [
            {"kernel": label, "start_ns": start, "duration_ns": end - start}
            for label, start, end in zip(labels, *times, strict=True)
        ]
        return {"kernels_in_window": first, "kernels_left_out": len(in_window) - len(rows)}


def _state(path: Path) -> tuple[Path, int, int]:
    """A file and its version."""
    state = path.stat()
    return path, state.st_mtime_ns, state.st_size


def _brief(number: int, ranked: RankedFinding) -> brevity.Document:
    finding = RANKED_FINDING.written(ranked)
    named = {key: finding[key] for key in ("analysis", "subject")}
    return {"finding": number, **named, **brevity.brief_finding(finding)}


def _plain(document: brevity.Document) -> brevity.Document:
    """The document as JSON values, with tables as lists of rows."""
    return _parsed(written(document))


def _parsed(text: str) -> brevity.Document:
    document: brevity.Document = json.loads(text)
    return document
