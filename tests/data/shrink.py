"""Make a recording small enough to ship: what no answer needs goes, and so does the machine.

    python tests/data/shrink.py RECORDING.sqlite SMALL.sqlite.xz

Left out are samples of native code, page faults, scheduling and short operating-system calls, call
chains of calls that do not block, the text of names, the processes and the threads that nothing
refers to, and what describes the machine beyond its GPU and driver; of sampled metrics, those of
device memory around kernels stay, and of frames of importlib in Python samples, the innermost of
each run. Kernels, copies, calls, waits, ranges and other Python frames are untouched.
"""

import lzma
import re
import shutil
import sqlite3
import sys
import tempfile
from pathlib import Path

UNUSED = re.compile(
    r"OSRT_CALLCHAINS|CUDA_UM_|SAMPLING_CALLCHAINS|SCHED_EVENTS|COMPOSITE|ANALYSIS_FILE|ProcessStreams"
)
REFERS_TO_STRINGS = {
    "nameId",
    "demangledName",
    "shortName",
    "mangledName",
    "textId",
    "jsonTextId",
    "symbol",
    "module",
}
DESCRIBES_THE_DRIVER = ("NvDriverVersion", "CudaDriverVersion", "OsDescription", "CpuDescription")
PATHS = (("META_DATA_CAPTURE", "value"), ("META_DATA_EXPORT", "value"), ("PROCESSES", "name"))
WITH_FILES = re.compile(r"TRACEVIEW_(PYTHON_(FRAMES|EVENTS)|SOURCE_\w+)$")
REPOSITORY = re.escape(f"{Path(__file__).resolve().parents[2]}/")
OF_A_USER = re.compile(rf"^{REPOSITORY}|^/tmp/torchinductor_[^/]*|^/tmp(?=/site-packages/)")
FOLDERS = re.compile(r"(?<!\S)/\S*/")
BACKTRACE_CLASS = 67
AROUND_NS = 1_000_000
LONG_OS_CALL_NS = 200_000
IN_PYTHON_SAMPLES = re.compile(r'"(?:Function|File)":(\d+)')
BLOCKS = "s.value LIKE '%Synchronize%' OR s.value LIKE '%Memcpy%'"


def shared_part(of: re.Match[str]) -> str:
    return "/torchinductor_user" if of[0].startswith("/tmp/torchinductor_") else ""


def columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]


def tables(connection: sqlite3.Connection) -> list[str]:
    query = "SELECT name FROM sqlite_master WHERE type = 'table'"
    return [name for (name,) in connection.execute(query)]


def drop_unused_tables(connection: sqlite3.Connection) -> None:
    for table in filter(UNUSED.match, tables(connection)):
        connection.execute(f'DROP TABLE "{table}"')


def drop_call_chains_of_calls_that_do_not_block(connection: sqlite3.Connection) -> None:
    if "CUDA_CALLCHAINS" not in tables(connection):
        return
    # A call chain hangs on a row of its own, which repeats the call.
    connection.execute(
        f"DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE eventClass = {BACKTRACE_CLASS} "
        f"AND nameId NOT IN (SELECT id FROM StringIds s WHERE {BLOCKS})"
    )
    used = "SELECT callchainId FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE callchainId IS NOT NULL"
    connection.execute(f"DELETE FROM CUDA_CALLCHAINS WHERE id NOT IN ({used})")


def drop_short_os_calls(connection: sqlite3.Connection) -> None:
    if "OSRT_API" in tables(connection):
        connection.execute(f'DELETE FROM OSRT_API WHERE "end" - start < {LONG_OS_CALL_NS}')


def drop_samples_far_from_kernels(connection: sqlite3.Connection) -> None:
    if "GPU_METRICS" not in tables(connection):
        return
    kept = "SELECT metricId FROM TARGET_INFO_GPU_METRICS WHERE metricName LIKE 'DRAM%'"
    near = (
        "SELECT 1 FROM CUPTI_ACTIVITY_KIND_KERNEL k WHERE "
        f"k.start - {AROUND_NS} < timestamp AND timestamp < k.end + {AROUND_NS}"
    )
    connection.execute(
        f"DELETE FROM GPU_METRICS WHERE metricId NOT IN ({kept}) OR NOT EXISTS ({near})"
    )


def drop_frames_of_importlib_within_others(connection: sqlite3.Connection) -> None:
    # Three of four frames of a start-up are importlib's; that there is one says all that is read.
    if "TRACEVIEW_PYTHON_FRAMES" in tables(connection):
        imports = "file LIKE '<frozen importlib%'"
        connection.execute(
            f"CREATE TEMP TABLE imports AS SELECT stack, depth FROM TRACEVIEW_PYTHON_FRAMES "
            f"WHERE {imports}"
        )
        connection.execute(
            f"DELETE FROM TRACEVIEW_PYTHON_FRAMES WHERE {imports} "
            "AND (stack, depth - 1) IN (SELECT stack, depth FROM imports)"
        )


def drop_other_processes(connection: sqlite3.Connection) -> None:
    here = set(tables(connection))
    used = " UNION ".join(
        f"SELECT DISTINCT globalTid / 16777216 FROM {table} WHERE globalTid IS NOT NULL"
        for table in ("CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS")
        if table in here
    )
    connection.execute(f"DELETE FROM PROCESSES WHERE globalPid / 16777216 NOT IN ({used})")
    connection.execute(f"DELETE FROM ThreadNames WHERE globalTid / 16777216 NOT IN ({used})")


def drop_the_machine(connection: sqlite3.Connection) -> None:
    keep = ", ".join(f"'{name}'" for name in DESCRIBES_THE_DRIVER)
    connection.execute(f"DELETE FROM TARGET_INFO_SYSTEM_ENV WHERE name NOT IN ({keep})")
    # A script is known by its name; the folder it lay in says something of the machine.
    connection.create_function("last_part", 1, lambda path: path and Path(path).name)
    if "DIAGNOSTIC_EVENT" in tables(connection):
        connection.execute(
            "UPDATE DIAGNOSTIC_EVENT SET text = 'Process was launched by the profiler' "
            "WHERE text LIKE 'Process was launched by the profiler%'"
        )
    # Libraries in call chains, too; and of the run, not the kernel of the machine.
    connection.execute("UPDATE StringIds SET value = last_part(value) WHERE value LIKE '/%.so%'")
    connection.create_function("last_parts", 1, lambda text: FOLDERS.sub("", text))
    if "DIAGNOSTIC_EVENT" in tables(connection):
        connection.execute("UPDATE DIAGNOSTIC_EVENT SET text = last_parts(text)")
    if "TRACEVIEW_RUN" in tables(connection):
        connection.execute("DELETE FROM TRACEVIEW_RUN WHERE name = 'host_os'")
        connection.execute(
            "UPDATE TRACEVIEW_RUN SET value = last_parts(value) WHERE name = 'nsys_command'"
        )
    # Files of the repository are told from its folder on. Code that Inductor generates lies in a
    # folder with the name of the user.
    connection.create_function("shared", 1, lambda path: OF_A_USER.sub(shared_part, path))
    for table in filter(WITH_FILES.match, tables(connection)):
        connection.execute(f"UPDATE {table} SET file = shared(file) WHERE file LIKE '/%'")
    if "TRACEVIEW_KERNELS" in tables(connection):
        connection.execute(
            "UPDATE TRACEVIEW_KERNELS SET source_file = last_part(source_file) "
            "WHERE source_file LIKE '/%'"
        )
    for table, column in PATHS:
        connection.execute(
            f"UPDATE {table} SET {column} = last_part({column}) WHERE {column} LIKE '%/%'"
        )


def blank_unused_names(connection: sqlite3.Connection) -> None:
    used = " UNION ".join(
        f'SELECT "{column}" FROM "{table}" WHERE "{column}" IS NOT NULL'
        for table in tables(connection)
        for column in columns(connection, table)
        if column in REFERS_TO_STRINGS
    )
    # Emptied, not deleted: in a real export the ids follow each other without a gap.
    connection.execute("CREATE TEMP TABLE sampled (id INTEGER PRIMARY KEY)")
    connection.executemany("INSERT INTO sampled VALUES (?)", [(i,) for i in sampled(connection)])
    connection.execute(
        f"UPDATE StringIds SET value = '' WHERE id NOT IN ({used} UNION SELECT id FROM sampled)"
    )


def sampled(connection: sqlite3.Connection) -> set[int]:
    """The ids of the names of functions and files in Python stack samples."""
    if "jsonText" not in columns(connection, "NVTX_EVENTS"):
        return set()
    rows = connection.execute("SELECT DISTINCT jsonText FROM NVTX_EVENTS WHERE eventType = 34")
    return {int(each) for (text,) in rows if text for each in IN_PYTHON_SAMPLES.findall(text)}


def shrink(source: Path, target: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy.sqlite"
        shutil.copy(source, copy)
        connection = sqlite3.connect(copy)
        for step in (
            drop_unused_tables,
            drop_call_chains_of_calls_that_do_not_block,
            drop_short_os_calls,
            drop_samples_far_from_kernels,
            drop_frames_of_importlib_within_others,
            drop_other_processes,
            drop_the_machine,
            blank_unused_names,
        ):
            step(connection)
        connection.commit()
        connection.execute("VACUUM")
        connection.close()
        target.write_bytes(lzma.compress(copy.read_bytes(), preset=9 | lzma.PRESET_EXTREME))


if __name__ == "__main__":
    shrink(Path(sys.argv[1]), Path(sys.argv[2]))
