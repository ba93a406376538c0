"""Tables of samples of the CPU: Python stacks, native stacks, and when a thread ran."""

from traceview.tables import Column
from traceview.trace.schema.columns import END, PROCESS, START, THREAD, TableSchema, optional

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
