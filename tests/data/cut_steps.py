"""Keep some steps of a recording of one rank: what its CPU launched between two of its calls.

    python tests/data/cut_steps.py RECORDING.sqlite SMALL.sqlite MARK FIRST LAST

MARK is the beginning of the name of a range that the program passes once per step; FIRST and LAST
count these ranges from 0. Work is kept with the call that launched it, and of all other events
those that start meanwhile. What NCCL says at the creation and the end of its communicators stays.
"""

import shutil
import sqlite3
import sys
from pathlib import Path

CALLS = "CUPTI_ACTIVITY_KIND_RUNTIME"
BY_CALL = tuple(
    f"CUPTI_ACTIVITY_KIND_{kind}"
    for kind in (
        *("KERNEL", "MEMCPY", "MEMSET", "SYNCHRONIZATION"),
        "CUDA_EVENT",
    )
)
BY_TIME = (CALLS, "CUDA_GPU_MEMORY_USAGE_EVENTS", "OSRT_API")
RANGES = """
    SELECT n.rowid, n.start, COALESCE(n.text, s.value) AS name
    FROM NVTX_EVENTS n LEFT JOIN StringIds s ON s.id = n.textId
"""


def window(connection: sqlite3.Connection, mark: str, first: int, last: int) -> tuple[int, int]:
    starts = connection.execute(
        f"SELECT start FROM ({RANGES}) WHERE name LIKE ? ORDER BY start", (f"{mark}%",)
    ).fetchall()
    return starts[first][0], starts[last][0]


def cut(connection: sqlite3.Connection, begin: int, end: int) -> None:
    tables = {
        name
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    }
    outside = f"(start < {begin} OR start >= {end})"
    for table in tables.intersection(BY_TIME):
        connection.execute(f'DELETE FROM "{table}" WHERE {outside}')
    for table in tables.intersection(BY_CALL):
        connection.execute(
            f'DELETE FROM "{table}" WHERE correlationId NOT IN (SELECT correlationId FROM {CALLS})'
        )
    connection.execute(
        f"DELETE FROM NVTX_EVENTS WHERE {outside} AND rowid IN "
        f"(SELECT rowid FROM ({RANGES}) WHERE name IS NULL OR name NOT LIKE 'ncclComm%') "
        # Domains are declared by events of this type.
        "AND eventType != 75"
    )


def main() -> None:
    source, target, mark, first, last = sys.argv[1:]
    shutil.copyfile(source, target)
    Path(target).chmod(0o644)
    with sqlite3.connect(target) as connection:
        cut(connection, *window(connection, mark, int(first), int(last)))
    connection.execute("VACUUM")
    connection.close()


if __name__ == "__main__":
    main()
