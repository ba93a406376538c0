"""The tables of a Trace: filled by every reader, used by every analysis.

Times are int64 nanoseconds on the clock of the recording. `process`, `thread` and `device` are row
numbers in the tables of that name: ids of the operating system and of CUDA repeat between
processes, hosts and contexts, row numbers do not.
"""

from traceview.trace.schema.cpu_calls import (
    API_CALLS,
    CALL_SITES,
    CALLCHAINS,
    HOST_FUNCTIONS,
    JIT_COMPILATIONS,
    OS_CALLS,
    OVERHEADS,
    SYNCHRONIZATIONS,
)
from traceview.trace.schema.gpu_work import (
    COPIES,
    GPU_METRICS,
    GRAPH_LAUNCHES,
    KERNEL_COUNTERS,
    KERNELS,
    MEMORY_EVENTS,
    SETS,
)
from traceview.trace.schema.program import DEVICES, DIAGNOSTICS, KERNEL_CODE, PROCESSES, THREADS
from traceview.trace.schema.ranges import COLLECTIVE_CALLS, COMMUNICATORS, RANGES
from traceview.trace.schema.samples import (
    NATIVE_FRAMES,
    NATIVE_SAMPLES,
    PYTHON_FRAMES,
    PYTHON_SAMPLES,
    SOURCE_LINES,
    THREAD_RUNS,
)

TABLES = {
    table.name: table
    for table in (
        KERNELS,
        COPIES,
        SETS,
        GRAPH_LAUNCHES,
        API_CALLS,
        SYNCHRONIZATIONS,
        RANGES,
        COLLECTIVE_CALLS,
        COMMUNICATORS,
        CALL_SITES,
        CALLCHAINS,
        MEMORY_EVENTS,
        OVERHEADS,
        HOST_FUNCTIONS,
        JIT_COMPILATIONS,
        THREAD_RUNS,
        OS_CALLS,
        NATIVE_SAMPLES,
        NATIVE_FRAMES,
        PYTHON_SAMPLES,
        PYTHON_FRAMES,
        SOURCE_LINES,
        DIAGNOSTICS,
        KERNEL_CODE,
        GPU_METRICS,
        KERNEL_COUNTERS,
        DEVICES,
        PROCESSES,
        THREADS,
    )
}
