"""The facts that a scrubbed trace keeps, each by its form, and exports without an environment."""

from __future__ import annotations

import json
import re
import shlex
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

from traceview.base.errors import TraceFormatError
from traceview.traces.trace.nsys.export_info import META_TABLES
from traceview.traces.trace.rank_identity import HOST, NUMBERING, VARIABLES, pseudonym
from traceview.traces.trace.scrub.kept import TextKind, is_public
from traceview.traces.trace.scrub.secrets import REMOVED as REMOVED_BYTES
from traceview.traces.trace.scrub.secrets import is_environment
from traceview.traces.trace.scrub.texts import REMOVED, TextRules, message
from traceview.traces.trace.stored import ABOUT, RUN

Rule = Callable[[str, TextRules], str | None]


def _form(pattern: str) -> Rule:
    """Keep values of this form."""
    compiled = re.compile(pattern)
    return lambda value, _: value if compiled.fullmatch(value) else None


def _public(value: str, _: TextRules) -> str | None:
    return value if is_public(value) else None


# Versions of nsys have four parts, as addresses do, but begin with a year.
_NSYS = r"20\d\d(?:\.\d{1,4}){0,3}(?:-\d{1,15}v\d{1,3})?"
_VERSION = _form(
    rf"{_NSYS}|\d{{1,4}}(?:\.\d{{1,4}}){{0,2}}(?:[ab]\d+|rc\d+|\.post\d+|\.dev\d+)?"
    r"(?:\+(?:cu|rocm|xpu|cpu|git)[0-9a-f.]{0,40})?"
)
_FIGURES = _form(
    r"(?:0x[0-9a-f]{16}|-?\d{1,6}(?:\.\d{1,3})?)(?:, ?(?:0x[0-9a-f]{16}|\d{1,6}(?:\.\d{1,3})?))*|"
)
_COUNT = _form(r"-?\d{1,6}")
_TIME = _form(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(?:\+\d\d:\d\d|Z)?")
_SYSTEM = re.compile(r"([A-Z][A-Za-z]+ \d+(?:\.\d+){1,2})\S*((?: (?:x86_64|aarch64|arm64))?)")


def _system(value: str, _: TextRules) -> str | None:
    """Name and version of the operating system, without the name of its build."""
    match = _SYSTEM.match(value)
    return match[1] + match[2] if match and is_public(match[1].partition(" ")[0]) else None


# The options that analyses look for; see recording_options.
_OPTION = re.compile(
    r"nsys|profile|--(?:trace|cuda-memory-usage|cuda-graph-trace|cudabacktrace|sample|backtrace"
    r"|cpuctxsw|cuda-flush-interval|python-sampling|python-backtrace|pytorch|gpu-metrics-(?:devices?|set|frequency)"
    r"|cuda-um-[cg]pu-page-faults|capture-range(?:-end)?)=[a-z0-9,:.-]{1,60}"
)


def _recorder_command(value: str, texts: TextRules) -> str | None:
    if texts.own:
        return texts.command(value)
    try:
        words = shlex.split(value)
    except ValueError:
        return None
    options = (word.partition("=")[2] for word in words)
    kept = [w for w, o in zip(words, options, strict=True) if _OPTION.fullmatch(w) and is_public(o)]
    return shlex.join(kept)


_OF_RUN: Mapping[str, Rule] = {
    **dict.fromkeys(("driver", "cuda", "python", "torch", "triton", "jax", "numpy"), _VERSION),
    **dict.fromkeys(("nvtx", "traceview_version", "nsys_version"), _VERSION),
    **dict.fromkeys(("rank", "world_size", "local_rank", "local_world_size"), _COUNT),
    **dict.fromkeys(("cpu_count", "exit_status", "record_shapes", "profile_memory"), _COUNT),
    **dict.fromkeys(("with_stack", "with_flops", "with_modules"), _COUNT),
    **dict.fromkeys(("backend", "gpu", "gpu_vendor", "launcher", "sync_sites"), _public),
    "clock_origin_ns": _form(r"0|\d{16,19}"),
    "started_utc": _TIME,
    "git_commit": _form(r"[0-9a-f]{40}"),
    **dict.fromkeys(("git_dirty", "truncated"), _form("yes|no")),
    "host_os": _system,
    "steps": _form(r"\d{1,6}:\d{1,6}"),
    **dict.fromkeys(("first_s", "unrecorded_step_ns", "unrecorded_steps"), _form(r"\d{1,15}")),
    "range": lambda value, texts: texts.of(TextKind.RANGE, value),
    "nsys_command": _recorder_command,
    "command_line": lambda value, texts: texts.command(value),
    HOST: lambda value, _: pseudonym(value),
}
_GPU_STATE = re.compile(
    r"(?:clock_reasons|memory_clock_mhz|sm_clock_mhz|other_processes(?:_mib)?|power_limit_w|power_w"
    r"|temperature_c)_(?:before|after)"
)
_OF_EXPORT: Mapping[str, Rule] = {
    "EXPORT_SCHEMA_VERSION": _form(r"\d{1,3}(?:\.\d{1,3}){0,2}"),
    **{f"EXPORT_SCHEMA_VERSION_{part}": _COUNT for part in ("MAJOR", "MINOR", "MICRO")},
    "EXPORT_PRODUCT_VERSION": _form(_NSYS),
    "EXPORT_PARAM_LAZY": _form("true|false"),
}
_SWITCH = re.compile(
    r"PROCESS_\d{1,3}:COLLECT_GPU_MEMORY_USAGE|PYTHON_BACKTRACE_SAMPLING_OPTIONS:COLLECT_SAMPLES"
    r"|PROCESS_\d{1,3}:CUDA_BACKTRACE_OPTIONS:COLLECT_"
    r"(?:SYNCHRONOIZATION|SYNCHRONIZATION|KERNEL|MEMORY|OTHER|PYTHON)_BACKTRACES"
)
_VARIABLE = re.compile(r"PROCESS_\d{1,3}:ENVIRONMENT_VARIABLE")
_OF_LAUNCHER = re.compile(r'(\w+)=("?)(.*?)\2', re.DOTALL)
_ON_OR_OFF = _form("true|false")


def public_variable(value: str) -> str:
    """A launcher's variable, of which only ranks and sizes keep their value; else nothing."""
    match = _OF_LAUNCHER.fullmatch(value)
    if not match or match[1] not in VARIABLES:
        return REMOVED
    number = match[1] in NUMBERING and re.fullmatch(r"\d{1,7}", match[3])
    return value if number else f"{match[1]}={REMOVED}"


def _of_capture(name: str, value: str, texts: TextRules) -> str | None:
    if _VARIABLE.fullmatch(name):
        return public_variable(value)
    if name == "CAPTURE_EVENT_TYPE":
        return _public(value, texts)
    if name == "CAPTURE_LENGTH_NS":
        return value if value.isdecimal() else None
    return _ON_OR_OFF(value, texts) if _SWITCH.fullmatch(name) else None


def public_fact(table: str, name: str, value: str, texts: TextRules) -> str | None:
    """What is left of a value in a table of facts; None if its row is not kept."""
    if table == RUN:
        rule = _FIGURES if _GPU_STATE.fullmatch(name) else _OF_RUN.get(name)
        return rule(value, texts) if rule else None
    if table == ABOUT:
        return _of_about(name, value, texts)
    if table in META_TABLES:
        rule = _OF_EXPORT.get(name)
        return rule(value, texts) if rule else None
    if table == "META_DATA_CAPTURE":
        return _of_capture(name, value, texts)
    hidden = value in ("", REMOVED)
    return pseudonym(value) if name == "Hostname" and not hidden else None


def _of_about(name: str, value: str, texts: TextRules) -> str | None:
    plain = {"format": _COUNT, "recorder": _public}
    plain |= dict.fromkeys(("recorder_version", "export_schema_version"), _VERSION)
    if rule := plain.get(name):
        return rule(value, texts)
    try:
        whole = json.loads(value)
    except (ValueError, RecursionError):
        return None
    if name == "warnings" and isinstance(whole, list):
        return json.dumps([message(str(entry)) for entry in whole])
    if name != "capture" or not isinstance(whole, dict):
        return None
    kept = {key: _of_capture(key, str(entry), texts) for key, entry in whole.items()}
    return json.dumps({key: entry for key, entry in kept.items() if entry is not None})


_NAMED = (("META_DATA_CAPTURE", "%ENVIRONMENT%"), ("TARGET_INFO_SYSTEM_ENV", "%Environment%"))


def remove_environment(export: Path) -> None:
    """Remove environment variables from an export of nsys, in place; the ranks in them stay.

    Raises TraceFormatError if SQLite cannot change the file.
    """
    try:
        with closing(sqlite3.connect(export)) as connection, connection:
            connection.text_factory = bytes
            # Freed bytes are overwritten, and no journal keeps them.
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("PRAGMA journal_mode = MEMORY")
            for table, names in _NAMED:
                if _has(connection, table):
                    chosen = f"SELECT rowid, value FROM {table} WHERE name LIKE ?"  # noqa: S608
                    rows = connection.execute(chosen, (names,)).fetchall()
                    texts = ((row, value.decode(errors="replace")) for row, value in rows if value)
                    update = f"UPDATE {table} SET value = ? WHERE rowid = ?"  # noqa: S608
                    connection.executemany(
                        update, [(public_variable(text), row) for row, text in texts]
                    )
            _remove_blocks(connection)
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB:
            # Whoever reads the file says so.
            return
        what = f"SQLite cannot read the export of nsys ({error})"
        raise TraceFormatError(what, "export the recording again") from error


def _has(connection: sqlite3.Connection, table: str) -> bool:
    return bool(
        connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    )


def _remove_blocks(connection: sqlite3.Connection) -> None:
    """Remove the texts that are whole environments: variables that end with NUL."""
    if _has(connection, "StringIds"):
        chosen = "SELECT id, value FROM StringIds WHERE instr(CAST(value AS BLOB), x'00') > 0"
        blocks = [row for row, value in connection.execute(chosen) if is_environment(value)]
        update = "UPDATE StringIds SET value = ? WHERE id = ?"
        connection.executemany(update, [(REMOVED_BYTES.decode(), row) for row in blocks])
