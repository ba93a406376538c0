"""Compilations that only show whether a kernel compiles, each in a process of its own.

A few can be started ahead, so that all cores compile.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field
from typing import Any

from traceview.headless.compile_error import in_words, is_of_source
from traceview.headless.worker.event_log import EventLog
from traceview.headless.worker.forked_task import ForkedTask
from traceview.headless.worker.jit_functions import Jitted, compile_for
from traceview.ptx.model import Argument
from traceview.records import record

_WRITES = re.compile(r"\b(?:st\.(?:\w+\.)*global|atom|red|multimem|cp\.async\.bulk|cp\.reduce)\.")


@record
class Problem:
    """Why a kernel does not compile. `is_kernel`: it does not with any arguments.

    `is_slow`: it may, given more time.
    """

    text: str
    is_kernel: bool = False
    is_slow: bool = False


@record
class TrialCompilations:
    """Trial compilations for one target. `log` has the jitted functions; nothing is logged."""

    target: Any
    log: EventLog
    _begun: dict[str, ForkedTask] = field(default_factory=dict)

    def begin(
        self, jitted: Jitted, arguments: Sequence[Argument], options: Mapping[str, Any]
    ) -> None:
        """Start to compile a kernel in a process, unless that compilation is already running."""
        key = _key(jitted, arguments, options)
        if key not in self._begun:
            self._begun[key] = self._task(jitted, arguments, options)

    def problem(
        self,
        jitted: Jitted,
        arguments: Sequence[Argument],
        options: Mapping[str, Any],
        seconds: float,
    ) -> Problem | None:
        """The problem with these arguments; None if the kernel compiles and writes something."""
        self.begin(jitted, arguments, options)
        task = self._begun.pop(_key(jitted, arguments, options))
        try:
            failed = task.result(seconds)
        except TimeoutError:
            return Problem(f"within {seconds:.2g} s with these arguments", is_slow=True)
        except ChildProcessError:
            return Problem("the compiler crashes with these arguments")
        return Problem(**failed) if failed else None

    def close(self) -> None:
        """End the compilations whose problems were not asked for."""
        for task in self._begun.values():
            task.close()
        self._begun.clear()

    def _task(
        self, jitted: Jitted, arguments: Sequence[Argument], options: Mapping[str, Any]
    ) -> ForkedTask:
        self.log.how = None

        def compiled() -> dict[str, Any] | None:
            try:
                kernel = compile_for(self.target, jitted, arguments, options)
                written = _WRITES.search(str(kernel.asm["ptx"]))
            except Exception as error:
                words = in_words(error, self.log.functions)
                return asdict(Problem(words, is_of_source(error)))
            return None if written else asdict(Problem("it writes nothing with these arguments"))

        return ForkedTask(compiled)


def _key(jitted: Jitted, arguments: Sequence[Argument], options: Mapping[str, Any]) -> str:
    return f"{jitted.name} {arguments} {sorted(options.items(), key=str)}"
