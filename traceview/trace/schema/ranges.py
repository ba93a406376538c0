"""Tables of the ranges of the program, and of its collectives."""

from dataclasses import replace

from traceview.tables import Column
from traceview.trace.schema.columns import CUDA, END, PROCESS, START, THREAD, TableSchema, optional

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
