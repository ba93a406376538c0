"""Record the workloads whose findings the tests hold against real recordings; needs a GPU and nsys.

    python reports/record_all.py OUT_FOLDER
    python reports/record_all.py OUT_FOLDER --only gelu softmax

Of each, OUT_FOLDER gets NAME.sqlite.xz, made small by tests/data/shrink.py, and NAME.log, what was
said meanwhile. Those that fail are told, and the others are recorded all the same; the exit status
is then 1. Put the recordings into tests/data/workloads: tests/recordings reads them
there.
"""

import argparse
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

REPOSITORY = Path(__file__).resolve().parent.parent
SECONDS = 120
UNIFIED = ("cuda-um-cpu-page-faults", "cuda-um-gpu-page-faults")


@dataclass(frozen=True)
class Recording:
    """One run of a workload: its words, and options of `traceview record`."""

    name: str
    arguments: tuple[str, ...] = ()
    options: tuple[str, ...] = ("--no-kernels",)

    @property
    def script(self) -> str:
        return f"workloads/{self.name}.py"


RECORDINGS = (
    Recording("sleep", ("--steps", "6")),
    Recording("add", ("--steps", "4")),
    Recording("matmul", ("--steps", "3")),
    Recording("cdist", ("--steps", "3")),
    # The code of its kernels is kept, for their load widths.
    Recording("gelu", ("--steps", "3"), options=()),
    Recording("softmax", ("--steps", "3")),
    Recording("mlp_sweep", ("--steps", "2")),
    Recording("coalescing", ("--steps", "3")),
    Recording("divergence", ("--steps", "3")),
    Recording("fusion", ("--steps", "3")),
    Recording("low_precision", ("--steps", "4")),
    Recording("recomputation", ("--steps", "2")),
    Recording("attention", ("--steps", "2")),
    Recording("transformer", ("--steps", "3")),
    Recording("data_loader", ("--steps", "6")),
    Recording(
        "unified_memory",
        ("--steps", "2", "--megabytes", "16"),
        ("--no-kernels", *(f"--nsys-option=--{name}=true" for name in UNIFIED)),
    ),
)


def run(command: list[str], log: Path) -> None:
    """Run it in the repository and keep what it says. Raises SubprocessError if it fails."""
    with log.open("a") as said:
        subprocess.run(
            command, check=True, cwd=REPOSITORY, stdout=said, stderr=said, timeout=SECONDS
        )


def record(one: Recording, folder: Path) -> str:
    """Record one workload, and say how large it is and how long it took."""
    start = time.monotonic()
    log, small = folder / f"{one.name}.log", folder / f"{one.name}.sqlite.xz"
    log.unlink(missing_ok=True)
    with TemporaryDirectory() as scratch:
        whole = str(Path(scratch, f"{one.name}.sqlite"))
        # Call chains are what no finding here needs, and most of what nsys would write.
        said = ("--backtrace", "none", *one.options, "-o", whole)
        traceview = [sys.executable, "-m", "traceview", "record"]
        run([*traceview, *said, one.script, *one.arguments], log)
        run([sys.executable, "tests/data/shrink.py", whole, str(small)], log)
    return f"{small.stat().st_size / 1000:.0f} kB, {time.monotonic() - start:.0f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description="Record the workloads.")
    parser.add_argument("folder", type=Path)
    names = [one.name for one in RECORDINGS]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME")
    given = parser.parse_args()
    folder = given.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    for one in RECORDINGS:
        if one.name not in given.only:
            continue
        try:
            print(f"{one.name}: {record(one, folder)}", flush=True)
        except (subprocess.SubprocessError, OSError) as error:
            failed += 1
            print(f"{one.name}: FAILED, {error}; see {one.name}.log", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
