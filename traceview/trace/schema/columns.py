"""TableSchema, and the columns that many tables share."""

from traceview.records import record
from traceview.tables import Column, Dtype


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
