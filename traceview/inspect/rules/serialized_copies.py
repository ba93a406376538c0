"""Loops that wait for a copy right after they start it."""

from __future__ import annotations

from collections.abc import Iterator

from traceview.findings import Evidence, Finding
from traceview.headless.change import Change
from traceview.inspect.kernel_context import KernelContext
from traceview.inspect.kernel_report import line_name, subject_of
from traceview.inspect.recompilations import Outcome
from traceview.inspect.rules.advice import Advice
from traceview.inspect.rules.recompiled import results_clause
from traceview.inspect.rules.remedies import Remedy, imperative, tested_remedies
from traceview.ptx.async_groups import COPIES, AsyncWait, async_waits
from traceview.ptx.instruction_mix import instruction_mix
from traceview.ptx.model import Compiled

_RELIEF = "Start the copy of the next tile before this tile is used, into another buffer"


def serialized_copies(kernel: KernelContext) -> Iterator[Advice]:
    """Copies in the hottest loop with no arithmetic between their start and the wait for them.

    Other blocks on the SM may still overlap them.
    """
    serial = [wait for wait in kernel.async_waits if _is_serial_copy(wait)]
    if not serial:
        return
    wait = serial[0]
    tries = tested_remedies(_one_more_stage(kernel.compiled), kernel.trials, _serial_copies)
    helped = [each for each in tries if each.after == 0]
    finding = Finding(
        "low",
        "The hottest loop waits at {line} for {kind} copies that it has just started: nothing in "
        "the block overlaps them",
        f"{imperative(helped)}, and measure it" if helped else _RELIEF,
        subject=subject_of(wait.source, kernel.compiled),
        evidence=Evidence(
            {
                "line": line_name(wait.source),
                "kind": wait.kind,
                "in_flight": wait.in_flight,
                "proven": bool(helped),
            },
            basis="PTX: no arithmetic between the copies and the wait for all of them"
            + results_clause(helped, tries, lambda _: "copies of the next tile stay in flight"),
        ),
    )
    yield Advice(finding, tuple(each.remedy for each in helped), _RELIEF)


def _is_serial_copy(wait: AsyncWait) -> bool:
    return wait.kind in COPIES and wait.is_serial


def _one_more_stage(compiled: Compiled) -> Iterator[Remedy]:
    if compiled.num_stages:
        more = compiled.num_stages + 1
        yield Remedy(f"use num_stages={more}", Change(num_stages=more))


def _serial_copies(outcome: Outcome) -> int:
    waits = async_waits(outcome.function, instruction_mix(outcome.function))
    return sum(map(_is_serial_copy, waits))
