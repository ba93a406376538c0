"""Metadata of an nsys export: versions, options, errors of its import, tables missing from it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from traceview.base import groups
from traceview.base.errors import TraceFormatError
from traceview.base.records import record
from traceview.base.tables import Table
from traceview.traces.trace import foreign
from traceview.traces.trace.nsys.ranges import NOTED
from traceview.traces.trace.nsys.rows import Export
from traceview.traces.trace.rank_identity import HOST, VARIABLES, RankIdentity, launched_rank
from traceview.traces.trace.sqlite.file import Database

# 2022.4 writes schema 3.0 into EXPORT_META_DATA; from 2023 on the table is META_DATA_EXPORT.
META_TABLES = ("META_DATA_EXPORT", "EXPORT_META_DATA")
OLDEST_SCHEMA, NEWEST_SCHEMA = (3, 0), (3, 30)
DIAGNOSTICS_SINCE = (3, 11)
REEXPORT = "export it again with nsys 2022.4 or newer: nsys export --type sqlite FILE.nsys-rep"
LENGTH = "CAPTURE_LENGTH_NS"
"""Key under which `Trace.capture` has the length of the recording, from ANALYSIS_DETAILS."""
DRIVER = "CUDA_DRIVER_VERSION"
"""Key of the version of CUDA that the driver of the machine knows, such as 13000."""
SYSTEM = "SYSTEM_RELEASE"
"""Key of the release of the machine's system, such as 6.6.87.2-microsoft-standard-WSL2."""
_WSL = re.compile(r"(?i)microsoft|\bWSL")
_READ = "only tables and columns with known names were read"
_ENVIRONMENT_NAME = re.compile(r"(^|[:_])ENV(IRONMENT)?([:_]|$)", re.IGNORECASE)
_ENVIRONMENT_VALUE = re.compile(r"[A-Z_][A-Z0-9_]*=")
_VARIABLE_OF = re.compile(r"PROCESS_(\d+):ENVIRONMENT_VARIABLE")
_SCRUBBED = "(removed)"
_MOST_NAMED = 3
# Of a number that fits into int64.
_LONGEST_DIGITS = 18


@record
class ExportMeta:
    """The metadata tables of an export and TRACEVIEW_RUN, each as name to value."""

    export: Mapping[str, str]
    capture: Mapping[str, str]
    run: Mapping[str, str]

    @property
    def schema(self) -> str | None:
        """The schema version, such as 3.20.3."""
        parts = [self.export.get(f"EXPORT_SCHEMA_VERSION_{p}") for p in ("MAJOR", "MINOR", "MICRO")]
        known = [part for part in parts if part]
        return self.export.get("EXPORT_SCHEMA_VERSION") or ".".join(known) or None

    @property
    def schema_number(self) -> tuple[int, int] | None:
        """Major and minor schema version; None if unknown."""
        match = re.match(r"(\d{1,6})(?:\.(\d{1,6}))?", self.schema or "")
        return (int(match[1]), int(match[2] or 0)) if match else None

    @property
    def recorder_version(self) -> str | None:
        return self.export.get("EXPORT_PRODUCT_VERSION")

    @property
    def lazy(self) -> bool:
        """Whether the exporter leaves out tables without rows, its default."""
        return self.export.get("EXPORT_PARAM_LAZY", "true").lower() != "false"

    def captured(self, event: str) -> bool:
        """Whether this kind of event was traced, such as Cuda or NvtxEvents."""
        return event in self.capture.get("CAPTURE_EVENT_TYPE", "").split(",")


def read_meta(database: Database) -> ExportMeta:
    """Read the metadata of an export.

    Raises TraceFormatError if it is not an nsys export.
    """
    present = [table for table in META_TABLES if table in database.tables]
    if not present and "StringIds" not in database.tables:
        names = sorted(database.tables)
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        listed = f"its tables: {', '.join(names[:_MOST_NAMED])[:200]}{more}"
        raise foreign.of_database(names) or TraceFormatError(
            "it is an SQLite database but not an nsys export "
            f"({listed if names else 'it has no tables'})",
            "pass a file that `nsys export --type sqlite` or `traceview record` wrote",
        )
    export = _pairs(database, present[0]) if present else {}
    return ExportMeta(export, _capture(database), _pairs(database, "TRACEVIEW_RUN"))


def version_warnings(meta: ExportMeta) -> list[str]:
    """A warning if the schema version is unknown, older or newer than the supported ones."""
    number = meta.schema_number
    if number is None:
        return [f"the export has no schema version; {_READ}; if an answer is missing, {REEXPORT}"]
    oldest, newest = (".".join(map(str, version)) for version in (OLDEST_SCHEMA, NEWEST_SCHEMA))
    if number < OLDEST_SCHEMA:
        what = f"the export has schema {meta.schema}, older than the supported {oldest}"
        return [f"{what}; {_READ}; if an answer is missing, {REEXPORT}"]
    if number > NEWEST_SCHEMA:
        return [f"the export has schema {meta.schema}, newer than the supported {newest}; {_READ}"]
    return []


def clock_origin(database: Database) -> dict[str, str]:
    """The wall-clock time, in ns since 1970, at which the clock of the recording began.

    Empty if the export does not contain it, or is of several machines.
    """
    lines = database.lines("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",))
    known = {began for (began,) in lines if isinstance(began, int) and began > 0}
    return {"clock_origin_ns": str(known.pop())} if len(known) == 1 else {}


def rank_of_program(database: Database) -> dict[str, str]:
    """The rank of the program that nsys ran, as rows of TRACEVIEW_RUN; empty if unknown.

    It comes from the environment variables of a launcher, else from the table MPI_RANKS.
    """
    # Launcher variables in the program's environment; empty if nsys ran several programs.
    values, programs = {}, set()
    for name, value in database.lines("META_DATA_CAPTURE", ("name", "value")):
        if program := _VARIABLE_OF.fullmatch(str(name)):
            programs.add(program[1])
            variable, _, text = str(value).partition("=")
            if variable in VARIABLES:
                values[variable] = text.strip('"')
    rank = launched_rank(values if len(programs) == 1 else {})
    if rank is None:
        ranks = [number for (number,) in set(database.lines("MPI_RANKS", ("rank",)))]
        if len(ranks) != 1 or not isinstance(ranks[0], int) or ranks[0] < 0:
            return {}
        rank = RankIdentity(ranks[0])
    host = _pairs(database, "TARGET_INFO_SYSTEM_ENV").get("Hostname", _SCRUBBED)
    return rank.as_run() | ({} if host == _SCRUBBED else {HOST: host})


def _pairs(database: Database, table: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for name, value in database.lines(table, ("name", "value")):
        pairs.setdefault(str(name), "" if value is None else str(value))
    return pairs


def _capture(database: Database) -> dict[str, str]:
    pairs = _pairs(database, "META_DATA_CAPTURE")
    lines = database.lines("META_DATA_CAPTURE", ("name", "value"))
    events = [str(value) for name, value in lines if name == "CAPTURE_EVENT_TYPE"]
    if events:
        pairs["CAPTURE_EVENT_TYPE"] = ",".join(events)
    # Length of the recording, the longest of several machines; None if not in the export.
    lines = database.lines("ANALYSIS_DETAILS", ("duration",))
    known = [length for (length,) in lines if isinstance(length, int) and 0 < length < 1 << 57]
    length_ns = max(known, default=None)
    if length_ns is not None:
        pairs[LENGTH] = str(length_ns)
    machine = _pairs(database, "TARGET_INFO_SYSTEM_ENV")
    of_machine = {DRIVER: "CudaDriverVersion", SYSTEM: "SoftwareReleaseVersion"}
    pairs |= {key: machine[name] for key, name in of_machine.items() if machine.get(name)}
    return {
        name: value
        for name, value in pairs.items()
        if not _ENVIRONMENT_NAME.search(name) and not _ENVIRONMENT_VALUE.match(value)
    }


def length_of(capture: Mapping[str, str]) -> int | None:
    """Length of the recording in ns, from `Trace.capture`; None if unknown."""
    length = capture.get(LENGTH, "")
    return int(length) if length.isdecimal() and len(length) <= _LONGEST_DIGITS else None


# Tables missing from an export: empty because nothing happened, or not recorded.
#
# The exporter leaves out tables without rows. Whether one was recorded is inferred from the
# options of the recorder and from the other tables.

ON_GPU = ("kernels", "copies", "sets", "graph_launches")
_STORED_AS = {
    "kernels": ("CUPTI_ACTIVITY_KIND_KERNEL",),
    "copies": ("CUPTI_ACTIVITY_KIND_MEMCPY",),
    "sets": ("CUPTI_ACTIVITY_KIND_MEMSET",),
    "graph_launches": ("CUPTI_ACTIVITY_KIND_GRAPH_TRACE",),
    "api_calls": ("CUPTI_ACTIVITY_KIND_RUNTIME",),
    "synchronizations": ("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",),
    "ranges": ("NVTX_EVENTS",),
    "call_sites": ("NVTX_EVENTS",),
    "memory_events": ("CUDA_GPU_MEMORY_USAGE_EVENTS",),
    "overheads": ("PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD"),
    "diagnostics": ("DIAGNOSTIC_EVENT",),
}
_KERNEL_LAUNCHES = (
    "cudaLaunchKernel",
    "cuLaunchKernel",
    "cudaLaunchCooperativeKernel",
    "cuLaunchCooperativeKernel",
)
_GRAPH_LAUNCHES = ("cudaGraphLaunch", "cuGraphLaunch")


def call_error(database: Database, present: Mapping[str, Table]) -> dict[str, str]:
    """The first error of calls that keeps kernels from running, where no kernel was recorded."""
    table, column = "CUPTI_ACTIVITY_KIND_RUNTIME", "returnValue"
    has_kernels = "kernels" in present and len(present["kernels"])
    if has_kernels or table not in database.tables:
        return {}
    if column not in database.describe(table).columns:
        return {}
    # Who launches has got memory, later or in smaller pieces.
    codes = [code for code in _CALL_ERRORS if code != 2 or not _kernels_missing(present)]
    failed = database.lines_of(table, (column,), {column: codes})
    return {CALL_ERROR: _CALL_ERRORS[int(str(failed[0][0]))]} if failed else {}


CALL_ERROR, NO_MEMORY = "call_error", "cudaErrorMemoryAllocation"
_CALL_ERRORS = {
    2: NO_MEMORY,
    9: "cudaErrorInvalidConfiguration",
    98: "cudaErrorInvalidDeviceFunction",
    209: "cudaErrorNoKernelImageForDevice",
    222: "cudaErrorUnsupportedPtxVersion",
    701: "cudaErrorLaunchOutOfResources",
}


def empty_tables(export: Export, meta: ExportMeta, present: Mapping[str, Table]) -> list[str]:
    """Names of tables that are missing from `present` because they would be empty."""
    if not meta.lazy:
        return []
    has_tables = any(table.startswith("CUPTI_ACTIVITY_KIND_") for table in export.database.tables)
    nothing = {
        "ranges": meta.captured("NvtxEvents"),
        "call_sites": meta.captured("NvtxEvents") and NOTED in meta.run,
        "memory_events": meta.capture.get("PROCESS_0:COLLECT_GPU_MEMORY_USAGE") == "true",
        "overheads": True,
        "diagnostics": (meta.schema_number or (0, 0)) >= DIAGNOSTICS_SINCE,
        **(_cuda(present) if (has_tables or meta.captured("Cuda")) else {}),
    }
    return [
        name
        for name, empty in nothing.items()
        if empty and name not in present and name not in unread_tables(export)
    ]


def unread_tables(export: Export) -> dict[str, str]:
    """Tables that the export has in a form that cannot be read, mapped to the reason."""
    return {
        name: export.unusable[stored]
        for name, tables in _STORED_AS.items()
        for stored in tables
        if stored in export.unusable
    }


def _cuda(present: Mapping[str, Table]) -> dict[str, bool]:
    has_work = any(len(present[name]) for name in ON_GPU if name in present)
    return {
        **dict.fromkeys(("copies", "sets", "synchronizations", "graph_launches"), True),
        # GPU work without any API call: the calls were not recorded.
        "api_calls": not has_work,
        "kernels": not _kernels_missing(present),
    }


def _kernels_missing(present: Mapping[str, Table]) -> bool:
    """Whether API calls launched kernels that are not in the trace."""
    if "api_calls" not in present:
        return False
    names = present["api_calls"].texts("name")
    used = {names.value(code) for code in groups.different(names.codes).tolist() if code >= 0}
    if any(name.startswith(_KERNEL_LAUNCHES) for name in used):
        return True
    # Graph launches recorded as a whole stand for their kernels.
    whole = "graph_launches" in present and len(present["graph_launches"]) > 0
    return not whole and any(name.startswith(_GRAPH_LAUNCHES) for name in used)


_FAILED = re.compile(r"error when processing events|not all CUDA events might have been", re.I)
INCOMPLETE = re.compile(r"not all (?P<kind>.+) events might have been collected", re.I)
"""Message about a process that ended, or outlived the recording, before it sent all events."""
_PRODUCED = re.compile(r"Number of CUPTI events produced:\s*(\d+)")
_OF_CUPTI = ("kernels", "copies", "sets", "api_calls", "synchronizations", "memory_events")
_LEAST_IMPORTED = 0.8
_REASON = re.compile(r"tag_message\*\] = (.+)")


def import_error(messages: Iterable[str]) -> str | None:
    """The first import error among diagnostic messages, in one line; None without any."""
    failed = [text for text in messages if _FAILED.search(text)]
    if not failed:
        return None
    reasons = [match[1] for text in failed if (match := _REASON.search(text))]
    return (reasons or [text.strip().splitlines()[0] for text in failed])[0].strip()[:200]


_NEWER_DRIVER = re.compile(r"CUDA driver version \(?([\d.]+)\)? is not supported by this build")


def newer_driver(messages: Iterable[str]) -> str | None:
    """The CUDA version of a driver that nsys says it does not know; None if it knows it."""
    return next((match[1] for text in messages if (match := _NEWER_DRIVER.search(text))), None)


_SINCE = {12: 2022, 13: 2025}
"""The year of the first nsys that records programs under a driver of each version of CUDA."""


def outdated_by(capture: Mapping[str, str], recorder_version: str | None) -> str | None:
    """The CUDA version of a driver that is newer than nsys of that version; None if it is not."""
    number, year = capture.get(DRIVER, ""), (recorder_version or "").partition(".")[0]
    if not (number.isdecimal() and len(number) <= _LONGEST_DIGITS and year.isdecimal()):
        return None
    major, minor = int(number) // 1000, int(number) % 1000 // 10
    return f"{major}.{minor}" if int(year) < _SINCE.get(major, 0) else None


def ran_on_wsl(capture: Mapping[str, str]) -> bool:
    """Whether the recording says that it is of the Windows Subsystem for Linux."""
    return bool(_WSL.search(capture.get(SYSTEM, "")))


def imported_events(tables: Mapping[str, Table]) -> tuple[int, int]:
    """Rows in the tables of CUPTI events, and the number of CUPTI events that nsys counted.

    The count is 0 where nsys reports none. It includes CUDA events and contexts, which are not in
    these tables: in recordings imported without an error, the rows are 83 to 100 % of the count.
    """
    messages = tables["diagnostics"].texts("text").decode()
    produced = (match for text in messages if (match := _PRODUCED.search(str(text))))
    rows = sum(len(tables[name]) for name in _OF_CUPTI if name in tables)
    return rows, sum(int(match[1]) for match in produced)


def lacks_events(tables: Mapping[str, Table]) -> bool:
    """Whether an import that reported an error lost CUPTI events, or there is no count to tell.

    nsys also reports errors of single events, such as names that a child process of JAX registered.
    """
    rows, produced = imported_events(tables)
    return rows < _LEAST_IMPORTED * produced or not produced
