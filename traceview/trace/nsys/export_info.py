"""Metadata of an nsys export: versions, recording options, and TRACEVIEW_RUN."""

from __future__ import annotations

import re
from collections.abc import Mapping

from traceview.errors import TraceFormatError
from traceview.records import record
from traceview.trace.rank_identity import HOST, VARIABLES, RankIdentity, launched_rank
from traceview.trace.sqlite.file import Database

# 2022.4 writes schema 3.0 into EXPORT_META_DATA; from 2023 on the table is META_DATA_EXPORT.
META_TABLES = ("META_DATA_EXPORT", "EXPORT_META_DATA")
OLDEST_SCHEMA, NEWEST_SCHEMA = (3, 0), (3, 30)
DIAGNOSTICS_SINCE = (3, 11)
REEXPORT = "export it again with nsys 2022.4 or newer: nsys export --type sqlite FILE.nsys-rep"
LENGTH = "CAPTURE_LENGTH_NS"
"""Key under which `Trace.capture` has the length of the recording, from ANALYSIS_DETAILS."""
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
        raise TraceFormatError(
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
    return {
        name: value
        for name, value in pairs.items()
        if not _ENVIRONMENT_NAME.search(name) and not _ENVIRONMENT_VALUE.match(value)
    }


def length_of(capture: Mapping[str, str]) -> int | None:
    """Length of the recording in ns, from `Trace.capture`; None if unknown."""
    length = capture.get(LENGTH, "")
    return int(length) if length.isdecimal() and len(length) <= _LONGEST_DIGITS else None
