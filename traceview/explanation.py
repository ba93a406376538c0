"""The meaning and computation of an answer, from the declarations and docstrings of its code."""

from __future__ import annotations

import inspect
import sys

from traceview.analyses import ALL
from traceview.analyses.base import Analysis, TableSpec
from traceview.analyses.verdict import SCOREBOARD, Verdict, scoreboard, verdict
from traceview.analyses.verdict.verdict import limit_of
from traceview.errors import InputError, suggestion
from traceview.records import record
from traceview.trace.schema import TABLES


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
    return (_verdict(), _scoreboard(), *map(_analysis, ALL))


def explained(name: str) -> Explanation:
    """The explanation of the answer `name`. Raises InputError if there is no such answer."""
    every = {each.name: each for each in explanations()}
    if name not in every:
        raise InputError(f"no analysis is named {name!r}", suggestion(name, [*every]))
    return every[name]


def _analysis(analysis: Analysis) -> Explanation:
    needs = (Need(n, TABLES[n].meaning, TABLES[n].how_to_record) for n in analysis.needs)
    return Explanation(
        analysis.name,
        analysis.title,
        analysis.question,
        tuple(needs),
        analysis.tables,
        _method(sys.modules[analysis.compute.__module__]),
        _file(analysis.compute.__module__),
    )


def _verdict() -> Explanation:
    return Explanation(
        "verdict",
        "Verdict",
        "What does the recording come to, in one line?",
        (),
        (),
        "\n\n".join(map(_method, (Verdict, limit_of))),
        _file(verdict.__module__),
    )


def _scoreboard() -> Explanation:
    table = TableSpec("scoreboard", "the figures", SCOREBOARD, ())
    return Explanation(
        "scoreboard",
        "Scoreboard",
        "Which figures should I look at first?",
        (),
        (table,),
        _method(sys.modules[scoreboard.__module__]),
        _file(scoreboard.__module__),
    )


def _method(documented: object) -> str:
    """The docstring without its first line, which repeats the question, unless that is all."""
    first, _, method = (inspect.getdoc(documented) or "").partition("\n\n")
    return method or first


def _file(module: str) -> str:
    return f"{module.replace('.', '/')}.py"
