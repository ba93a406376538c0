"""The tables of a Trace: filled by every reader, used by every analysis."""

from traceview.base.records import record
from traceview.base.tables import Column, column_list


@record
class TableSchema:
    """A table: its columns, the meaning of its rows, and how to record it."""

    name: str
    meaning: str
    how_to_record: str
    columns: tuple[Column, ...]


START = "start_ns int64: start time"
END = "end_ns int64: end time"
PROCESS = "process int32: row of the processes table"
THREAD = "thread int32: row of the threads table"
DEVICE = "device int32: row of the devices table"
CORRELATION = (
    "correlation_id int64?: matches GPU work to the API call that enqueued it; unique within a "
    "process"
)
CUDA = "traceview record SCRIPT, or nsys profile --trace=cuda,nvtx"


GRAPH_NODE = "graph_node_id int64?: CUDA graph node that this row executed"
IN_PROCESS = f"{START}\n{END}\n{PROCESS}"
ON_THREAD = f"{START}\n{END}\n{THREAD}\n{PROCESS}"
ON_STREAM = f"""
    {IN_PROCESS}
    {DEVICE}
    context_id int32: CUDA context, unique within the process
    stream_id int32: CUDA stream, unique within the context
    {CORRELATION}
"""

KERNELS = TableSchema(
    "kernels",
    "kernels that ran on a GPU",
    CUDA,
    column_list(f"""
        {ON_STREAM}
        name text: full demangled name
        short_name text: base name, without template arguments and parameters
        mangled_name text?: linker symbol, as in the cubin
        grid_x int32: blocks in the grid along x
        grid_y int32: blocks in the grid along y
        grid_z int32: blocks in the grid along z
        block_x int32: threads per block along x
        block_y int32: threads per block along y
        block_z int32: threads per block along z
        registers_per_thread int32: registers per thread
        static_shared_memory_bytes int32: static shared memory per block, fixed at compile time
        dynamic_shared_memory_bytes int32: dynamic shared memory per block, set at launch
        shared_memory_config_bytes int32?: shared memory per SM, as the driver split it from L1 for
            this launch
        cluster_blocks int32?: blocks per cluster; 1 without clusters
        sm_count int32?: SMs of the green context that it ran in; absent in a context of the whole
            GPU
        max_active_clusters int32?: clusters resident on the GPU at once
        {GRAPH_NODE}
    """),
)
UNIFIED = "UVM "
"""Prefix of the direction of unified-memory page migrations, which the program did not request."""
COPIES = TableSchema(
    "copies",
    "memory copies that ran on a GPU",
    CUDA,
    column_list(f"""
        {ON_STREAM}
        bytes int64: bytes copied
        direction text: H2D, D2H, D2D, P2P, H2H, …; UVM H2D etc. for unified-memory page migrations
        source_memory text: pageable, pinned, device, managed, array, …
        destination_memory text: as source_memory
        migration_cause text?: why the driver migrated the unified-memory page
        {GRAPH_NODE}
    """),
)
SETS = TableSchema(
    "sets",
    "memsets that ran on a GPU",
    CUDA,
    column_list(f"""
        {ON_STREAM}
        bytes int64: bytes written
        {GRAPH_NODE}
    """),
)
GRAPH_LAUNCHES = TableSchema(
    "graph_launches",
    "CUDA graph launches recorded as a whole, one row per launch",
    CUDA,
    column_list(f"""
        {ON_STREAM}
        graph_id int64: id of the graph
        graph_exec_id int64: id of the instantiated (executable) graph
    """),
)
MEMORY_EVENTS = TableSchema(
    "memory_events",
    "GPU memory allocations and releases",
    "traceview record SCRIPT, or nsys profile --trace=cuda --cuda-memory-usage=true",
    column_list(f"""
        time_ns int64: time of the event
        {PROCESS}
        {DEVICE}
        bytes int64: size of the allocation
        operation text: allocation or release
        memory text: pageable, pinned, device, managed, …
        {CORRELATION}
    """),
)
GPU_METRICS = TableSchema(
    "gpu_metrics",
    "GPU hardware counters, sampled at a fixed rate",
    "nsys profile --gpu-metrics-devices=all",
    column_list(f"""
        time_ns int64: start of the sampled period
        {DEVICE}
        metric text: dram-read or dram-write
        value_pct int16: percent of the peak rate, until the next sample
    """),
)
KERNEL_COUNTERS = TableSchema(
    "kernel_counters",
    "Nsight Compute counters per kernel launch, in launch order",
    "ncu -o FILE, and traceview report --ncu FILE.ncu-rep",
    column_list("""
        short_name text: base name, without template arguments and parameters
        grid_x int64: blocks in the grid along x
        grid_y int64: blocks in the grid along y
        grid_z int64: blocks in the grid along z
        block_x int64: threads per block along x
        block_y int64: threads per block along y
        block_z int64: threads per block along z
        process_id int64: process id of the operating system
        bytes float64?: bytes moved between device memory and the L2 cache
        flop float64?: FLOP of all data types
        flop_kind text?: data type with most of the FLOP
    """),
)


API_CALLS = TableSchema(
    "api_calls",
    "CUDA runtime and driver API calls",
    CUDA,
    column_list(f"""
        {ON_THREAD}
        {CORRELATION}
        name text: API function without version suffix, such as cudaLaunchKernel
        callchain_id int64?: call chain in the callchains table
    """),
)
SYNCHRONIZATIONS = TableSchema(
    "synchronizations",
    "synchronizations on the CPU or on the GPU, as reported by CUPTI",
    CUDA,
    column_list(f"""
        {IN_PROCESS}
        context_id int32: CUDA context, unique within the process
        stream_id int64?: stream waited for; absent for a context-wide wait
        {CORRELATION}
        kind text: event, stream-wait-event (a wait on the GPU), stream or context
    """),
)
CALL_SITES = TableSchema(
    "call_sites",
    "source lines of calls that can wait for the GPU",
    "traceview record SCRIPT (without --no-sync-sites)",
    column_list(f"""
        {START}
        end_ns int64?: end time; absent if the range never ended
        {THREAD}
        {PROCESS}
        file text?: source file, relative to the working or import folder
        line int64?: line number, from 1
        function text?: function that contains the line
        source text: text of the line, truncated if long
        hint text?: API called, such as Tensor.item
    """),
)
CALLCHAINS = TableSchema(
    "callchains",
    "C and C++ call chains of CUDA calls, innermost frame first",
    "traceview record SCRIPT, or nsys profile --trace=cuda --cudabacktrace=sync:0",
    column_list("""
        callchain_id int64: id of the chain, as in the api_calls table
        depth int32: 0 for the innermost frame
        symbol text: demangled function name, or its address if unresolved
        module text?: shared library
    """),
)
OVERHEADS = TableSchema(
    "overheads",
    "profiler and CUPTI overhead",
    "nsys profile (recorded by default)",
    column_list(f"""
        {START}
        {END}
        thread int32?: row of the threads table; absent if unknown
        process int32?: row of the processes table; absent if unknown
        name text: activity that caused the overhead
        kind text: profiler, cupti or queue-full
    """),
)
HOST_FUNCTIONS = TableSchema(
    "host_functions",
    "functions of the CPU that a stream ran and waited for: cudaLaunchHostFunc, graph host nodes",
    "nsys 2026.5 or newer, --trace=cuda",
    column_list(f"""
        {IN_PROCESS}
        device int32?: row of the devices table; absent if unknown
        stream_id int64?: stream that waited; absent if unknown
        {CORRELATION}
    """),
)
JIT_COMPILATIONS = TableSchema(
    "jit_compilations",
    "JIT compilation by the driver, and its compute cache",
    "nsys 2026.5 or newer, --trace=cuda",
    column_list(f"""
        {ON_THREAD}
        {CORRELATION}
        operation text: compile, cache load or cache store
    """),
)
OS_CALLS = TableSchema(
    "os_calls",
    "blocking calls of the operating system's libraries",
    "nsys profile --trace=cuda,nvtx,osrt",
    column_list(f"""
        {ON_THREAD}
        name text: function, such as clock_nanosleep or pthread_cond_wait
        stack int64?: stack in the native_frames table; only longer calls have one
    """),
)


OPERATORS = "PyTorch operators"
"""Domain of the ranges that torch.profiler records for the operators of PyTorch."""

RANGES = TableSchema(
    "ranges",
    "ranges and marks of the program",
    CUDA,
    column_list(f"""
        {START}
        end_ns int64?: end time; absent if the range never ended
        {THREAD}
        {PROCESS}
        end_thread int32?: thread that ended the range
        name text: text of the range
        domain text?: NVTX domain; absent for the default domain
        kind text: push-pop, start-end or mark
        payload int64?: integer NVTX payload; read only if a range name of the trace refers to it
    """),
)
_NCCL = (
    "nsys profile --trace=cuda,nvtx and then nsys export --type sqlite --include-blobs=true, "
    "or --include-json=true"
)
_COMMUNICATOR = "NCCL's number of the communicator, equal on all its ranks"
COLLECTIVE_CALLS = TableSchema(
    "collective_calls",
    "calls of NCCL on the CPU",
    _NCCL,
    column_list(f"""
        {ON_THREAD}
        kind text: all-reduce, all-gather, send, receive …, or group-start and group-end
        communicator int64?: {_COMMUNICATOR}
        bytes int64?: bytes of one message of the call
        total_bytes int64?: bytes of the larger buffer, where the messages of the call differ in
            size
        bus_bytes int64?: bytes exchanged with other ranks in the busier direction, where messages
            differ
        peer int32?: rank sent to or received from, or the root
    """),
)
COMMUNICATORS = TableSchema(
    "communicators",
    "communicators of NCCL whose beginning or end was recorded, one row per rank",
    _NCCL,
    column_list(f"""
        {PROCESS}
        communicator int64: {_COMMUNICATOR}
        ranks int32: ranks of the communicator
        rank int32: this rank
        name text?: what the program calls the process group
        members text?: its ranks in the whole job, such as 0,4,8, in order
    """),
)


THREAD_RUNS = TableSchema(
    "thread_runs",
    "intervals in which a thread was running on a CPU",
    "nsys profile --cpuctxsw=process-tree",
    column_list(f"""
        {ON_THREAD}
    """),
)
_SAMPLED = (
    "traceview record SCRIPT, or nsys profile --python-sampling=true and then nsys export "
    "--type sqlite --include-json=true"
)
PYTHON_SAMPLES = TableSchema(
    "python_samples",
    "samples of the Python stacks of threads, in order of time",
    _SAMPLED,
    column_list(f"""
        time_ns int64: time of the sample
        {PROCESS}
        {THREAD}
        stack int32: stack in the python_frames table
        state text?: state of the thread, as nsys names it
    """),
)
PYTHON_FRAMES = TableSchema(
    "python_frames",
    "frames of the distinct stacks of python_samples, by stack, innermost frame first",
    _SAMPLED,
    column_list("""
        stack int32: number of the stack, from 0
        depth int32: 0 for the innermost frame
        file text: source file
        line int32?: line number, from 1
        function text: function that contains the line
        source text?: text of the line, truncated if long
    """),
)
PYTHON_EVENTS = TableSchema(
    "python_events",
    "long garbage collections of Python, and what torch.compile did",
    "traceview record SCRIPT",
    column_list(f"""
        {ON_THREAD}
        kind text: garbage-collection, compilation, recompilation, backward-compilation,
            graph-break, uncompiled (runs without compilation), compile-limit (compiled too often)
            or module (a module of a torch model was called from this line)
        file text?: source file, relative to the working or import folder
        line int32?: line of a graph break or collection, else of the function
        function text?: function that was compiled, or in which Python collected
        source text?: text of the line that broke the graph or called gc.collect
        reason text?: why it was compiled again or the graph broke; path of the module
        guards_ns int64?: time of a check of its guards, which each call makes
    """),
)
SOURCE_LINES = TableSchema(
    "source_lines",
    "lines of the program's files: those that waited or were sampled most, and their neighbours",
    "traceview record SCRIPT (without --no-source-lines)",
    column_list("""
        file text: source file, as in call_sites or python_frames
        line int32: line number, from 1
        text text: text of the line with its indentation, truncated if long
    """),
)
_NATIVE = "nsys profile --sample=process-tree --cpuctxsw=process-tree --trace=cuda,nvtx,osrt"
NATIVE_SAMPLES = TableSchema(
    "native_samples",
    "samples of running threads, in order of time",
    _NATIVE,
    column_list(f"""
        time_ns int64: time of the sample
        {PROCESS}
        {THREAD}
        stack int64: stack in the native_frames table, if it was unwound
    """),
)
NATIVE_FRAMES = TableSchema(
    "native_frames",
    "frames of the stacks of native_samples and os_calls, by stack, innermost frame first",
    _NATIVE,
    column_list("""
        stack int64: number of the stack; below 0 for those of os_calls
        depth int32: 0 for the innermost frame
        function text?: demangled function; absent if no symbol is known
        module text?: executable or shared library
    """),
)


DIAGNOSTICS = TableSchema(
    "diagnostics",
    "messages of the profiler about the recording",
    "nsys 2024.2 or newer (recorded by default)",
    column_list("""
        time_ns int64: time of the event
        severity text: info, warning, error, …
        text text: text of the message
        process_id int64?: process it is about, if about one
    """),
)
KERNEL_CODE = TableSchema(
    "kernel_code",
    "code of the Triton kernels, of the CUDA C++ kernels that torch compiles at run time, and of "
    "the longest kernels that nvcc built into a recorded program",
    "traceview record SCRIPT (without --no-kernels); for libraries built by nvcc, add it with "
    "traceview report TRACE --cubin FILE",
    column_list("""
        name text: compiled name, as in the kernels table
        hash text?: Triton's hash of source and options
        arch text?: target architecture, such as sm_90
        num_warps int32?: warps per block
        num_stages int32?: software pipeline stages
        shared_memory_bytes int64?: dynamic shared memory per block
        signature text: JSON: name, type and divisible_by_16 of each parameter
        constexprs text: JSON: compile-time values by name
        options text: JSON: the other compile options
        source_file text?: file that defines the kernel
        source_line int32?: line of the kernel's definition
        source_text text?: source text of the kernel, from its definition on
        ptx bytes?: zlib-compressed PTX; see kernel_code.unpacked
        cubin bytes?: zlib-compressed cubin; see kernel_code.unpacked
    """),
)
DEVICES = TableSchema(
    "devices",
    "GPUs that the profiler listed or that ran work",
    CUDA,
    column_list("""
        host_id int64: machine, if the trace covers several
        device_id int32: GPU index, as numbered by the profiler
        name text?: product name, such as NVIDIA H200
        compute_capability text?: compute capability, such as 9.0
        sm_count int32?: streaming multiprocessors
        max_warps_per_sm int32?: maximum resident warps per SM
        max_blocks_per_sm int32?: maximum resident blocks per SM
        max_registers_per_sm int32?: 32-bit registers per SM
        max_shared_memory_per_sm_bytes int64?: shared memory per SM
        max_shared_memory_per_block_bytes int64?: maximum per block, with opt-in
        l2_cache_bytes int64?: size of the L2 cache
        copy_engines int32?: copies between host and GPU that it makes at once; 2 are one each way
        total_memory_bytes int64?: size of device memory
        memory_bytes_per_s int64?: peak bandwidth of device memory
        clock_hz int64?: maximum SM clock
    """),
)
PROCESSES = TableSchema(
    "processes",
    "processes that used CUDA or NVTX",
    "nsys profile (recorded by default)",
    column_list("""
        host_id int64: machine, if the trace covers several
        process_id int64: process id of the operating system
        name text?: name of the process
    """),
)
THREADS = TableSchema(
    "threads",
    "threads that called CUDA or NVTX",
    "nsys profile (recorded by default)",
    column_list(f"""
        {PROCESS}
        thread_id int64: thread id of the operating system
        name text?: name of the thread
    """),
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
