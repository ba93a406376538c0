"""Tables of the program and its machine: kernel code, GPUs, processes, threads, messages."""

from traceview.tables import Column
from traceview.trace.schema.columns import CUDA, PROCESS, TableSchema

DIAGNOSTICS = TableSchema(
    "diagnostics",
    "messages of the profiler about the recording",
    "nsys 2024.2 or newer (recorded by default)",
    (
        Column("time_ns", "int64", "time of the event"),
        Column("severity", "text", "info, warning, error, …"),
        Column("text", "text", "text of the message"),
        Column("process_id", "int64", "process it is about, if about one", nullable=True),
    ),
)
KERNEL_CODE = TableSchema(
    "kernel_code",
    "code of the Triton kernels, and of the CUDA C++ kernels that torch compiles at run time",
    "traceview record SCRIPT (without --no-kernels); for code built by nvcc, add it with "
    "traceview report TRACE --cubin FILE",
    (
        Column("name", "text", "compiled name, as in the kernels table"),
        Column("hash", "text", "Triton's hash of source and options", nullable=True),
        Column("arch", "text", "target architecture, such as sm_90", nullable=True),
        Column("num_warps", "int32", "warps per block", nullable=True),
        Column("num_stages", "int32", "software pipeline stages", nullable=True),
        Column("shared_memory_bytes", "int64", "dynamic shared memory per block", nullable=True),
        Column("signature", "text", "JSON: name, type and divisible_by_16 of each parameter"),
        Column("constexprs", "text", "JSON: compile-time values by name"),
        Column("options", "text", "JSON: the other compile options"),
        Column("source_file", "text", "file that defines the kernel", nullable=True),
        Column("source_line", "int32", "line of the kernel's definition", nullable=True),
        Column(
            "source_text",
            "text",
            "source text of the kernel, from its definition on",
            nullable=True,
        ),
        Column("ptx", "bytes", "zlib-compressed PTX; see kernel_code.unpacked", nullable=True),
        Column("cubin", "bytes", "zlib-compressed cubin; see kernel_code.unpacked", nullable=True),
    ),
)
DEVICES = TableSchema(
    "devices",
    "GPUs that the profiler listed or that ran work",
    CUDA,
    (
        Column("host_id", "int64", "machine, if the trace covers several"),
        Column("device_id", "int32", "GPU index, as numbered by the profiler"),
        Column("name", "text", "product name, such as NVIDIA H200", nullable=True),
        Column("compute_capability", "text", "compute capability, such as 9.0", nullable=True),
        Column("sm_count", "int32", "streaming multiprocessors", nullable=True),
        Column("max_warps_per_sm", "int32", "maximum resident warps per SM", nullable=True),
        Column("max_blocks_per_sm", "int32", "maximum resident blocks per SM", nullable=True),
        Column("max_registers_per_sm", "int32", "32-bit registers per SM", nullable=True),
        Column("max_shared_memory_per_sm_bytes", "int64", "shared memory per SM", nullable=True),
        Column(
            "max_shared_memory_per_block_bytes",
            "int64",
            "maximum per block, with opt-in",
            nullable=True,
        ),
        Column("l2_cache_bytes", "int64", "size of the L2 cache", nullable=True),
        Column("total_memory_bytes", "int64", "size of device memory", nullable=True),
        Column("memory_bytes_per_s", "int64", "peak bandwidth of device memory", nullable=True),
        Column("clock_hz", "int64", "maximum SM clock", nullable=True),
    ),
)
PROCESSES = TableSchema(
    "processes",
    "processes that used CUDA or NVTX",
    "nsys profile (recorded by default)",
    (
        Column("host_id", "int64", "machine, if the trace covers several"),
        Column("process_id", "int64", "process id of the operating system"),
        Column("name", "text", "name of the process", nullable=True),
    ),
)
THREADS = TableSchema(
    "threads",
    "threads that called CUDA or NVTX",
    "nsys profile (recorded by default)",
    (
        PROCESS,
        Column("thread_id", "int64", "thread id of the operating system"),
        Column("name", "text", "name of the thread", nullable=True),
    ),
)
