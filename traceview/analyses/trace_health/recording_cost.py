"""Estimate of what ranges, samples and call chains cost the program while it was recorded.

The recorder lists its own start-up and flushes, and not what each event costs the thread that it
interrupts. The costs per event are measured on an H200's host, nsys 2025.3:

- ranges: with `--pytorch=autograd-nvtx` a GPT step of 12.4 ms was recorded as 23.2 ms: 10.8 ms for
  4,360 ranges, 2.5 µs each. A plain range costs less.
- samples: of equal pairs of launches in recordings of eager models, those with a Python sample
  between them lie 12 to 22 µs farther apart, those with a native sample 13 to 20 µs.
- call chains: the call after a blocking copy comes 14 µs later where its chain was recorded.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceview import groups, intervals
from traceview.analyses.trace_health.checks import Check
from traceview.facts.idle.causes import profiler_overheads
from traceview.facts.operations.operations import operations
from traceview.facts.ranges.origins import INFERRED_DOMAIN
from traceview.facts.steps.steps import warm_up_end_ns
from traceview.records import record
from traceview.tables import Array, Integers
from traceview.trace import Trace, fact
from traceview.trace.recording_options import recording_options
from traceview.trace.schema.torch_profiler import TORCH_PROFILER
from traceview.units import Value

# Profiler overhead that delayed recorded GPU work.
#
# Only overhead in processes with GPU work counts, between their first and last GPU work and after
# warm-up. A compiler that starts beside them delays nothing, nor does the profiler's own start-up
# or what it writes out at the end.


@record
class Cost:
    """Time `lost_ns` that the profiler took of `span_ns`, and the purpose of most of it.

    `after_warm_up` is False where no warm-up is known, so that all GPU work counts.
    """

    lost_ns: int
    span_ns: int
    mostly: str
    after_warm_up: bool


@fact
def profiler_cost(trace: Trace) -> Cost | None:
    """The overhead on all processes together; None without any."""
    overheads = trace.recorded("overheads")
    costs = overheads.take(profiler_overheads(trace))
    # Start and end of each process's GPU work after warm-up; the last entry is for all processes.
    ops, processes, warm_ns = operations(trace), len(trace.processes), warm_up_end_ns(trace)
    first = np.full(processes + 1, np.iinfo(np.int64).max)
    last = np.zeros(processes + 1, np.int64)
    np.minimum.at(first, ops.process, ops.start_ns)
    np.maximum.at(last, ops.process, ops.end_ns)
    first[-1], last[-1] = first.min(), last.max()
    last = np.maximum(last, warm_ns)
    first = np.clip(first, warm_ns, last)
    process = np.where(costs.is_null("process"), processes, costs["process"])
    start, end = (
        np.clip(costs[name], first[process], last[process]) for name in ("start_ns", "end_ns")
    )
    lost = intervals.union(start, end).total()
    if not lost:
        return None
    names = costs.texts("name")
    by_purpose = groups.group(names.codes)
    mostly = int(by_purpose.first[np.argmax(groups.sums(by_purpose, end - start))])
    span = int(last[-1] - first[-1])
    return Cost(lost, span, str(names[mostly]), warm_ns > np.iinfo(np.int64).min)


RANGE_NS, SAMPLE_NS, CHAIN_NS = 2_500, 20_000, 15_000
NOTABLE_PCT, LEAST_NS, LISTED_PCT = 10.0, 1_000_000, 1.0
_LEAST_OF_COST = 0.1
_WITHOUT_RANGES = (
    "Record without the ranges of single operators (no --pytorch=autograd-nvtx, no emit_nvtx), or "
    "only a few steps with them."
)
_WITHOUT_SHAPES = (
    "Record without tensor shapes, which take a range per operator: no --shapes, no "
    "--pytorch=autograd-shapes-nvtx. They are for the FLOP of GEMMs, not for times."
)
_WITHOUT_PYTHON = (
    "Record without Python stacks (no --python-samples, no --python-sampling), or fewer: "
    "nsys profile --python-sampling-frequency=100."
)
_WITHOUT_CHAINS = (
    "Record without call chains: traceview record --backtrace none, or nsys profile "
    "--cudabacktrace=none."
)
_WITHOUT_NATIVE = "Record without native samples: nsys profile --sample=none."


@record
class EventCost:
    """One kind of event: its count on each thread in the steady time, and the cost per event.

    `template` names the events, such as `{ranges:range}`; `remedy` says how not to record them.
    """

    name: str
    template: str
    events: Integers
    each_ns: int
    remedy: str

    @property
    def cost_ns(self) -> Integers:
        return self.events * self.each_ns


def recording_cost(trace: Trace) -> list[Check]:
    """The estimated cost after warm-up, on the thread that it slowed most."""
    ops = operations(trace)
    # What an event of torch.profiler costs was not measured.
    if not len(ops) or trace.recorder == TORCH_PROFILER:
        return []
    first, last = max(int(ops.start_ns[0]), warm_up_end_ns(trace)), int(ops.end_ns.max())
    every = list(_events(trace, first, last))
    total_ns = np.sum([kind.cost_ns for kind in every], axis=0)
    thread = int(np.argmax(total_ns)) if len(total_ns) else -1
    cost_ns = int(total_ns[thread]) if thread >= 0 else 0
    cost_pct = min(100.0 * cost_ns / max(last - first, 1), 100.0)
    if cost_pct < LISTED_PCT:
        return []
    costliest = sorted(every, key=lambda kind: -int(kind.cost_ns[thread]))
    listed = [kind for kind in costliest if kind.cost_ns[thread] >= _LEAST_OF_COST * cost_ns]
    values: dict[str, Value] = {"cost_ns": cost_ns, "cost_pct": cost_pct}
    for kind in listed:
        values |= {kind.name: int(kind.events[thread]), f"{kind.name}_each_ns": kind.each_ns}
    parts = " and ".join(f"{kind.template} ({{{kind.name}_each_ns}} each)" for kind in listed)
    template = f"Recording cost one thread up to {{cost_ns}}, {{cost_pct}} (estimate): {parts}."
    if cost_pct < NOTABLE_PCT or cost_ns < LEAST_NS:
        return [Check("cost of recording", "ok", template, None, values)]
    template += " Where the CPU limits the program, its steps are shorter without them."
    return [Check("cost of recording", "warning", template, listed[0].remedy, values)]


def _events(trace: Trace, first: int, last: int) -> Iterator[EventCost]:
    """The events between two times, by thread."""
    options, threads = recording_options(trace), len(trace.threads)

    def by_thread(table: str, time: str, chosen: Array | None = None) -> Integers:
        at, thread = trace.recorded(table)[time], trace.recorded(table)["thread"]
        result = np.zeros(threads, np.int64)
        for part in groups.parts(len(at), threads):
            inside = (at[part] >= first) & (at[part] < last) & (thread[part] >= 0)
            inside = inside if chosen is None else inside & chosen[part]
            result += np.bincount(thread[part][inside], minlength=threads)
        return result

    without = _WITHOUT_SHAPES if options.shapes else _WITHOUT_RANGES
    # Inferred steps are in the table of ranges, and cost nothing.
    recorded = ~trace.recorded("ranges").texts("domain").isin([INFERRED_DOMAIN])
    ranges = by_thread("ranges", "start_ns", recorded)
    yield EventCost("ranges", "{ranges:range}", ranges, RANGE_NS, without)
    samples = by_thread("python_samples", "time_ns")
    yield EventCost(
        "python_samples", "{python_samples:Python sample}", samples, SAMPLE_NS, _WITHOUT_PYTHON
    )
    chained = ~trace.recorded("api_calls").is_null("callchain_id")
    chains = by_thread("api_calls", "start_ns", chained)
    yield EventCost("chains", "{chains:call chain}", chains, CHAIN_NS, _WITHOUT_CHAINS)
    native = by_thread("native_samples", "time_ns")
    yield EventCost("samples", "{samples:native sample}", native, SAMPLE_NS, _WITHOUT_NATIVE)
