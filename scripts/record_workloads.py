"""Record the workloads whose findings the tests check. Needs a GPU and nsys.

    python scripts/record_workloads.py OUT_FOLDER
    python scripts/record_workloads.py OUT_FOLDER --only gelu softmax

For each workload OUT_FOLDER gets NAME.sqlite.xz, shrunk by tests/data/shrink.py, and NAME.log with
the output of the run. If one fails, the rest are still recorded and the exit status is 1. Move the
recordings to tests/data/workloads, where tests/recordings reads them.
"""

import argparse
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from gallery.recording import WORKLOADS, Recording

TIMEOUT_S = 120


def record(recording: Recording, folder: Path) -> str:
    """Record one workload into a folder. Returns the size of the file and the time it took."""
    start = time.monotonic()
    small = folder / f"{recording.name}.sqlite.xz"
    with (folder / f"{recording.name}.log").open("w", encoding="utf-8") as log:
        recording.record(small, partial(subprocess.run, stdout=log, stderr=log, timeout=TIMEOUT_S))
    return f"{small.stat().st_size / 1000:.0f} kB, {time.monotonic() - start:.0f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description="Record the workloads that the tests check.")
    parser.add_argument("folder", type=Path)
    names = [recording.name for recording in WORKLOADS]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME")
    args = parser.parse_args()
    folder = args.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    for recording in WORKLOADS:
        if recording.name not in args.only:
            continue
        try:
            print(f"{recording.name}: {record(recording, folder)}", flush=True)
        except (subprocess.SubprocessError, OSError) as error:
            failed += 1
            print(f"{recording.name}: FAILED, {error}; see {recording.name}.log", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
