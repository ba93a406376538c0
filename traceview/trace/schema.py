"""The tables of a Trace: what every reader fills and every answer relies on.

Times are int64 nanoseconds on the clock of the recording. `process`, `thread` and `device` are row
numbers in the tables of that name: ids of the operating system and of CUDA repeat between
processes, hosts and contexts, row numbers do not.
"""

from dataclasses import dataclass

from traceview.tables import Column

START = Column("start_ns", "int64", "when it began")
END = Column("end_ns", "int64", "when it ended")
PROCESS = Column("process", "int32", "row in processes")
THREAD = Column("thread", "int32", "row in threads")
DEVICE = Column("device", "int32", "row in devices")
CORRELATION = Column(
    "correlation_id", "int64", "joins GPU work to its call, within one process only", nullable=True
)
GRAPH_NODE = Column(
    "graph_node_id", "int64", "node of a CUDA graph that ran as this row", nullable=True
)
ON_STREAM = (
    START,
    END,
    PROCESS,
    DEVICE,
    Column("context_id", "int32", "CUDA context, unique within the process"),
    Column("stream_id", "int32", "CUDA stream, unique within the context"),
    CORRELATION,
)


@dataclass(frozen=True)
class TableSchema:
    """One table: its columns, what its rows are, and how to record it."""

    name: str
    meaning: str
    how_to_record: str
    columns: tuple[Column, ...]


_CUDA = "traceview record SCRIPT, or nsys profile --trace=cuda,nvtx"

KERNELS = TableSchema(
    "kernels",
    "kernels that ran on a GPU",
    _CUDA,
    (
        *ON_STREAM,
        Column("name", "text", "demangled, whole"),
        Column("short_name", "text", "base name, without templates and arguments"),
        Column("mangled_name", "text", "as linked: the name that code has", nullable=True),
        *(Column(f"grid_{axis}", "int32", f"blocks along {axis}") for axis in "xyz"),
        *(Column(f"block_{axis}", "int32", f"threads of a block along {axis}") for axis in "xyz"),
        Column("registers_per_thread", "int32", "registers allocated to each thread"),
        Column("static_shared_memory_bytes", "int32", "a block's, fixed at compile time"),
        Column("dynamic_shared_memory_bytes", "int32", "a block's, chosen at the launch"),
        Column(
            "shared_memory_config_bytes",
            "int32",
            "of an SM, as the driver divided shared memory from L1 for this launch",
            nullable=True,
        ),
        Column("cluster_blocks", "int32", "blocks of a cluster; 1 without", nullable=True),
        Column(
            "max_active_clusters", "int32", "clusters that the GPU holds at once", nullable=True
        ),
        GRAPH_NODE,
    ),
)
UNIFIED = "UVM "
"""How a direction begins by which unified memory moved its pages: nobody asked for that copy."""
COPIES = TableSchema(
    "copies",
    "memory copies that ran on a GPU",
    _CUDA,
    (
        *ON_STREAM,
        Column("bytes", "int64", "bytes copied"),
        Column(
            "direction",
            "text",
            "H2D, D2H, D2D, P2P, H2H, …; UVM H2D and alike for pages of unified memory",
        ),
        Column("source_memory", "text", "pageable, pinned, device, managed, array, …"),
        Column("destination_memory", "text", "as source_memory"),
        Column("migration_cause", "text", "why unified memory moved a page", nullable=True),
        GRAPH_NODE,
    ),
)
SETS = TableSchema(
    "sets",
    "memory sets that ran on a GPU",
    _CUDA,
    (*ON_STREAM, Column("bytes", "int64", "bytes written"), GRAPH_NODE),
)
GRAPH_LAUNCHES = TableSchema(
    "graph_launches",
    "CUDA graphs that ran and were recorded as a whole, one row a launch",
    _CUDA,
    (
        *ON_STREAM,
        Column("graph_id", "int64", "graph"),
        Column("graph_exec_id", "int64", "instantiation of the graph"),
    ),
)
API_CALLS = TableSchema(
    "api_calls",
    "calls of the CUDA runtime and driver",
    _CUDA,
    (
        START,
        END,
        THREAD,
        PROCESS,
        CORRELATION,
        Column("name", "text", "without the version suffix: cudaLaunchKernel"),
        Column("callchain_id", "int64", "row group in callchains", nullable=True),
    ),
)
SYNCHRONIZATIONS = TableSchema(
    "synchronizations",
    "waits, on the host or on the GPU, as CUPTI reports them",
    _CUDA,
    (
        START,
        END,
        PROCESS,
        Column("context_id", "int32", "CUDA context, unique within the process"),
        Column(
            "stream_id", "int64", "stream waited for; absent for a whole context", nullable=True
        ),
        CORRELATION,
        Column("kind", "text", "event, stream-wait-event (waits on the GPU), stream, context"),
    ),
)
RANGES = TableSchema(
    "ranges",
    "NVTX ranges and marks",
    "traceview record SCRIPT, or nsys profile --trace=cuda,nvtx",
    (
        START,
        Column("end_ns", "int64", "when it ended; absent if it never did", nullable=True),
        THREAD,
        PROCESS,
        Column("end_thread", "int32", "thread that ended it", nullable=True),
        Column("name", "text", "its text"),
        Column("domain", "text", "its NVTX domain; absent for the default one", nullable=True),
        Column("kind", "text", "push-pop, start-end or mark"),
        Column(
            "payload",
            "int64",
            "whole number passed with it; absent where no text of the trace refers to one",
            nullable=True,
        ),
    ),
)
CALL_SITES = TableSchema(
    "call_sites",
    "lines of the program that called what can wait for the GPU",
    "traceview record SCRIPT (without --no-sync-sites)",
    (
        START,
        Column("end_ns", "int64", "when it ended; absent if it never did", nullable=True),
        THREAD,
        PROCESS,
        Column("file", "text", "from the folder it was started in or imported from", nullable=True),
        Column("line", "int64", "line of the file, from 1", nullable=True),
        Column("function", "text", "its function", nullable=True),
        Column("source", "text", "the line itself, its beginning if it is long"),
        Column("hint", "text", "the call, such as Tensor.item", nullable=True),
    ),
)
CALLCHAINS = TableSchema(
    "callchains",
    "C and C++ frames of CUDA calls, the innermost of a chain first",
    "traceview record SCRIPT, or nsys profile --trace=cuda --cudabacktrace=sync:0",
    (
        Column("callchain_id", "int64", "chain; see api_calls"),
        Column("depth", "int32", "0 for the innermost frame"),
        Column("symbol", "text", "function, demangled; its address where it has no name"),
        Column("module", "text", "library it lies in", nullable=True),
    ),
)
MEMORY_EVENTS = TableSchema(
    "memory_events",
    "allocations and releases of device memory",
    "traceview record SCRIPT, or nsys profile --trace=cuda --cuda-memory-usage=true",
    (
        Column("time_ns", "int64", "when"),
        PROCESS,
        DEVICE,
        Column("bytes", "int64", "size of the block"),
        Column("operation", "text", "allocation or release"),
        Column("memory", "text", "pageable, pinned, device, managed, …"),
    ),
)
OVERHEADS = TableSchema(
    "overheads",
    "time that the profiler or CUPTI took for itself",
    "nsys profile (recorded by default)",
    (
        START,
        END,
        Column("thread", "int32", "row in threads; absent if unknown", nullable=True),
        Column("process", "int32", "row in processes; absent if unknown", nullable=True),
        Column("name", "text", "what it was for"),
        Column("kind", "text", "profiler, cupti or queue-full"),
    ),
)
THREAD_RUNS = TableSchema(
    "thread_runs",
    "when threads were on a CPU; between two runs of a thread it was off",
    "nsys profile --cpuctxsw=process-tree",
    (START, END, THREAD, PROCESS),
)
DIAGNOSTICS = TableSchema(
    "diagnostics",
    "what the recorder said of its own work",
    "nsys 2024.2 or newer (recorded by default)",
    (
        Column("time_ns", "int64", "when"),
        Column("severity", "text", "info, warning, error, …"),
        Column("text", "text", "the message"),
    ),
)
KERNEL_CODE = TableSchema(
    "kernel_code",
    "code of the kernels that the program compiled or loaded: Triton's, and torch's of CUDA C++",
    "traceview record SCRIPT (without --no-kernels); CUDA C++ made by nvcc can be given: "
    "traceview report TRACE --cubin FILE",
    (
        Column("name", "text", "as compiled: the name that kernels have"),
        Column("hash", "text", "Triton's, of source and options", nullable=True),
        Column("arch", "text", "such as sm_90", nullable=True),
        Column("num_warps", "int32", "warps of a block", nullable=True),
        Column("num_stages", "int32", "pipeline stages", nullable=True),
        Column("shared_memory_bytes", "int64", "a block's, dynamic", nullable=True),
        Column("signature", "text", "JSON: name, type, divisible_by_16 of each parameter"),
        Column("constexprs", "text", "JSON: compile-time values by name"),
        Column("options", "text", "JSON: the rest of what Triton was told"),
        Column("source_file", "text", "file of the kernel's def", nullable=True),
        Column("source_line", "int32", "line of the kernel's def", nullable=True),
        Column("source_text", "text", "from the def on", nullable=True),
        Column("ptx", "bytes", "PTX, zlib; see kernel_code.unpacked", nullable=True),
        Column("cubin", "bytes", "cubin, zlib; see kernel_code.unpacked", nullable=True),
    ),
)
GPU_METRICS = TableSchema(
    "gpu_metrics",
    "how busy parts of a GPU were, sampled at a fixed rate",
    "nsys profile --gpu-metrics-devices=all",
    (
        Column("time_ns", "int64", "when the time began that the sample speaks of"),
        DEVICE,
        Column("metric", "text", "dram-read or dram-write"),
        Column("value_pct", "int16", "of the peak rate, until the next sample"),
    ),
)
KERNEL_COUNTERS = TableSchema(
    "kernel_counters",
    "what Nsight Compute counted in kernels, in the order in which it ran them",
    "ncu --csv --page raw, and traceview report --ncu FILE.csv",
    (
        Column("short_name", "text", "base name, without templates and arguments"),
        *(Column(f"grid_{axis}", "int64", f"blocks along {axis}") for axis in "xyz"),
        *(Column(f"block_{axis}", "int64", f"threads of a block along {axis}") for axis in "xyz"),
        Column("process_id", "int64", "id of the operating system"),
        Column("bytes", "float64", "moved between device memory and the L2 cache", nullable=True),
        Column("flop", "float64", "of all kinds", nullable=True),
        Column("flop_kind", "text", "the kind with the most of them", nullable=True),
    ),
)
DEVICES = TableSchema(
    "devices",
    "GPUs, those recorded and those that work ran on",
    _CUDA,
    (
        Column("host_id", "int64", "machine, where one trace holds several"),
        Column("device_id", "int32", "GPU, numbered as the recorder does"),
        Column("name", "text", "such as NVIDIA H200", nullable=True),
        Column("compute_capability", "text", "such as 9.0", nullable=True),
        Column("sm_count", "int32", "streaming multiprocessors", nullable=True),
        Column("max_warps_per_sm", "int32", "resident warps", nullable=True),
        Column("max_blocks_per_sm", "int32", "resident blocks", nullable=True),
        Column("max_registers_per_sm", "int32", "registers", nullable=True),
        Column("max_shared_memory_per_sm_bytes", "int64", "shared memory", nullable=True),
        Column("max_shared_memory_per_block_bytes", "int64", "with opt-in", nullable=True),
        Column("l2_cache_bytes", "int64", "L2 cache", nullable=True),
        Column("total_memory_bytes", "int64", "device memory", nullable=True),
        Column("memory_bytes_per_s", "int64", "peak rate of device memory", nullable=True),
        Column("clock_hz", "int64", "highest clock of the SMs", nullable=True),
    ),
)
PROCESSES = TableSchema(
    "processes",
    "processes that used CUDA or NVTX",
    "nsys profile (recorded by default)",
    (
        Column("host_id", "int64", "machine, where one trace holds several"),
        Column("process_id", "int64", "id of the operating system"),
        Column("name", "text", "its name", nullable=True),
    ),
)
THREADS = TableSchema(
    "threads",
    "threads that called CUDA or NVTX",
    "nsys profile (recorded by default)",
    (
        PROCESS,
        Column("thread_id", "int64", "id of the operating system"),
        Column("name", "text", "its name", nullable=True),
    ),
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
        CALL_SITES,
        CALLCHAINS,
        MEMORY_EVENTS,
        OVERHEADS,
        THREAD_RUNS,
        DIAGNOSTICS,
        KERNEL_CODE,
        GPU_METRICS,
        KERNEL_COUNTERS,
        DEVICES,
        PROCESSES,
        THREADS,
    )
}
