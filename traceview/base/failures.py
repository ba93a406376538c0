"""Failures of parts of an answer, contained so that the other parts still answer.

What a user can mend (TraceviewError) and what no part survives (MemoryError, an interrupt) are
raised on. Any other exception is a fault of traceview: it ends the part in which it was raised.
Tracebacks go to the logger "traceview", which `--debug` prints.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TypeVar

from traceview.base import units
from traceview.base.errors import TraceviewError
from traceview.base.records import record

Value = TypeVar("Value")
Default = TypeVar("Default")
REPORT_IT = "please report it with the traceback from traceview report FILE --debug"
_LOG = logging.getLogger("traceview")
_MOST_NAMED, _MOST_CHARACTERS = 3, 400


@record
class Failure:
    """The internal error that ended a part, such as "gpu-idle"."""

    part: str
    error: Exception

    @property
    def reason(self) -> str:
        return internal_error(self.error)


class FailureWarning(str):
    """A warning that parts of an answer failed. Other warnings are about the recording."""

    __slots__ = ()


class AnswerParts:
    """The parts of one answer: collects the failures of those that internal errors ended.

    `outcomes` are those of the parts that have run.
    """

    def __init__(self, outcomes: Iterable[object] = ()) -> None:
        self.failures = [outcome for outcome in outcomes if isinstance(outcome, Failure)]

    def part(self, name: str, function: Callable[[], Value], default: Default) -> Value | Default:
        """What the function returns; the default, and a failure, after an internal error."""
        outcome = contained(name, function)
        if not isinstance(outcome, Failure):
            return outcome
        self.failures.append(outcome)
        return default

    @property
    def warnings(self) -> tuple[FailureWarning, ...]:
        return warnings_of(self.failures)


def contained(part: str, function: Callable[[], Value]) -> Value | Failure:
    """What the function returns, or a Failure for the internal error that it raises.

    Raises what it raises of TraceviewError and MemoryError.
    """
    try:
        return function()
    except (TraceviewError, MemoryError):
        raise
    except Exception as error:
        _LOG.debug("%s failed", part, exc_info=error)
        return Failure(part, error)


def internal_error(error: Exception) -> str:
    """The error on one line, with its type: the text of many exceptions is a bare value."""
    return f"internal error: {type(error).__name__}: {str(error)[:_MOST_CHARACTERS]}"


def warnings_of(failures: Iterable[Failure]) -> tuple[FailureWarning, ...]:
    """One warning for each error, which names the parts that it ended: they often share a fact."""
    parts: dict[str, list[str]] = {}
    for failure in failures:
        parts.setdefault(failure.reason, []).append(failure.part)
    warnings = []
    for reason, names in parts.items():
        more = len(names) - _MOST_NAMED
        *first, last = (*names[:_MOST_NAMED], f"{units.count(more)} more") if more > 0 else names
        listed = f"{', '.join(first)} and {last}" if first else last
        warnings.append(FailureWarning(f"{listed} failed, all else holds: {reason}; {REPORT_IT}"))
    return tuple(warnings)
