"""Tables of what ran on a GPU, of its memory, and of its counters."""

from traceview.tables import Column
from traceview.trace.schema.columns import (
    CORRELATION,
    CUDA,
    DEVICE,
    END,
    PROCESS,
    START,
    TableSchema,
    optional,
)

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
