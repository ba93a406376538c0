"""Record the workloads whose findings the tests check, and the gallery. Needs a GPU and nsys.

    python scripts/record_workloads.py OUT_FOLDER
    python scripts/record_workloads.py OUT_FOLDER --only gelu softmax
    python scripts/record_workloads.py OUT_FOLDER --gpus 0 1      # two at a time

For each recording OUT_FOLDER gets NAME.sqlite.xz, shrunk by tests/data/shrink.py, and NAME.log with
the output of the run. If one fails, the rest are still recorded and the exit status is 1. Move the
recordings to the paths that scripts/gallery/recording.py gives them: tests/recordings and
scripts/build_gallery.py read them there.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from gallery.recording import GALLERY, WORKLOADS, Recording

TIMEOUT_S = 120
RECORDINGS = (*GALLERY, *WORKLOADS)


def record(recording: Recording, folder: Path, gpu: str | None) -> str:
    """Record one program into a folder. Returns the size of the file and the time it took."""
    start = time.monotonic()
    small = folder / f"{recording.name}.sqlite.xz"
    env = os.environ | ({} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu})
    with (folder / f"{recording.name}.log").open("w", encoding="utf-8") as log:
        run = partial(subprocess.run, stdout=log, stderr=log, timeout=TIMEOUT_S, env=env)
        recording.record(small, run)
    return f"{small.stat().st_size / 1000:.0f} kB, {time.monotonic() - start:.0f} s"


def record_all(left: Iterator[Recording], folder: Path, gpu: str | None) -> int:
    """Record what is left, one after the other. Returns how many failed."""
    failed = 0
    for recording in left:
        try:
            print(f"{recording.name}: {record(recording, folder, gpu)}", flush=True)
        except (subprocess.SubprocessError, OSError) as error:
            failed += 1
            print(f"{recording.name}: FAILED, {error}; see {recording.name}.log", flush=True)
    return failed


def main() -> None:
    parser = argparse.ArgumentParser(description="Record the workloads and the gallery.")
    parser.add_argument("folder", type=Path)
    names = [recording.name for recording in RECORDINGS]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--gpus", nargs="+", default=[None], help="one recording at a time on each")
    args = parser.parse_args()
    folder = args.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    # One iterator for all GPUs: a tuple's may be read by several threads.
    left = iter(tuple(each for each in RECORDINGS if each.name in args.only))
    with ThreadPoolExecutor(len(args.gpus)) as pool:
        failed = sum(pool.map(lambda gpu: record_all(left, folder, gpu), args.gpus))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
