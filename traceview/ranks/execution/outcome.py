"""The outcome of a task in another process."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from traceview.errors import TraceviewError
from traceview.failures import REPORT_IT, internal_error
from traceview.records import record

Item = TypeVar("Item")
Value = TypeVar("Value")
LESS_MEMORY = "use a machine with more memory, fewer workers (--jobs 1), or record less"


@record
class TaskFailure:
    """The error of a task and a remedy. `crashed`: its process died or ran out of memory."""

    what: str
    remedy: str
    crashed: bool = False


def attempt(function: Callable[[Item], Value], item: Item) -> Value | TaskFailure:
    """Call `function(item)`: return its value, or its exception as a TaskFailure."""
    try:
        return function(item)
    except TraceviewError as error:
        return TaskFailure(error.what, error.remedy)
    except MemoryError:
        return TaskFailure("out of memory", LESS_MEMORY, crashed=True)
    except Exception as error:
        return TaskFailure(internal_error(error), REPORT_IT)


def crash(status: int | None, last_words: str = "") -> TaskFailure:
    """The failure of a task whose process ended with `status`, as in Popen.returncode."""
    words = f" ({last_words})" if last_words else ""
    if status is not None and -status == signal.SIGKILL:
        what = "its process was killed by SIGKILL, as the system does when memory runs out"
        return TaskFailure(f"{what}{words}", LESS_MEMORY, crashed=True)
    how = f"ended with status {status}"
    if status is not None and status < 0:
        named = -status in set(signal.Signals)
        how = f"was killed by {signal.Signals(-status).name if named else f'signal {-status}'}"
    return TaskFailure(f"its process {how}{words}", REPORT_IT, crashed=True)


def with_second_try(
    outcomes: Iterable[tuple[int, Value | TaskFailure]],
    run_alone: Callable[[Sequence[int]], Iterable[tuple[int, Value | TaskFailure]]],
    items: Sequence[object],
    note: Callable[[str], None],
) -> Iterator[tuple[int, Value | TaskFailure]]:
    """The outcomes by place; those of crashed tasks are of a second try, after the others."""
    crashed = []
    for place, outcome in outcomes:
        if isinstance(outcome, TaskFailure) and outcome.crashed:
            note(f"{items[place]}: {outcome.what}; it is read again, alone")
            crashed.append(place)
        else:
            yield place, outcome
    yield from run_alone(crashed)
