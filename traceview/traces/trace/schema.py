"""The tables of a Trace: filled by every reader, used by every analysis."""

from dataclasses import replace

from traceview.base.records import record
from traceview.base.tables import Column, Dtype


@record
class TableSchema:
    """A table: its columns, the meaning of its rows, and how to record it."""

    name: str
    meaning: str
    how_to_record: str
    columns: tuple[Column, ...]


def optional(name: str, dtype: Dtype, meaning: str) -> Column:
    """A column without a value in some rows."""
    return Column(name, dtype, meaning, nullable=True)


START = Column("start_ns", "int64", "start time")
END = Column("end_ns", "int64", "end time")
PROCESS = Column("process", "int32", "row of the processes table")
THREAD = Column("thread", "int32", "row of the threads table")
DEVICE = Column("device", "int32", "row of the devices table")
CORRELATION = optional(
    "correlation_id",
    "int64",
    "matches GPU work to the API call that enqueued it; unique within a process",
)
CUDA = "traceview record SCRIPT, or nsys profile --trace=cuda,nvtx"


GRAPH_NODE = optional("graph_node_id", "int64", "CUDA graph node that this row executed")
ON_STREAM = (
    START,
    END,
    PROCESS,
    DEVICE,
    Column("context_id", "int32", "CUDA context, unique within the process"),
    Column("stream_id", "int32", "CUDA stream, unique within the context"),
    CORRELATION,
)

KERNELS = TableSchema(
    "kernels",
    "kernels that ran on a GPU",
    CUDA,
    (
        *ON_STREAM,
        Column("name", "text", "full demangled name"),
        Column("short_name", "text", "base name, without template arguments and parameters"),
        optional("mangled_name", "text", "linker symbol, as in the cubin"),
        *(Column(f"grid_{axis}", "int32", f"blocks in the grid along {axis}") for axis in "xyz"),
        *(Column(f"block_{axis}", "int32", f"threads per block along {axis}") for axis in "xyz"),
        Column("registers_per_thread", "int32", "registers per thread"),
        Column(
            "static_shared_memory_bytes",
            "int32",
            "static shared memory per block, fixed at compile time",
        ),
        Column(
            "dynamic_shared_memory_bytes", "int32", "dynamic shared memory per block, set at launch"
        ),
        optional(
            "shared_memory_config_bytes",
            "int32",
            "shared memory per SM, as the driver split it from L1 for this launch",
        ),
        optional("cluster_blocks", "int32", "blocks per cluster; 1 without clusters"),
        optional(
            "sm_count",
            "int32",
            "SMs of the green context that it ran in; absent in a context of the whole GPU",
        ),
        optional("max_active_clusters", "int32", "clusters resident on the GPU at once"),
        GRAPH_NODE,
    ),
)
UNIFIED = "UVM "
"""Prefix of the direction of unified-memory page migrations, which the program did not request."""
COPIES = TableSchema(
    "copies",
    "memory copies that ran on a GPU",
    CUDA,
    (
        *ON_STREAM,
        Column("bytes", "int64", "bytes copied"),
        Column(
            "direction",
            "text",
            "H2D, D2H, D2D, P2P, H2H, …; UVM H2D etc. for unified-memory page migrations",
        ),
        Column("source_memory", "text", "pageable, pinned, device, managed, array, …"),
        Column("destination_memory", "text", "as source_memory"),
        optional("migration_cause", "text", "why the driver migrated the unified-memory page"),
        GRAPH_NODE,
    ),
)
SETS = TableSchema(
    "sets",
    "memsets that ran on a GPU",
    CUDA,
    (*ON_STREAM, Column("bytes", "int64", "bytes written"), GRAPH_NODE),
)
GRAPH_LAUNCHES = TableSchema(
    "graph_launches",
    "CUDA graph launches recorded as a whole, one row per launch",
    CUDA,
    (
        *ON_STREAM,
        Column("graph_id", "int64", "id of the graph"),
        Column("graph_exec_id", "int64", "id of the instantiated (executable) graph"),
    ),
)
MEMORY_EVENTS = TableSchema(
    "memory_events",
    "GPU memory allocations and releases",
    "traceview record SCRIPT, or nsys profile --trace=cuda --cuda-memory-usage=true",
    (
        Column("time_ns", "int64", "time of the event"),
        PROCESS,
        DEVICE,
        Column("bytes", "int64", "size of the allocation"),
        Column("operation", "text", "allocation or release"),
        Column("memory", "text", "pageable, pinned, device, managed, …"),
        CORRELATION,
    ),
)
GPU_METRICS = TableSchema(
    "gpu_metrics",
    "GPU hardware counters, sampled at a fixed rate",
    "nsys profile --gpu-metrics-devices=all",
    (
        Column("time_ns", "int64", "start of the sampled period"),
        DEVICE,
        Column("metric", "text", "dram-read or dram-write"),
        Column("value_pct", "int16", "percent of the peak rate, until the next sample"),
    ),
)
KERNEL_COUNTERS = TableSchema(
    "kernel_counters",
    "Nsight Compute counters per kernel launch, in launch order",
    "ncu -o FILE, and traceview report --ncu FILE.ncu-rep",
    (
        Column("short_name", "text", "base name, without template arguments and parameters"),
        *(Column(f"grid_{axis}", "int64", f"blocks in the grid along {axis}") for axis in "xyz"),
        *(Column(f"block_{axis}", "int64", f"threads per block along {axis}") for axis in "xyz"),
        Column("process_id", "int64", "process id of the operating system"),
        optional("bytes", "float64", "bytes moved between device memory and the L2 cache"),
        optional("flop", "float64", "FLOP of all data types"),
        optional("flop_kind", "text", "data type with most of the FLOP"),
    ),
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


OPERATORS = "PyTorch operators"
"""Domain of the ranges that torch.profiler records for the operators of PyTorch."""

RANGES = TableSchema(
    "ranges",
    "ranges and marks of the program",
    CUDA,
    (
        START,
        optional("end_ns", "int64", "end time; absent if the range never ended"),
        THREAD,
        PROCESS,
        optional("end_thread", "int32", "thread that ended the range"),
        Column("name", "text", "text of the range"),
        optional("domain", "text", "NVTX domain; absent for the default domain"),
        Column("kind", "text", "push-pop, start-end or mark"),
        optional(
            "payload",
            "int64",
            "integer NVTX payload; read only if a range name of the trace refers to it",
        ),
    ),
)
_NCCL = (
    "nsys profile --trace=cuda,nvtx and then nsys export --type sqlite --include-blobs=true, "
    "or --include-json=true"
)
_COMMUNICATOR = Column(
    "communicator", "int64", "NCCL's number of the communicator, equal on all its ranks"
)
COLLECTIVE_CALLS = TableSchema(
    "collective_calls",
    "calls of NCCL on the CPU",
    _NCCL,
    (
        *(START, END, THREAD, PROCESS),
        Column(
            "kind", "text", "all-reduce, all-gather, send, receive …, or group-start and group-end"
        ),
        replace(_COMMUNICATOR, nullable=True),
        optional("bytes", "int64", "bytes of one message of the call"),
        optional(
            "total_bytes",
            "int64",
            "bytes of the larger buffer, where the messages of the call differ in size",
        ),
        optional(
            "bus_bytes",
            "int64",
            "bytes exchanged with other ranks in the busier direction, where messages differ",
        ),
        optional("peer", "int32", "rank sent to or received from, or the root"),
    ),
)
COMMUNICATORS = TableSchema(
    "communicators",
    "communicators of NCCL whose beginning or end was recorded, one row per rank",
    _NCCL,
    (
        PROCESS,
        _COMMUNICATOR,
        Column("ranks", "int32", "ranks of the communicator"),
        Column("rank", "int32", "this rank"),
        optional("name", "text", "what the program calls the process group"),
        optional("members", "text", "its ranks in the whole job, such as 0,4,8, in order"),
    ),
)


THREAD_RUNS = TableSchema(
    "thread_runs",
    "intervals in which a thread was running on a CPU",
    "nsys profile --cpuctxsw=process-tree",
    (START, END, THREAD, PROCESS),
)
_SAMPLED = (
    "traceview record SCRIPT, or nsys profile --python-sampling=true and then nsys export "
    "--type sqlite --include-json=true"
)
PYTHON_SAMPLES = TableSchema(
    "python_samples",
    "samples of the Python stacks of threads, in order of time",
    _SAMPLED,
    (
        Column("time_ns", "int64", "time of the sample"),
        PROCESS,
        THREAD,
        Column("stack", "int32", "stack in the python_frames table"),
        optional("state", "text", "state of the thread, as nsys names it"),
    ),
)
PYTHON_FRAMES = TableSchema(
    "python_frames",
    "frames of the distinct stacks of python_samples, by stack, innermost frame first",
    _SAMPLED,
    (
        Column("stack", "int32", "number of the stack, from 0"),
        Column("depth", "int32", "0 for the innermost frame"),
        Column("file", "text", "source file"),
        optional("line", "int32", "line number, from 1"),
        Column("function", "text", "function that contains the line"),
        optional("source", "text", "text of the line, truncated if long"),
    ),
)
PYTHON_EVENTS = TableSchema(
    "python_events",
    "long garbage collections of Python, and what torch.compile did",
    "traceview record SCRIPT",
    (
        *(START, END, THREAD, PROCESS),
        Column(
            "kind",
            "text",
            "garbage-collection, compilation, recompilation, backward-compilation, graph-break, "
            "uncompiled (runs without compilation), compile-limit (compiled too often) or module "
            "(a module of a torch model was called from this line)",
        ),
        optional("file", "text", "source file, relative to the working or import folder"),
        optional("line", "int32", "line of a graph break or collection, else of the function"),
        optional("function", "text", "function that was compiled, or in which Python collected"),
        optional("source", "text", "text of the line that broke the graph or called gc.collect"),
        optional(
            "reason", "text", "why it was compiled again or the graph broke; path of the module"
        ),
        optional("guards_ns", "int64", "time of a check of its guards, which each call makes"),
    ),
)
SOURCE_LINES = TableSchema(
    "source_lines",
    "lines of the program's files: those that waited or were sampled most, and their neighbours",
    "traceview record SCRIPT (without --no-source-lines)",
    (
        Column("file", "text", "source file, as in call_sites or python_frames"),
        Column("line", "int32", "line number, from 1"),
        Column("text", "text", "text of the line with its indentation, truncated if long"),
    ),
)
_NATIVE = "nsys profile --sample=process-tree --cpuctxsw=process-tree --trace=cuda,nvtx,osrt"
NATIVE_SAMPLES = TableSchema(
    "native_samples",
    "samples of running threads, in order of time",
    _NATIVE,
    (
        Column("time_ns", "int64", "time of the sample"),
        PROCESS,
        THREAD,
        Column("stack", "int64", "stack in the native_frames table, if it was unwound"),
    ),
)
NATIVE_FRAMES = TableSchema(
    "native_frames",
    "frames of the stacks of native_samples and os_calls, by stack, innermost frame first",
    _NATIVE,
    (
        Column("stack", "int64", "number of the stack; below 0 for those of os_calls"),
        Column("depth", "int32", "0 for the innermost frame"),
        optional("function", "text", "demangled function; absent if no symbol is known"),
        optional("module", "text", "executable or shared library"),
    ),
)


DIAGNOSTICS = TableSchema(
    "diagnostics",
    "messages of the profiler about the recording",
    "nsys 2024.2 or newer (recorded by default)",
    (
        Column("time_ns", "int64", "time of the event"),
        Column("severity", "text", "info, warning, error, …"),
        Column("text", "text", "text of the message"),
        optional("process_id", "int64", "process it is about, if about one"),
    ),
)
KERNEL_CODE = TableSchema(
    "kernel_code",
    "code of the Triton kernels, and of the CUDA C++ kernels that torch compiles at run time",
    "traceview record SCRIPT (without --no-kernels); for code built by nvcc, add it with "
    "traceview report TRACE --cubin FILE",
    (
        Column("name", "text", "compiled name, as in the kernels table"),
        optional("hash", "text", "Triton's hash of source and options"),
        optional("arch", "text", "target architecture, such as sm_90"),
        optional("num_warps", "int32", "warps per block"),
        optional("num_stages", "int32", "software pipeline stages"),
        optional("shared_memory_bytes", "int64", "dynamic shared memory per block"),
        Column("signature", "text", "JSON: name, type and divisible_by_16 of each parameter"),
        Column("constexprs", "text", "JSON: compile-time values by name"),
        Column("options", "text", "JSON: the other compile options"),
        optional("source_file", "text", "file that defines the kernel"),
        optional("source_line", "int32", "line of the kernel's definition"),
        optional("source_text", "text", "source text of the kernel, from its definition on"),
        optional("ptx", "bytes", "zlib-compressed PTX; see kernel_code.unpacked"),
        optional("cubin", "bytes", "zlib-compressed cubin; see kernel_code.unpacked"),
    ),
)
DEVICES = TableSchema(
    "devices",
    "GPUs that the profiler listed or that ran work",
    CUDA,
    (
        Column("host_id", "int64", "machine, if the trace covers several"),
        Column("device_id", "int32", "GPU index, as numbered by the profiler"),
        optional("name", "text", "product name, such as NVIDIA H200"),
        optional("compute_capability", "text", "compute capability, such as 9.0"),
        optional("sm_count", "int32", "streaming multiprocessors"),
        optional("max_warps_per_sm", "int32", "maximum resident warps per SM"),
        optional("max_blocks_per_sm", "int32", "maximum resident blocks per SM"),
        optional("max_registers_per_sm", "int32", "32-bit registers per SM"),
        optional("max_shared_memory_per_sm_bytes", "int64", "shared memory per SM"),
        optional("max_shared_memory_per_block_bytes", "int64", "maximum per block, with opt-in"),
        optional("l2_cache_bytes", "int64", "size of the L2 cache"),
        optional("total_memory_bytes", "int64", "size of device memory"),
        optional("memory_bytes_per_s", "int64", "peak bandwidth of device memory"),
        optional("clock_hz", "int64", "maximum SM clock"),
    ),
)
PROCESSES = TableSchema(
    "processes",
    "processes that used CUDA or NVTX",
    "nsys profile (recorded by default)",
    (
        Column("host_id", "int64", "machine, if the trace covers several"),
        Column("process_id", "int64", "process id of the operating system"),
        optional("name", "text", "name of the process"),
    ),
)
THREADS = TableSchema(
    "threads",
    "threads that called CUDA or NVTX",
    "nsys profile (recorded by default)",
    (
        PROCESS,
        Column("thread_id", "int64", "thread id of the operating system"),
        optional("name", "text", "name of the thread"),
    ),
)


TORCH_PROFILER = "torch.profiler"
"""Name of the recorder of Kineto's traces."""

_TORCH_CUDA = "torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])"
_TORCH_STACKS = "torch.profiler.profile(with_stack=True)"
_TORCH_RANGES = (
    "torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]), prof.step() "
    "after each step, and record_function() around parts of the program"
)
TORCH_REMEDIES = {
    **dict.fromkeys(
        ("kernels", "copies", "sets", "graph_launches", "api_calls", "overheads"), _TORCH_CUDA
    ),
    **dict.fromkeys(("python_samples", "python_frames", "call_sites"), _TORCH_STACKS),
    "ranges": _TORCH_RANGES,
    "memory_events": "torch.profiler.profile(profile_memory=True)",
    "synchronizations": "torch.profiler.profile(experimental_config="
    "torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True))",
    "collective_calls": "torch.profiler.profile() with torch 2.1 or newer",
    "communicators": "torch.profiler.profile() with torch 2.3 or newer",
}
"""How to record a table with torch.profiler; tables not listed need another recorder."""

_ON_GPU = "traceview record SCRIPT, on a machine with a GPU"
_OWN_STACKS = "traceview record SCRIPT (without --no-python-samples)"
OWN_TORCH_REMEDIES = {
    **TORCH_REMEDIES,
    **dict.fromkeys(
        (
            *("kernels", "copies", "sets", "graph_launches", "api_calls", "overheads"),
            *("memory_events", "synchronizations", "collective_calls", "communicators"),
        ),
        _ON_GPU,
    ),
    **dict.fromkeys(("python_samples", "python_frames"), _OWN_STACKS),
    "call_sites": "traceview record SCRIPT (without --no-sync-sites)",
    "ranges": "traceview record SCRIPT, and ranges (torch.cuda.nvtx.range) in the program",
}
"""How to record a table with `traceview record --backend torch`."""


# The tables of a Trace: filled by every reader, used by every analysis.
#
# Times are int64 nanoseconds on the clock of the recording. `process`, `thread` and `device` are
# row numbers in the tables of that name: ids of the operating system and of CUDA repeat between
# processes, hosts and contexts, row numbers do not.

TABLES = {
    table.name: table
    for table in (
        *(KERNELS, COPIES, SETS, GRAPH_LAUNCHES),
        *(API_CALLS, SYNCHRONIZATIONS),
        *(RANGES, COLLECTIVE_CALLS, COMMUNICATORS),
        *(CALL_SITES, CALLCHAINS),
        *(MEMORY_EVENTS, OVERHEADS),
        *(HOST_FUNCTIONS, JIT_COMPILATIONS),
        *(THREAD_RUNS, OS_CALLS),
        *(NATIVE_SAMPLES, NATIVE_FRAMES),
        *(PYTHON_SAMPLES, PYTHON_FRAMES, PYTHON_EVENTS, SOURCE_LINES),
        *(DIAGNOSTICS, KERNEL_CODE),
        *(GPU_METRICS, KERNEL_COUNTERS),
        *(DEVICES, PROCESSES, THREADS),
    )
}
