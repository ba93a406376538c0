"""Tables of the ranges of the program, and of its collectives."""

from dataclasses import replace

from traceview.tables import Column
from traceview.trace.schema.columns import CUDA, END, PROCESS, START, THREAD, TableSchema

OPERATORS = "PyTorch operators"
"""Domain of the ranges that torch.profiler records for the operators of PyTorch."""

RANGES = TableSchema(
    "ranges",
    "ranges and marks of the program",
    CUDA,
    (
        START,
        Column("end_ns", "int64", "end time; absent if the range never ended", nullable=True),
        THREAD,
        PROCESS,
        Column("end_thread", "int32", "thread that ended the range", nullable=True),
        Column("name", "text", "text of the range"),
        Column("domain", "text", "NVTX domain; absent for the default domain", nullable=True),
        Column("kind", "text", "push-pop, start-end or mark"),
        Column(
            "payload",
            "int64",
            "integer NVTX payload; read only if a range name of the trace refers to it",
            nullable=True,
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
        START,
        END,
        THREAD,
        PROCESS,
        Column(
            "kind",
            "text",
            "all-reduce, all-gather, send, receive …, or group-start and group-end",
        ),
        replace(_COMMUNICATOR, nullable=True),
        Column("bytes", "int64", "bytes of one message of the call", nullable=True),
        Column(
            "total_bytes",
            "int64",
            "bytes of the larger buffer, where the messages of the call differ in size",
            nullable=True,
        ),
        Column(
            "bus_bytes",
            "int64",
            "bytes exchanged with other ranks in the busier direction, where messages differ",
            nullable=True,
        ),
        Column("peer", "int32", "rank sent to or received from, or the root", nullable=True),
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
        Column("name", "text", "what the program calls the process group", nullable=True),
        Column(
            "members", "text", "its ranks in the whole job, such as 0,4,8, in order", nullable=True
        ),
    ),
)
