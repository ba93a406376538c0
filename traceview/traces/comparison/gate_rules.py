"""Rules of a gate, read from gate.toml: a table per figure, its keys the conditions.

Its grammar is in docs/gate.md.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

from traceview.base import display
from traceview.base.errors import InputError, suggestion, unreadable
from traceview.base.records import record
from traceview.base.units import unit_of
from traceview.traces.comparison.figures import RunFigures

Outcome = Literal["passed", "regressed", "undecided"]
Kind = Literal["max_increase", "max_decrease", "max", "min", "equals"]


@record
class GateCondition:
    """One condition of a rule.

    `limit` is in the unit of the figure, or percent of the baseline if `is_relative`. `at_least` is
    the difference, in the unit of the figure, that an increase or decrease must have as well.
    """

    kind: Kind
    limit: float
    is_relative: bool = False
    at_least: float = 0.0

    @property
    def compares(self) -> bool:
        """Whether the difference from the baseline counts, not the value itself."""
        return self.kind in ("max_increase", "max_decrease")


@record
class Rule:
    """The conditions on a figure, all of which must hold, each with `certainty` (0.5 to 1)."""

    figure: str
    conditions: tuple[GateCondition, ...]
    certainty: float


@record
class Decision:
    """The outcome of one condition.

    `before` and `after` are means over the runs, None where no run has the figure. `low` and `high`
    bound the difference, or the value itself under `max` and `min`, each with the certainty of the
    rule; None where too few runs prove any bound. `limit` is what is compared with them.
    `runs_needed` is the number of runs per side that would probably decide. `place` is the source
    line or range that changed most, empty where unknown.
    """

    figure: str
    condition: GateCondition
    outcome: Outcome
    certainty: float
    before: float | None
    after: float | None
    limit: float | None = None
    low: float | None = None
    high: float | None = None
    is_exact: bool = False
    runs_needed: int | None = None
    reason: str = ""
    place: str = ""


@dataclass(frozen=True, repr=False)
class GateReport(display.Described):
    """The answer of `traceview gate`; `outcome` is the worst of all decisions."""

    baseline: tuple[RunFigures, ...]
    candidate: tuple[RunFigures, ...]
    decisions: tuple[Decision, ...]
    headline: str

    @property
    def outcome(self) -> Outcome:
        """The worst of the outcomes: regressed, else undecided, else passed."""
        outcomes = {decision.outcome for decision in self.decisions}
        if "regressed" in outcomes:
            return "regressed"
        return "undecided" if "undecided" in outcomes else "passed"

    @property
    def exit_status(self) -> int:
        """0 passed, 1 regressed, 2 undecided."""
        return {"passed": 0, "regressed": 1, "undecided": 2}[self.outcome]


KINDS: tuple[Kind, ...] = ("max_increase", "max_decrease", "max", "min", "equals")
KEYS = (*KINDS, "and_at_least", "certainty")
DEFAULT_CERTAINTY = 0.95
_QUANTITY = re.compile(r"\s*([+-]?[\d_]*\.?\d+(?:e[+-]?\d+)?)\s*(\S*)\s*", re.IGNORECASE)
_BYTES = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_UNITS: Mapping[str, Mapping[str, float]] = {
    "ns": {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9},
    "bytes": _BYTES,
    "bytes_per_step": _BYTES,
    "bits": {"bit": 1.0, "bits": 1.0},
    "pct": {"%": 1.0, "points": 1.0},
}
_FAMILY = re.compile(r"""(\w+)\[\s*(["']?)(.*)\2\s*\]""", re.DOTALL)
_MOST_BYTES = 1 << 20


def read_config(path: Path) -> tuple[Rule, ...]:
    """The rules of a file. Raises InputError, with the line, for whatever is not in the grammar."""
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise InputError(f"{path} is too large for a gate.toml", "pass the file of the rules")
        text = content.decode()
        return _Reader(path, text).rules(tomllib.loads(text))
    except OSError as error:
        raise unreadable(path, error) from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(
            f"{path} is not valid TOML: {error}", "correct it (docs/gate.md)"
        ) from error


def figure_name(name: str) -> str:
    """The name of a figure in RunFigures; `step_time`, `counts.X` and quoted names are aliases."""
    family = _FAMILY.fullmatch(name)
    if family:
        return f"{family[1]}[{family[3]}]"
    if name.startswith("counts."):
        return f"{name.removeprefix('counts.')}_per_step"
    return "step_ns" if name == "step_time" else name


class _Reader:
    def __init__(self, path: Path, text: str) -> None:
        self.path, self.lines = path, text.splitlines()
        self.table = ""

    def rules(self, document: Mapping[str, Any]) -> tuple[Rule, ...]:
        certainty = self._certainty(document.get("certainty"))
        tables = {key: value for key, value in document.items() if key != "certainty"}
        parsed = tuple(
            rule for key, value in tables.items() for rule in self._of(key, value, certainty)
        )
        if not parsed:
            raise InputError(
                f"{self.path} has no rules", 'write [step_time] with max_increase = "3 %"'
            )
        names = [rule.figure for rule in parsed]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice:
            self._refuse(twice, f"{twice} has two tables", "join them")
        return parsed

    def _of(self, name: str, table: Any, certainty: float) -> Iterator[Rule]:
        """The rule of a table, or those of its tables: [counts.launches], [load_bits.gelu]."""
        self.table = name
        if not isinstance(table, dict):
            self._refuse(
                name, f"{name!r} is not a table of a figure", suggestion(name, ("certainty",))
            )
        inner = {key: value for key, value in table.items() if isinstance(value, dict)}
        for key, value in inner.items():
            self.table = key
            full = f"counts.{key}" if name == "counts" else f"{name}[{key}]"
            yield self._rule(figure_name(full), value, certainty)
        self.table = name
        own = {key: value for key, value in table.items() if key not in inner}
        if own or not inner:
            yield self._rule(figure_name(name), own, certainty)

    def _rule(self, figure: str, table: Mapping[str, Any], certainty: float) -> Rule:
        for key in table:
            if key not in KEYS:
                self._refuse(
                    key, f"unknown key {key!r} in the rule of {figure}", suggestion(key, KEYS)
                )
        kinds = [kind for kind in KINDS if kind in table]
        if not kinds:
            self._refuse(
                figure, f"the rule of {figure} has no condition", f"add one of {', '.join(KINDS)}"
            )
        if "and_at_least" in table and not {"max_increase", "max_decrease"} & {*kinds}:
            self._refuse("and_at_least", "and_at_least needs max_increase or max_decrease", "")
        if "equals" in kinds and not is_exact(figure):
            self._refuse(
                "equals", f"{figure} varies between runs: no value is exact", "use max or min"
            )
        conditions = tuple(self._condition(figure, kind, table) for kind in kinds)
        own = table.get("certainty")
        return Rule(figure, conditions, certainty if own is None else self._certainty(own))

    def _condition(self, figure: str, kind: Kind, table: Mapping[str, Any]) -> GateCondition:
        unit = unit_of(figure.partition("[")[0])
        if kind in ("max", "min", "equals"):
            return GateCondition(kind, self._number(kind, table[kind], unit))
        least = table.get("and_at_least")
        at_least = 0.0 if least is None else self._number("and_at_least", least, unit)
        value = table[kind]
        is_relative = isinstance(value, str) and value.strip().endswith("%")
        limit = self._number(kind, value, "pct" if is_relative else unit)
        if limit < 0 or at_least < 0:
            self._refuse(kind, f"{kind} of {figure} is negative", "")
        return GateCondition(kind, limit, is_relative, at_least)

    def _number(self, key: str, value: Any, unit: str) -> float:
        """A plain number, in the unit of the figure, or text with a unit."""
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
        match = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
        factors = _UNITS.get(unit, {})
        if not match or (match[2] and match[2] not in factors):
            known = ", ".join(factors) or "no unit"
            self._refuse(
                key, f"{key} = {value!r} is not such a quantity", f"write a number with {known}"
            )
        return float(match[1].replace("_", "")) * factors.get(match[2], 1.0)

    def _certainty(self, value: Any) -> float:
        if value is None:
            return DEFAULT_CERTAINTY
        number = self._number("certainty", value, "pct")
        is_percent = number > 1 or (isinstance(value, str) and "%" in value)
        fraction = number / 100 if is_percent else number
        if not 0.5 <= fraction < 1:
            self._refuse("certainty", f"certainty = {value!r} is not from 50 % to below 100 %", "")
        return fraction

    def _refuse(self, key: str, what: str, remedy: str) -> NoReturn:
        # A key may be in several tables: the one that is being read comes first.
        start = self._line(self.table, 0) or 1
        line = self._line(key, start - 1) or (start if self.table else None)
        raise InputError(f"{self.path}{f', line {line}' if line else ''}: {what}", remedy)

    def _line(self, word: str, start: int) -> int | None:
        """The first line with that word, from the line of index `start` on; counted from 1."""
        numbered = enumerate(self.lines[start:], start + 1)
        whole = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)")
        return next((number for number, text in numbered if word and whole.search(text)), None)


_EXACT = re.compile(
    r".*(?<!_bytes)_per_step|peak_memory_bytes|copied_bytes_per_step"
    r"|(calls_per_step|load_bits|store_bits|waves|registers)\[.*\]",
    re.DOTALL,
)


def is_exact(figure: str) -> bool:
    """Whether all runs of one program have the same value: counts, widths, peak memory."""
    return _EXACT.fullmatch(figure) is not None
