"""Time the whole report and other tools on traces of several lengths, after checking all results.

    python benchmarks/report.py [--kernels 1000 100000 1000000 10000000]
        [--shapes dense dynamic …] [--shape-kernels 1000000] [--runs 5]
        [--nsys PATH] [--nsys-ai PATH] [--folder .cache/benchmark]
        [--json RESULTS.json [--resume]] [--picture docs/performance.svg]

Prints Markdown. Every run is a process of its own, from start to exit, with the file in the page
cache. The tools take turns, so that other load on the machine affects all of them. CPU is user and
system time of the process and its children. First each tool's time and count per kernel are
compared with those of SQLite: a tool that is wrong, or that skips part of the work, ends the
benchmark.

nsys stats runs the reports that answer the same questions, nsys-ai its cache and then its skills. A
tool that is not installed is skipped, as is one that would take more than --patience seconds by its
time on a shorter trace. --shapes are those of trace_shapes.py; all but the plain one by default.
--resume keeps the traces that an interrupted run has already written to --json.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

from results import markdown, rows_of
from surroundings import machine
from tools import OURS, Way, WrongError, prepare, true_sums, ways
from trace_shapes import SHAPES

HERE = Path(__file__).parent
START_UP_KERNELS = 100_000
MIB = 1024  # ru_maxrss counts KiB on Linux
# A pass at the speed of C, without the start of the interpreter.
NUMPY_PASS = (
    "import sys, time, numpy; begun = time.perf_counter(); "
    "n = numpy.memmap(sys.argv[1], numpy.uint8); n[: len(n) & ~7].view(numpy.uint64).sum(); "
    "print(time.perf_counter() - begun)"
)


@dataclass(frozen=True)
class Timed:
    wall_s: float
    cpu_s: float
    peak_mib: float


def run(command: Sequence[str], keep: bool = False) -> tuple[Timed, str]:
    """Time a command, which prints into a pipe; what it printed, if it is to be kept.

    This process stays small: Linux counts what it holds as the peak of its children.
    """
    begun, kept = time.perf_counter(), []
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    with process.stdout as printed:
        while block := printed.read(1 << 20):
            kept += [block] if keep else []
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - begun
    if process.returncode:
        raise WrongError(f"{' '.join(command)} ended with {process.returncode}")
    timed = Timed(wall, used.ru_utime + used.ru_stime, used.ru_maxrss / MIB)
    return timed, b"".join(kept).decode(errors="replace")


def measure(trace: Path, way: Way) -> Timed:
    prepare(trace, way)
    done = [run(command)[0] for command in way.commands]
    wall, cpu = (sum(getattr(each, name) for each in done) for name in ("wall_s", "cpu_s"))
    return Timed(wall, cpu, max(each.peak_mib for each in done))


def check(trace: Path, way: Way, expected: Any) -> str:
    """Raise WrongError if a tool's sums differ from those of SQLite."""
    if way.sums is None:
        return "not compared"
    prepare(trace, way)
    found = way.sums([run(command, keep=True)[1] for command in way.commands])
    if found != expected:
        odd = sorted(name for name in {*found, *expected} if found.get(name) != expected.get(name))
        raise WrongError(f"{way.name} is wrong about {len(odd)} kernels, such as {odd[0]}")
    return f"{len(found)} equal"


def checked(trace: Path, way: Way) -> str:
    return check(trace, way, true_sums(trace) if way.sums else {})


def made(folder: Path, kernels: int, shape: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{kernels}-{shape}.sqlite"
    if not path.exists():
        command = [sys.executable, HERE / "make_trace.py", path, "--kernels", str(kernels)]
        subprocess.run([*command, "--shape", shape], check=True, stdout=subprocess.DEVNULL)
    return path


def compared(trace: Path, chosen: Sequence[Way], runs: int) -> Iterator[dict[str, Any]]:
    """One line per tool, after all runs of all tools."""
    with ProcessPoolExecutor(1) as apart:
        checks = [*apart.map(checked, repeat(trace), chosen)]
    turns = [{way.name: measure(trace, way) for way in chosen} for _ in range(runs)]
    for way, said in zip(chosen, checks, strict=True):
        mine = [asdict(turn[way.name]) for turn in turns]
        figures = {name: [each[name] for each in mine] for name in mine[0]}
        yield {"tool": way.name, **figures, "sums": said}


def bytes_alone(trace: Path, runs: int) -> dict[str, Any]:
    """Seconds to only read the file: cat, and one sum over all of it."""
    cat = [run(("sh", "-c", 'cat "$0" > /dev/null', str(trace)))[0].wall_s for _ in range(runs)]
    one_pass = (sys.executable, "-c", NUMPY_PASS, str(trace))
    added = [float(run(one_pass, keep=True)[1]) for _ in range(runs)]
    return {"file_bytes": trace.stat().st_size, "cat_s": cat, "numpy_s": added}


def benchmark(given: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {"machine": machine(given.nsys, given.nsys_ai), "runs": given.runs}
    helped = (sys.executable, "-m", "traceview", "--help")
    found["help_s"] = [run(helped)[0].wall_s for _ in range(given.runs)]
    wanted = [(kernels, "plain") for kernels in given.kernels]
    wanted += [(given.shape_kernels, shape) for shape in given.shapes]
    found["traces"] = _measured_before(given)
    there = {(trace["kernels"], trace["shape"]) for trace in found["traces"]}
    for kernels, shape in [each for each in wanted if each not in there]:
        trace = made(given.folder, kernels, shape)
        every = ways(trace, given.nsys, given.nsys_ai)
        chosen = [way for way in every if _bearable(found["traces"], way, kernels, given.patience)]
        tools = list(compared(trace, chosen, given.runs))
        facts = {"kernels": kernels, "shape": shape, **bytes_alone(trace, given.runs)}
        found["traces"].append({**facts, "tools": tools})
        print(*rows_of(found["traces"][-1]), sep="\n", file=sys.stderr, flush=True)
        if given.json:
            given.json.write_text(json.dumps(found, indent=1) + "\n")
    return found


def _measured_before(given: argparse.Namespace) -> list[dict[str, Any]]:
    if not (given.resume and given.json and given.json.exists()):
        return []
    traces: list[dict[str, Any]] = json.loads(given.json.read_text())["traces"]
    return traces


def _bearable(before: Sequence[dict[str, Any]], way: Way, kernels: int, patience: float) -> bool:
    """Whether the tool is fast enough, judged by a shorter trace. Ours always runs."""
    # Of a short trace, most of the time is start-up and does not grow.
    known = [
        statistics.median(tool["wall_s"])
        * max(kernels / max(trace["kernels"], START_UP_KERNELS), 1)
        for trace in before
        for tool in trace["tools"]
        if tool["tool"] == way.name
    ]
    was_left_out = bool(before) and not known
    return way.name.startswith(OURS) or not (was_left_out or (known and known[-1] > patience))


def main() -> None:
    parser = argparse.ArgumentParser(description="The whole report beside other tools.")
    lengths = [1_000, 100_000, 1_000_000, 10_000_000]
    parser.add_argument("--kernels", type=int, nargs="*", default=lengths)
    others = [shape for shape in SHAPES if shape != "plain"]
    parser.add_argument("--shapes", nargs="*", choices=SHAPES, default=others, metavar="SHAPE")
    parser.add_argument("--shape-kernels", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--nsys", default=shutil.which("nsys"))
    parser.add_argument("--nsys-ai", default=shutil.which("nsys-ai"))
    parser.add_argument("--patience", type=float, default=120.0, metavar="SECONDS")
    parser.add_argument("--folder", type=Path, default=Path(".cache/benchmark"))
    parser.add_argument("--json", type=Path, metavar="RESULTS.json")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--picture", type=Path, metavar="OUT.svg")
    given = parser.parse_args()
    try:
        found = benchmark(given)
    except WrongError as error:
        raise SystemExit(str(error)) from error
    print(markdown(found))
    if given.picture:
        from picture import draw

        given.picture.write_text(draw(found))


if __name__ == "__main__":
    main()
