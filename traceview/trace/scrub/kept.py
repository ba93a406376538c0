"""What a scrubbed trace keeps: tables and columns by name, each column with what it may hold.

Whatever is not listed here is left out, so a table or column that a new recorder adds is private
until a reader needs it. A test compares the list with what the readers read.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from traceview.records import record
from traceview.trace.nsys import added_tables, cpu_calls, processes, python_samples, ranges, tables
from traceview.trace.nsys.export_info import META_TABLES
from traceview.trace.nsys.payloads import ENTRIES
from traceview.trace.schema import TABLES
from traceview.trace.stored.layout import ABOUT, NUMBERED, RUN, TEXTS


class TextKind(Enum):
    """What a column may hold, apart from NULL."""

    NUMBER = auto()
    KERNEL = auto()  # Name of a kernel.
    RANGE = auto()  # Name of an NVTX range, mark or domain.
    FUNCTION = auto()  # Name of a Python function.
    SYMBOL = auto()  # Name of a C or C++ function.
    CALL = auto()  # Name of an API function, or of an activity of the recorder.
    FILE = auto()  # Path of a source file.
    MODULE = auto()  # Path of an executable or shared library, or the name of a process.
    SOURCE = auto()  # Text of a source file.
    WORDS = auto()  # Public words: see vocabulary.
    MESSAGE = auto()  # A sentence of a recorder, of public words and numbers.
    STACK = auto()  # JSON of a Python stack, or of a call of NCCL.
    PAYLOAD = auto()  # Binary payload of a call of NCCL.
    FIELD = auto()  # Name of a field in such a payload.
    CODE_FACT = auto()  # A hash, an architecture, or JSON of parameters and options of a kernel.
    PTX = auto()
    CUBIN = auto()


@record
class Kept:
    """A kept column: its kind, and whether it holds the number of a text in the table of texts."""

    kind: TextKind
    by_number: bool = False


_NUMBER = Kept(TextKind.NUMBER)
_EXPORT_TABLES = (
    *(tables.KERNELS, tables.COPIES, tables.SETS, tables.GRAPH_LAUNCHES, tables.API_CALLS),
    *(tables.MEMORY_EVENTS, tables.PROFILER_OVERHEADS, tables.CUPTI_OVERHEADS, tables.DIAGNOSTICS),
    *(cpu_calls.SYNCHRONIZATIONS, ranges.RANGES, ranges.PAYLOADS, python_samples.MARKS),
    *(cpu_calls.OS_CALLS, cpu_calls.CALLCHAINS, cpu_calls.SCHEDULING, tables.METRIC_SAMPLES),
    *(cpu_calls.ON_STREAM, cpu_calls.ON_THREAD, cpu_calls.JIT),
    *(cpu_calls.NATIVE_SAMPLES, cpu_calls.SAMPLED_FRAMES, cpu_calls.OS_FRAMES),
    *(added_tables.OWN_SAMPLES, added_tables.OWN_FRAMES),
)
# Columns of these tables that hold texts, or their numbers; all others are numbers.
_TEXTS_OF_EXPORT: Mapping[str, Kept] = {
    "demangledName": Kept(TextKind.KERNEL, True),
    "shortName": Kept(TextKind.KERNEL, True),
    "mangledName": Kept(TextKind.KERNEL, True),
    "nameId": Kept(TextKind.CALL, True),
    "textId": Kept(TextKind.RANGE, True),
    "jsonTextId": Kept(TextKind.STACK, True),
    "symbol": Kept(TextKind.SYMBOL, True),
    "module": Kept(TextKind.MODULE, True),
    "jsonText": Kept(TextKind.STACK),
    "file": Kept(TextKind.FILE),
    "function": Kept(TextKind.FUNCTION),
}
_TEXT = {
    tables.DIAGNOSTICS.table: Kept(TextKind.MESSAGE),
    ranges.RANGES.table: Kept(TextKind.RANGE),
}


def _of_exports() -> dict[str, dict[str, Kept]]:
    kept: dict[str, dict[str, Kept]] = {}
    for source in _EXPORT_TABLES:
        for name in (*source.required, *source.optional, *source.texts):
            plain = _TEXT[source.table] if name == "text" else _TEXTS_OF_EXPORT.get(name, _NUMBER)
            kept.setdefault(source.table, {})[name] = plain
    kept[ranges.RANGES.table]["binaryData"] = Kept(TextKind.PAYLOAD)
    return kept


def _numbers(*names: str) -> dict[str, Kept]:
    return dict.fromkeys(names, _NUMBER)


_ENUMERATION = {"id": _NUMBER, "name": Kept(TextKind.WORDS), "label": Kept(TextKind.WORDS)}
# Small tables, which are read row by row.
_LISTED: Mapping[str, Mapping[str, Kept]] = {
    "TARGET_INFO_GPU": {
        **_numbers("vmId", "id", "computeMajor", "computeMinor", *processes.GPU_COLUMNS.values()),
        "name": Kept(TextKind.WORDS),
    },
    "TARGET_INFO_CUDA_DEVICE": _numbers("pid", "cudaId", "gpuId"),
    "TARGET_INFO_CUDA_CONTEXT_INFO": _numbers(
        "processId", "contextId", "isGreenContext", "numMultiprocessors"
    ),
    "TARGET_INFO_GPU_METRICS": {
        **_numbers("typeId", "metricId"),
        "metricName": Kept(TextKind.WORDS),
    },
    "TARGET_INFO_SESSION_START_TIME": _numbers("utcEpochNs"),
    "ANALYSIS_DETAILS": _numbers("duration"),
    "MPI_RANKS": _numbers("rank"),
    "PROCESSES": {"globalPid": _NUMBER, "name": Kept(TextKind.MODULE)},
    "ThreadNames": {"globalTid": _NUMBER, "nameId": Kept(TextKind.CALL, True)},
    ENTRIES: {**_numbers("domainId", "schemaId", "type", "offset"), "name": Kept(TextKind.FIELD)},
    **dict.fromkeys(
        (
            *("ENUM_CUDA_MEMCPY_OPER", "ENUM_CUDA_MEM_KIND", "ENUM_CUDA_DEV_MEM_EVENT_OPER"),
            *("ENUM_CUPTI_JIT_OPERATION_TYPE", "ENUM_CUPTI_SYNC_TYPE"),
            "ENUM_DIAGNOSTIC_SEVERITY_LEVEL",
        ),
        _ENUMERATION,
    ),
}
_LINES = {"file": Kept(TextKind.FILE), "line": _NUMBER, "text": Kept(TextKind.SOURCE)}
_CODE: Mapping[str, Kept] = {
    "name": Kept(TextKind.KERNEL),
    **dict.fromkeys(
        ("hash", "arch", "signature", "constexprs", "options"), Kept(TextKind.CODE_FACT)
    ),
    **_numbers("num_warps", "num_stages", "shared_memory_bytes", "source_line"),
    "source_file": Kept(TextKind.FILE),
    "source_text": Kept(TextKind.SOURCE),
    "ptx": Kept(TextKind.PTX),
    "cubin": Kept(TextKind.CUBIN),
}
# Columns of a stored trace with texts, by table and column; those of any other table are words.
_TEXTS_OF_TABLE: Mapping[tuple[str, str], TextKind] = {
    **dict.fromkeys(
        [("kernels", "name"), ("kernels", "short_name"), ("kernels", "mangled_name")],
        TextKind.KERNEL,
    ),
    **dict.fromkeys(
        [("ranges", "name"), ("ranges", "domain"), ("communicators", "name")], TextKind.RANGE
    ),
    **dict.fromkeys(
        [
            *(("api_calls", "name"), ("os_calls", "name"), ("overheads", "name")),
            *(("threads", "name"), ("call_sites", "hint")),
        ],
        TextKind.CALL,
    ),
    **dict.fromkeys([("call_sites", "file"), ("python_frames", "file")], TextKind.FILE),
    **dict.fromkeys([("call_sites", "function"), ("python_frames", "function")], TextKind.FUNCTION),
    **dict.fromkeys([("call_sites", "source"), ("python_frames", "source")], TextKind.SOURCE),
    **dict.fromkeys([("callchains", "symbol"), ("native_frames", "function")], TextKind.SYMBOL),
    **dict.fromkeys(
        [("callchains", "module"), ("native_frames", "module"), ("processes", "name")],
        TextKind.MODULE,
    ),
    ("diagnostics", "text"): TextKind.MESSAGE,
}


KEPT: Mapping[str, Mapping[str, Kept]] = {
    **_of_exports(),
    **_LISTED,
    added_tables.KERNELS_TABLE: _CODE,
    added_tables.EXCERPTS_TABLE: _LINES,
    added_tables.SOURCE_LINES: _LINES,
    **{
        name: {
            column.name: Kept(_TEXTS_OF_TABLE.get((name, column.name), TextKind.WORDS), True)
            if column.dtype == "text"
            else _NUMBER
            for column in TABLES[name].columns
        }
        for name in NUMBERED
    },
}
"""Kept columns by table, except those of PAIRS and of the tables of texts."""
STRINGS = ("StringIds", TEXTS)
"""Tables of numbered texts (id, value), of which the texts that a kept column names are kept."""
PAIRS = (*META_TABLES, "META_DATA_CAPTURE", "TARGET_INFO_SYSTEM_ENV", RUN, ABOUT)
"""Tables of name and value, of which `facts` keeps the rows that a reader reads."""
OF_SOURCE = (added_tables.EXCERPTS_TABLE, added_tables.SOURCE_LINES)
"""Tables with lines of the program's files."""
