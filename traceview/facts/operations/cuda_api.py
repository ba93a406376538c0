"""Kinds of CUDA and HIP runtime and driver calls, by name without version suffix."""

from __future__ import annotations

import re
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from traceview import groups
from traceview.intervals import Timed
from traceview.records import record
from traceview.tables import Array, Integers, Mask, RowNumbers
from traceview.trace import Trace, fact_without_ranges


class CallKind(IntEnum):
    """Kind of a call, as far as waiting and launching are concerned."""

    OTHER = 0
    LAUNCH = 1
    """Starts a kernel or a graph."""
    SYNCHRONIZE = 2
    """Blocks the host until GPU work is done."""
    COPY = 3
    """Copies and blocks the host until done: the calls without Async."""
    COPY_ASYNC = 4
    """Copies; blocks the host only where the host memory is pageable."""
    ALLOCATE = 5
    """Allocates or frees memory outside a pool; may wait for the device."""
    LOAD = 6
    """Loads, unloads or links device code."""
    LOOK_UP = 7
    """Looks up a kernel, and loads its code if loading is lazy."""
    GRAPH = 8
    """Prepares a CUDA graph for launching: instantiates, updates or uploads it."""


_RULES: tuple[tuple[CallKind, re.Pattern[str]], ...] = (
    (
        CallKind.LAUNCH,
        re.compile(r"(cuda|cu|hip)(Launch(?!HostFunc)|GraphLaunch)|hip(Ext|Module)+Launch"),
    ),
    (
        CallKind.SYNCHRONIZE,
        re.compile(r"((cuda|hip)(Device|Stream|Event|Thread)|cu(Ctx|Stream|Event))Synchronize$"),
    ),
    (CallKind.COPY_ASYNC, re.compile(r"(cuda|cu|hip)Memcpy\w*Async$")),
    (CallKind.COPY, re.compile(r"(cuda|cu|hip)Memcpy(?!\w*Async)")),
    (
        CallKind.ALLOCATE,
        re.compile(
            r"(cuda|hip)(Malloc|Free)(?!\w*(Async|FromPool))"
            r"|(cuda|hip)(HostAlloc|HostMalloc|HostFree|HostRegister|HostUnregister)$"
            r"|cuMem(Alloc|Free|Host)(?!\w*(Async|FromPool|GetDevicePointer|GetFlags))"
            r"|cuMem(Create|Map|Unmap|Release)$|(cuda|cu)MemPoolTrimTo$|cudaDeviceReset$"
        ),
    ),
    (
        CallKind.LOAD,
        re.compile(
            r"cu(Module(Load|Unload)|Library(Load|Unload)|Link(Add|Complete))"
            r"|cudaLibrary(Load|Unload)|hipModule(Load|Unload)"
        ),
    ),
    (
        CallKind.LOOK_UP,
        re.compile(
            r"cu(ModuleGetFunction|LibraryGetKernel|KernelGetFunction)"
            r"|cudaFuncGetAttributes|hipModuleGetFunction|hipFuncGetAttributes"
        ),
    ),
    (CallKind.GRAPH, re.compile(r"(cuda|cu|hip)Graph(Instantiate|Upload|ExecUpdate)")),
)


POOLS = re.compile(r"(cuda|cu|hip)(Mem)?(Alloc|Malloc|Free)\w*(Async|FromPool)")
"""Calls that allocate from a pool, or free into it."""


def classify(name: str) -> CallKind:
    """Kind of the CUDA or HIP call of that name."""
    return next((does for does, rule in _RULES if rule.match(name)), CallKind.OTHER)


@fact_without_ranges
def call_kinds(trace: Trace) -> npt.NDArray[np.uint8]:
    """What each row of api_calls does, as a `CallKind`."""
    names = trace.recorded("api_calls").texts("name")
    known = np.array([classify(name) for name in names.values] or [CallKind.OTHER], np.uint8)
    return known[np.maximum(names.codes, 0)]


@record
class ApiCalls(Timed):
    """The rows of api_calls: calling thread, time and what each call does (a `CallKind`)."""

    thread: Array
    start_ns: Integers
    end_ns: Integers
    does: npt.NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.thread)


@fact_without_ranges
def api_calls(trace: Trace) -> ApiCalls:
    calls = trace.recorded("api_calls")
    return ApiCalls(calls["thread"], calls["start_ns"], calls["end_ns"], call_kinds(trace))


@fact_without_ranges
def calls_by_thread(trace: Trace) -> dict[int, RowNumbers]:
    """The API calls of each thread that made some."""
    return groups.rows_of(api_calls(trace).thread)


@fact_without_ranges
def graph_launch_calls(trace: Trace) -> Mask:
    """True for the API calls that launch a CUDA graph."""
    names = trace.recorded("api_calls").texts("name")
    return names.matching(re.compile(r"(cuda|cu|hip)GraphLaunch").match)


@fact_without_ranges
def pool_calls(trace: Trace) -> Mask:
    """True for the API calls that allocate from a pool of CUDA's, or free to it."""
    return trace.recorded("api_calls").texts("name").matching(POOLS.match)


@fact_without_ranges
def captured_calls(trace: Trace) -> Mask:
    """True for the API calls made while their thread captured a CUDA graph.

    What is launched then becomes a node of the graph and does not run.
    """
    calls = trace.recorded("api_calls")
    captured = np.zeros(len(calls), bool)
    names, start, thread = calls.texts("name"), calls["start_ns"], calls["thread"]
    begins = names.isin(["cudaStreamBeginCapture", "cudaStreamBeginCaptureToGraph"])
    begins |= names.isin(["cuStreamBeginCapture", "cuStreamBeginCaptureToGraph"])
    begins |= names.isin(["hipStreamBeginCapture", "hipStreamBeginCaptureToGraph"])
    ends = names.isin(["cudaStreamEndCapture", "cuStreamEndCapture", "hipStreamEndCapture"])
    for number in groups.different(thread[begins]).tolist():
        of_thread = calls_by_thread(trace)[number]
        begun, ended = (
            np.searchsorted(
                np.sort(start[of_thread[edge[of_thread]]]), start[of_thread], side="left"
            )
            for edge in (begins, ends)
        )
        captured[of_thread] = begun > ended
    return captured
