"""Tables of the program and its machine: kernel code, GPUs, processes, threads, messages."""

from traceview.tables import Column
from traceview.trace.schema.columns import CUDA, PROCESS, TableSchema, optional

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
