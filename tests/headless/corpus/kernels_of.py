"""The kernels of the corpus: what was expected of each, and what traceview answers."""

from __future__ import annotations

import os
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.headless.corpus.confirmed_remedies import promised, unconfirmed
from tests.places import REPOSITORY
from traceview.base.errors import TraceviewError
from traceview.kernels.headless.compile_options import CompileOptions
from traceview.kernels.inspect.kernel_report import KernelReport
from traceview.kernels.inspect.target_report import inspect_target

CORPUS = REPOSITORY / ".cache" / "corpus"
# The seconds measured are those of the CPU: a busy machine needs more of the clock's.
BUDGET_S = 120.0
LIST = Path(__file__).parent / "kernels.toml"


@dataclass(frozen=True)
class CorpusKernel:
    """A kernel with the widths, in bits, that its widest global load may have; none if open.

    `unable` is what the compiler says of a kernel that is for another Triton.
    """

    project: str
    file: str
    name: str
    load: tuple[int, ...]
    unable: str = ""

    @property
    def path(self) -> Path:
        return CORPUS / self.project / self.file

    @property
    def target(self) -> str:
        return f"{self.path}:{self.name}"


@dataclass(frozen=True)
class Answer:
    """What came out at the first try: the widest load, the seconds of CPU time, or the failure.

    `wall_s` are seconds of the clock. `narrow` counts the findings on narrow global accesses and
    `uncaused` those without a cause. `remedies` counts the widths that remedies called proven
    promise, `kept` those that Triton's own compile reaches; None if it cannot compile the kernel.
    """

    kernel: CorpusKernel
    seconds: float
    wall_s: float = 0.0
    narrow: int = 0
    uncaused: int = 0
    remedies: int = 0
    kept: int | None = 0
    load: int | None = None
    how: str = ""
    failure: str = ""
    notes: tuple[str, ...] = field(default=())

    @property
    def is_unable(self) -> bool:
        """Whether the failure is the expected one of a kernel for another Triton."""
        return bool(self.kernel.unable) and self.kernel.unable in self.failure

    @property
    def is_right(self) -> bool:
        return not self.failure and (not self.kernel.load or self.load in self.kernel.load)


def corpus_kernels() -> list[CorpusKernel]:
    listed = tomllib.loads(LIST.read_text())["kernel"]
    return [
        CorpusKernel(k["project"], k["file"], k["name"], tuple(k["load"]), k.get("unable", ""))
        for k in listed
    ]


def _cpu_seconds() -> float:
    """CPU time of this process and of those that it has started and waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def answer(kernel: CorpusKernel) -> Answer:
    """Inspect one kernel, without other options, as a user would."""
    start, begin = _cpu_seconds(), time.monotonic()
    notes: list[str] = []
    try:
        report = inspect_target(kernel.target, CompileOptions(budget_s=BUDGET_S), note=notes.append)
    except TraceviewError as error:
        taken = _cpu_seconds() - start, time.monotonic() - begin
        return Answer(kernel, *taken, failure=str(error), notes=tuple(notes))
    taken = _cpu_seconds() - start, time.monotonic() - begin
    messages = [f.message for each in report.kernels for f in each.findings]
    narrow = [text for text in messages if text.startswith("Global") and "instead of" in text]
    return Answer(
        kernel,
        *taken,
        len(narrow),
        sum("cause is not known" in text for text in narrow),
        sum(len(promised(each)) for each in report.kernels),
        _kept(kernel, report.kernels),
        _widest_load(report.kernels),
        report.kernels[0].compiled.how,
        "",
        tuple(notes),
    )


def _widest_load(reports: Sequence[KernelReport]) -> int:
    loads = [
        access.width_bits or 0
        for each in reports
        for access in each.accesses
        if (access.level, access.space) == ("ptx", "global")
        and access.kind in ("load", "async-copy")
    ]
    return max(loads, default=0)


def _kept(kernel: CorpusKernel, reports: Sequence[KernelReport]) -> int | None:
    kept = 0
    for report in reports:
        promises = promised(report)
        try:
            kept += len(promises) - len(unconfirmed(kernel.path, report, promises))
        except Exception:
            # A file that is not read without its packages: nothing is claimed of it.
            return None
    return kept
