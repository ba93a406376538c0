"""The meaning and computation of an answer, from the declarations and docstrings of its code."""

from __future__ import annotations

import inspect
import sys

from traceview.base.errors import InputError, suggestion
from traceview.base.records import record
from traceview.base.tables import TableSpec
from traceview.traces.analyses import ALL, base
from traceview.traces.analyses.verdict import SCOREBOARD, Verdict, scoreboard, verdict
from traceview.traces.analyses.verdict.verdict import limit_of
from traceview.traces.trace.schema import TABLES


@record
class Need:
    """A recorded table that an answer needs, what it holds, and the command that records it."""

    table: str
    meaning: str
    how_to_record: str


@record
class Explanation:
    """Question, inputs and tables of an answer; `method` is how `source`, a file, computes it."""

    name: str
    title: str
    question: str
    needs: tuple[Need, ...]
    tables: tuple[TableSpec, ...]
    method: str
    source: str


def explanations() -> tuple[Explanation, ...]:
    """The explanations of the verdict, the scoreboard and all analyses, in reading order."""
    figures = (TableSpec("scoreboard", "the figures", SCOREBOARD, ""),)
    boards = (
        ("verdict", "Verdict", "What does the recording come to, in one line?",
         (), (Verdict, limit_of), verdict.__module__),
        ("scoreboard", "Scoreboard", "Which figures should I look at first?",
         figures, (sys.modules[scoreboard.__module__],), scoreboard.__module__),
    )  # fmt: skip
    return (
        *(
            Explanation(name, title, question, (), tables, _method(*documented), _file(module))
            for name, title, question, tables, documented, module in boards
        ),
        *map(_analysis, ALL),
    )


def explained(name: str) -> Explanation:
    """The explanation of the answer `name`. Raises InputError if there is no such answer."""
    by_name = {explanation.name: explanation for explanation in explanations()}
    if name not in by_name:
        raise InputError(f"no analysis is named {name!r}", suggestion(name, [*by_name]))
    return by_name[name]


def _analysis(analysis: base.Analysis) -> Explanation:
    module = analysis.compute.__module__
    return Explanation(
        analysis.name,
        analysis.title,
        analysis.question,
        tuple(Need(n, TABLES[n].meaning, TABLES[n].how_to_record) for n in analysis.needs),
        analysis.tables,
        _method(sys.modules[module]),
        _file(module),
    )


def _method(*documented: object) -> str:
    """The docstrings without their first line, which repeats the question, unless that is all."""
    parts = [(inspect.getdoc(one) or "").partition("\n\n") for one in documented]
    return "\n\n".join(method or first for first, _, method in parts)


def _file(module: str) -> str:
    return f"{module.replace('.', '/')}.py"
