"""Edits as users write them: `kernel gemm*=0.5`, `no-sync train.py:90`, `link 2x`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

from traceview.base.errors import InputError, suggestion
from traceview.base.records import record

MOST_FACTOR = 1e6
"""Larger ones are mistakes: times of a recording are 64-bit nanoseconds, of up to days."""


@record
class EditKind:
    """One kind of edit: the form of what follows its name, and what the form says.

    `target` is true where a name is given, `factor` where a factor is; `speed` where the factor
    says how many times as fast, not how much of the time is left.
    """

    form: str
    target: bool = True
    factor: bool = False
    speed: bool = False


KINDS: Mapping[str, EditKind] = {
    "kernel": EditKind("PATTERN=FACTOR", factor=True),
    "fuse": EditKind("PATTERN|…=FACTOR", factor=True),
    "no-sync": EditKind("PLACE"),
    "graph": EditKind("RANGE"),
    "cpu": EditKind("PLACE=FACTOR", factor=True),
    "copy": EditKind("DIRECTION=FACTOR", factor=True),
    "link": EditKind("FACTORx", target=False, factor=True, speed=True),
    "gpu": EditKind("NAME"),
    "no-recorder": EditKind("", target=False),
}
"""The kinds of edits, by the names of their options."""


@record
class EditRequest:
    """One edit as asked for: its kind, what it is about, and the factor of the time that is left.

    `written` is the text behind the kind, as the user wrote it.
    """

    kind: str
    target: str
    factor: float
    written: str

    @property
    def text(self) -> str:
        """As `parse` takes it."""
        return f"{self.kind} {self.written}".rstrip()


def parse_all(edits: Iterable[str | EditRequest]) -> tuple[EditRequest, ...]:
    """The edits, each a request or a text. Raises InputError for another form."""
    return tuple(each if isinstance(each, EditRequest) else parse(each) for each in edits)


def parse(text: str) -> EditRequest:
    """An edit from its text, such as `kernel gemm*=0.5`. Raises InputError for another form."""
    name, _, rest = str(text).strip().partition(" ")
    return request(name.removeprefix("--"), rest)


def request(kind: str, written: str) -> EditRequest:
    """An edit from its kind and what follows. Raises InputError for another form."""
    if kind not in KINDS:
        raise InputError(f"no edit is named {kind[:40]!r}", suggestion(kind, [*KINDS]))
    form, text = KINDS[kind], written.strip()
    if not form.form and text:
        raise InputError(f"{kind} takes no value", f"leave out {text[:80]!r}")
    target, factor = text, 1.0
    if form.factor:
        target, _, amount = text.rpartition("=") if form.target else ("", "", text)
        factor = _factor(kind, amount if target or not form.target else "", form)
    if form.target and not target:
        raise InputError(f"{kind} {text[:80]!r} names nothing", f"write {kind} {form.form}")
    return EditRequest(kind, target, factor, text)


_SPEED = re.compile(r"(?P<number>[^x×]+)[x×]")


def _factor(kind: str, text: str, form: EditKind) -> float:
    """The part of the time that is left: `0.5`, or `2x` for twice as fast."""
    speed = _SPEED.fullmatch(text.strip())
    try:
        number = float(speed["number"] if speed else text)
    except ValueError:
        number = math.nan
    as_speed = bool(speed) or form.speed
    if not (0 <= number <= MOST_FACTOR) or (as_speed and number < 1 / MOST_FACTOR):
        given = f"{kind} has the factor {text[:40]!r}" if text else f"{kind} lacks a factor"
        what = "2x is twice as fast" if form.speed else "0.5 is half the time, 2x twice as fast"
        raise InputError(given, f"write {kind} {form.form}, where {what}")
    return 1 / number if as_speed else number
