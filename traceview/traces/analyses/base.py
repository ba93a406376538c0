"""Analyses as data: the question, required tables, result tables, charts, one pure function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Generic, Literal, TypeVar

from traceview.base import display
from traceview.base.errors import InputError, suggestion
from traceview.base.findings import Finding
from traceview.base.records import record
from traceview.base.tables import Cell, Table, TableSpec
from traceview.traces.trace import Trace, schema

if TYPE_CHECKING:
    from traceview.base.display import Figure

Value = TypeVar("Value")


class Deferred(Mapping[str, Value], Generic[Value]):
    """A mapping that is computed when it is first read.

    The report of many ranks has the findings of each rank, and never reads its tables.
    """

    def __init__(self, compute: Callable[[], Mapping[str, Value]]) -> None:
        self._compute: Callable[[], Mapping[str, Value]] = compute
        self._computed: Mapping[str, Value] | None = None

    @property
    def _items(self) -> Mapping[str, Value]:
        if self._computed is None:
            self._computed = self._compute()
        return self._computed

    def __getitem__(self, name: str) -> Value:
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


@record
class Chart:
    """The declaration of a chart of one result table; `render` decides how to draw it.

    All fields but `kind`, `title` and `most` name the table or its columns. `bars` draws one
    horizontal bar per row, from `label` and `value`; with `stack`, one bar per label, split by the
    values of that column. `spans` draws one row per label with a bar from `value` to `end`, both in
    ns, and below it a second bar from `value2` to `end2`. `columns` draws vertical bars side by
    side, for a series in order of time; `stack` as in `bars`. `stairs` draws one panel per label:
    a point per row at (`x`, `value`), and the predicted stairs, which rise by `rise` (in the unit
    of `value`) every `run` (in that of `x`). `roofline` draws one disc per row at (`x`, `value`),
    with `size` as its area, under the ceilings `slope` × x and `level`, which `stack` names. `most`
    limits the number of labels.
    """

    kind: Literal["bars", "spans", "columns", "stairs", "roofline"]
    table: str
    title: str
    label: str
    value: str
    stack: str | None = None
    end: str | None = None
    value2: str | None = None
    end2: str | None = None
    x: str | None = None
    run: str | None = None
    rise: str | None = None
    size: str | None = None
    slope: str | None = None
    level: str | None = None
    most: int = 12


@dataclass(frozen=True, repr=False)
class Result(display.Drawn):
    """The answer of an analysis: its tables, findings, summary figures and notes.

    `summary` has single figures, whose names end in their unit. `notes` say what could not be
    known and how to record it. `analysis` is the one that computed it, with the declarations of
    tables and charts; `Analysis.run` sets it.
    """

    tables: Mapping[str, Table]
    findings: tuple[Finding, ...] = ()
    summary: Mapping[str, Cell] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    analysis: Analysis | None = field(default=None, compare=False)

    def __getitem__(self, table: str) -> Table:
        """The table of that name. Raises InputError if there is none."""
        if table not in self.tables:
            raise InputError(
                f"the result has no table {table!r}", suggestion(table, [*self.tables])
            )
        return self.tables[table]

    def __iter__(self) -> Iterator[str]:
        """Names of the tables."""
        return iter(self.tables)

    def figure(self, table: str) -> Figure:
        """The chart of that table as a matplotlib figure, such as `figure("causes")`.

        Raises InputError if no chart is declared for the table or it has nothing to draw,
        ToolNotFoundError without matplotlib.
        """
        return display.show(self, "figure", table)

    def shown(self, specs: Sequence[TableSpec]) -> Iterator[tuple[TableSpec, Table]]:
        """The tables to render, each with its declaration: all but empty rare ones."""
        for spec in specs:
            if len(self.tables[spec.name]) or not spec.rare:
                yield spec, self.tables[spec.name]


@dataclass(frozen=True, repr=False)
class Skipped(display.Drawn):
    """Why an analysis could not answer, and the remedy; unlike a Result without findings."""

    reason: str
    remedy: str
    status: ClassVar[str] = "skipped"


class Failed(Skipped):
    """An analysis that ended in an internal error, a fault of traceview."""

    status = "failed"


EXPORT_AGAIN = "export the recording again: nsys export --type sqlite FILE.nsys-rep"
"""The remedy for a table that cannot be read."""


@record
class Analysis:
    """One question about a trace, and the function that answers it."""

    name: str
    title: str
    question: str
    needs: tuple[str, ...]
    tables: tuple[TableSpec, ...]
    compute: Callable[[Trace], Result | Skipped]
    charts: tuple[Chart, ...] = ()

    def run(self, trace: Trace) -> Result | Skipped:
        """The answer, or which recorded table is missing and how to record it."""
        outcome = self.findings(trace)
        if isinstance(outcome, Skipped):
            return outcome
        return replace(outcome, tables=dict(outcome.tables), summary=dict(outcome.summary))

    def findings(self, trace: Trace) -> Result | Skipped:
        """As `run`, with tables and summary that are computed when they are first read."""
        absent = [name for name in self.needs if name not in trace.tables]
        unread = {name: trace.unread[name] for name in absent if name in trace.unread}
        if unread:
            return Skipped(
                reason="; ".join(f"no {name}, as {why}" for name, why in unread.items()),
                remedy=EXPORT_AGAIN,
            )
        if absent:
            meant = [f"{name} table ({schema.TABLES[name].meaning})" for name in absent]
            how = dict.fromkeys(trace.how_to_record(name) for name in absent)
            return Skipped(
                reason=f"the trace has no {' and no '.join(meant)}",
                remedy=f"record with: {'; and '.join(how)}",
            )
        outcome = self.compute(trace)
        return outcome if isinstance(outcome, Skipped) else replace(outcome, analysis=self)
