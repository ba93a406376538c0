"""Tables of calls on the CPU: CUDA, what waits for the GPU, and the operating system."""

from traceview.tables import Column
from traceview.trace.schema.columns import (
    CORRELATION,
    CUDA,
    END,
    PROCESS,
    START,
    THREAD,
    TableSchema,
    optional,
)

API_CALLS = TableSchema(
    "api_calls",
    "CUDA runtime and driver API calls",
    CUDA,
    (
        *(START, END, THREAD, PROCESS),
        CORRELATION,
        Column("name", "text", "API function without version suffix, such as cudaLaunchKernel"),
        optional("callchain_id", "int64", "call chain in the callchains table"),
    ),
)
SYNCHRONIZATIONS = TableSchema(
    "synchronizations",
    "synchronizations on the CPU or on the GPU, as reported by CUPTI",
    CUDA,
    (
        *(START, END, PROCESS),
        Column("context_id", "int32", "CUDA context, unique within the process"),
        optional("stream_id", "int64", "stream waited for; absent for a context-wide wait"),
        CORRELATION,
        Column("kind", "text", "event, stream-wait-event (a wait on the GPU), stream or context"),
    ),
)
CALL_SITES = TableSchema(
    "call_sites",
    "source lines of calls that can wait for the GPU",
    "traceview record SCRIPT (without --no-sync-sites)",
    (
        START,
        optional("end_ns", "int64", "end time; absent if the range never ended"),
        THREAD,
        PROCESS,
        optional("file", "text", "source file, relative to the working or import folder"),
        optional("line", "int64", "line number, from 1"),
        optional("function", "text", "function that contains the line"),
        Column("source", "text", "text of the line, truncated if long"),
        optional("hint", "text", "API called, such as Tensor.item"),
    ),
)
CALLCHAINS = TableSchema(
    "callchains",
    "C and C++ call chains of CUDA calls, innermost frame first",
    "traceview record SCRIPT, or nsys profile --trace=cuda --cudabacktrace=sync:0",
    (
        Column("callchain_id", "int64", "id of the chain, as in the api_calls table"),
        Column("depth", "int32", "0 for the innermost frame"),
        Column("symbol", "text", "demangled function name, or its address if unresolved"),
        optional("module", "text", "shared library"),
    ),
)
OVERHEADS = TableSchema(
    "overheads",
    "profiler and CUPTI overhead",
    "nsys profile (recorded by default)",
    (
        START,
        END,
        optional("thread", "int32", "row of the threads table; absent if unknown"),
        optional("process", "int32", "row of the processes table; absent if unknown"),
        Column("name", "text", "activity that caused the overhead"),
        Column("kind", "text", "profiler, cupti or queue-full"),
    ),
)
HOST_FUNCTIONS = TableSchema(
    "host_functions",
    "functions of the CPU that a stream ran and waited for: cudaLaunchHostFunc, graph host nodes",
    "nsys 2026.5 or newer, --trace=cuda",
    (
        *(START, END, PROCESS),
        optional("device", "int32", "row of the devices table; absent if unknown"),
        optional("stream_id", "int64", "stream that waited; absent if unknown"),
        CORRELATION,
    ),
)
JIT_COMPILATIONS = TableSchema(
    "jit_compilations",
    "JIT compilation by the driver, and its compute cache",
    "nsys 2026.5 or newer, --trace=cuda",
    (
        *(START, END, THREAD, PROCESS),
        CORRELATION,
        Column("operation", "text", "compile, cache load or cache store"),
    ),
)
OS_CALLS = TableSchema(
    "os_calls",
    "blocking calls of the operating system's libraries",
    "nsys profile --trace=cuda,nvtx,osrt",
    (
        *(START, END, THREAD, PROCESS),
        Column("name", "text", "function, such as clock_nanosleep or pthread_cond_wait"),
        optional("stack", "int64", "stack in the native_frames table; only longer calls have one"),
    ),
)
