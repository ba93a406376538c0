"""Warm-up: work before the first steady step, and work launched in ranges named warm_up.

A longer run does not repeat warm-up: tables count it, the savings that findings state do not.
Programs put an autotuner's trials and first calls into ranges named warm_up, wherever these are.
"""

from __future__ import annotations

from traceview.facts.operations.operations import kernel_operations, operations
from traceview.facts.ranges.selection import issued_ns, selected_operations, within
from traceview.facts.steps.series import warm_up_range_windows
from traceview.facts.steps.steps import warm_up_end_ns
from traceview.tables import Array, Integers, Mask
from traceview.trace import Trace, fact


def in_warm_up_range(trace: Trace, process: Array, time: Integers) -> Mask:
    """True for the (process, time) pairs that fall in a range named warm_up."""
    return within(warm_up_range_windows(trace), process, time)


@fact
def operations_in_warm_up_ranges(trace: Trace) -> Mask | None:
    """True for the operations launched in ranges named warm_up; None without such ranges."""
    if not warm_up_range_windows(trace):
        return None
    return in_warm_up_range(trace, operations(trace).process, issued_ns(trace))


def operations_in_warm_up(trace: Trace) -> Mask:
    """True for operations that start before the first steady step or run in a warm_up range."""
    return _before_steps(trace, operations(trace).start_ns)


@fact
def steady_operations(trace: Trace) -> Mask:
    """True for the selected operations that are not of warm-up."""
    return selected_operations(trace) & ~operations_in_warm_up(trace)


@fact
def kernels_in_warm_up(trace: Trace) -> Mask:
    """True for the kernels of warm-up."""
    return operations_in_warm_up(trace)[kernel_operations(trace)]


@fact
def steady_kernels(trace: Trace) -> Mask:
    """True for the selected kernels that are not of warm-up."""
    return steady_operations(trace)[kernel_operations(trace)]


def steady_kernels_ns(trace: Trace, device: int) -> int:
    """Time of the steady kernels of a GPU, a row of devices."""
    kernels = trace.recorded("kernels")
    own = steady_kernels(trace) & (kernels["device"] == device)
    return int(kernels.duration_ns[own].sum())


def launched_in_warm_up(trace: Trace) -> Mask:
    """True for the operations launched during warm-up, whenever they ran.

    Where the CPU runs ahead, much of the first step runs after the second has begun; a comparison
    of kernels takes a step as a whole or not at all.
    """
    return _before_steps(trace, issued_ns(trace))


def _before_steps(trace: Trace, time: Integers) -> Mask:
    """True for the operations whose time precedes the first steady step, or in warm_up ranges."""
    early: Mask = time < warm_up_end_ns(trace)
    warm = operations_in_warm_up_ranges(trace)
    return early if warm is None else early | warm
