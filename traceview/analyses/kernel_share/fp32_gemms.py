"""Products of fp32 matrices on the ordinary lanes, where tensor cores could multiply."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceview import groups
from traceview.facts.operations.gemm_names import multiplies_on_fp32_lanes
from traceview.facts.operations.kernel_labels import kernel_labels
from traceview.facts.operations.operations import kernel_operations
from traceview.facts.ranges.selection import selected_operations
from traceview.facts.steps.warm_up import kernels_in_warm_up
from traceview.facts.work.kernel_work import kernel_work
from traceview.facts.work.peaks import Peaks, peaks
from traceview.tables import Array, Integers, Mask
from traceview.trace import Trace, fact

# The first tensor cores that take fp32 as it is, as TF32; the first that know bf16, too.
_CAPABILITY = 8.0


@dataclass(frozen=True)
class Fp32Products:
    """Those of one GPU (a row of devices), of the selected work after set-up.

    `labels` are the kernels, most time first. `kind` is what the tensor cores could do in place of
    fp32, tf32 or else bf16; `fp32_flop_per_s` and `flop_per_s` are the peaks of the lanes and of
    that, and `saved_ns` is what this peak would save: at most that, for calls that come as near to
    the peak of the lanes. They are None where nobody knows the rates.
    """

    device: int
    labels: tuple[str, ...]
    time_ns: int
    kind: str | None = None
    fp32_flop_per_s: float | None = None
    flop_per_s: float | None = None
    saved_ns: int | None = None


def steady_kernels(trace: Trace) -> Mask:
    """The selected kernels that are not of set-up."""
    mine: Mask = selected_operations(trace)[kernel_operations(trace)] & ~kernels_in_warm_up(trace)
    return mine


@fact
def fp32_products(trace: Trace) -> tuple[Fp32Products, ...]:
    """By GPU; none of a GPU without tensor cores for fp32, or whose are not faster."""
    kernels = trace.recorded("kernels")
    names = kernels.texts("name")
    used = groups.different(names.codes[names.codes >= 0])
    telling = [code for code in used.tolist() if multiplies_on_fp32_lanes(str(names.values[code]))]
    if not telling:
        return ()
    rows = np.flatnonzero(np.isin(names.codes, telling) & steady_kernels(trace))
    device = kernels["device"][rows]
    found = (
        _of_device(trace, each, rows[device == each], peaks(trace)[each])
        for each in groups.different(device).tolist()
    )
    return tuple(each for each in found if each)


def _of_device(trace: Trace, device: int, rows: Integers, known: Peaks) -> Fp32Products | None:
    if "capability" not in known or known["capability"].value < _CAPABILITY:
        return None
    took = _took(trace, rows)
    labels = kernel_labels(trace).take(rows)
    each = groups.group(labels.codes)
    order = groups.most_first(groups.sums(each, took))
    said = tuple(str(labels[row]) for row in each.first[order].tolist())
    plain = Fp32Products(device, said, int(took.sum()))
    rates = {kind: known[kind].value for kind in ("fp32", "tf32", "bf16") if kind in known}
    lanes = rates.pop("fp32", None)
    if lanes is None or not rates:
        return plain
    faster = [kind for kind in rates if rates[kind] > lanes]
    if not faster:
        return None
    rate = rates[faster[0]]
    saved = plain.time_ns - _least_ns(trace, rows, lanes, rate)
    return Fp32Products(device, said, plain.time_ns, faster[0], lanes, rate, saved)


def _took(trace: Trace, rows: Integers) -> Integers:
    kernels = trace.recorded("kernels")
    took: Integers = kernels.duration_ns[rows]
    return took


def _least_ns(trace: Trace, rows: Integers, lanes: float, rate: float) -> int:
    """Their FLOP at the peak; where nobody tells these, as many as the lanes can have done."""
    at_most = _took(trace, rows) / 1e9 * lanes
    flop: Array = np.fmin(kernel_work(trace).part.flop[rows], at_most)
    return int(flop.sum() / rate * 1e9)
