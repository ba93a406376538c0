"""Stand-ins for nsys, as shell scripts, and a place to run the real one in."""

import os
import sys
from pathlib import Path

from tests.headless.forked_python import run_script
from traceview.traces.recorders.nsys import ATTEMPTS

OPTIONS = (
    "trace",
    "cuda-memory-usage",
    "cuda-graph-trace",
    "cudabacktrace",
    "sample",
    "backtrace",
    "cpuctxsw",
    "gpu-metrics-device",
)
SHORT = {"sample": "-s, ", "trace": "-t, "}
HELP = "".join(f"\t{SHORT.get(name, '')}--{name}=\n\n\t   Text.\n\n" for name in OPTIONS)
PERIOD = "\t--sampling-period=\n\n\t   Possible values are integers between 16000000 and 125000.\n"
VERSION = "NVIDIA Nsight Systems version 2025.3.1.0"


SMI = """
case "$1" in
--query-gpu=index*) echo '0, GPU-aa, 1980, 3201, 700.00, 174.32, 41, 0x0000000000000000' ;;
--query-compute-apps=gpu_uuid,used_memory) echo 'GPU-aa, 512' ;;
*) echo 'NVIDIA H200, 580.159.04' ;;
esac"""
"""An nvidia-smi of one GPU, on which another process runs."""


def script(path: Path, body: str) -> Path:
    """Write an executable shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def nsys(
    path: Path,
    *,
    version: str = VERSION,
    profile: str = "exit 0",
    export: str = "exit 0",
    status: str = "CPU Profiling Environment (process-tree): OK",
    options: str = HELP + PERIOD,
) -> Path:
    """An nsys that answers for its version and options; `profile` and `export` are shell code."""
    listed = path.with_name("options.txt")
    listed.parent.mkdir(parents=True, exist_ok=True)
    listed.write_text(options)
    return script(
        path,
        f"""case "$1 $2" in
"--version "*) echo "{version}" ;;
"profile --help") cat "{listed}" ;;
"status "*) echo "{status}" ;;
"profile "*)
    for word in "$@"; do case "$word" in --output=*) out="${{word#--output=}}" ;; esac; done
    {profile} ;;
"export --help") ;;
"export "*)
    for word in "$@"; do case "$word" in --output=*) out="${{word#--output=}}" ;; esac; done
    {export} ;;
esac""",
    )


def traceview(*arguments, cwd, environment=None, given=""):
    """Run the command line as a user does."""
    command = [sys.executable, "-m", "traceview", *map(str, arguments)]
    told = os.environ if environment is None else environment
    return run_script(command, told, folder=cwd, given=given)


def recording(*arguments, **options):
    """A recording that nsys may lose before the program starts and that only a test may repeat.

    traceview runs no program twice that may have run; those of the tests may.
    """
    for _ in range(ATTEMPTS):
        done = traceview(*arguments, **options)
        if "nsys left no recording" not in done.stderr:
            break
    return done


def warnings(said: str) -> list[str]:
    """The warnings, but for those of failures of nsys that are tried again."""
    lines = [line for line in said.splitlines() if "warning: " in line]
    return [line for line in lines if not line.endswith("; retrying")]


def leftovers(folder: Path) -> list[str]:
    """What a recording has left behind besides its output."""
    return [path.name for path in folder.iterdir() if path.name.startswith(".traceview")]
