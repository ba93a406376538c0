"""Time the whole report and other tools on traces of several lengths, and check their results.

    python -m benchmarks.report.tool_comparison [--kernels 1000 100000 …]
        [--shapes dense dynamic kineto …] [--shape-kernels 1000000]
        [--runs 5] [--rival-runs 5] [--patience 120] [--minutes 20]
        [--nsys PATH] [--nsys-ai PATH] [--folder .cache/benchmark]
        [--json RESULTS.json [--resume]] [--chart docs/performance.svg]

Prints Markdown. Every run is a process of its own, from start to exit, with the file in the page
cache. Before each, a process takes a few times as much memory as the file has bytes and ends: what
is free in a virtual machine for some seconds may be the host's, and taking it back took up to 3 s
per GB where it otherwise takes 0.1 s. CPU is user and system time of the process and its children.
Each tool's time and count per kernel are compared with those of SQLite. One that fails, is wrong or
skips part of the work has no time in the table, and the benchmark ends with status 1.

First `traceview report` runs on every trace, --runs times, in turns with --json and --html: what
slows the machine down for a minute slows all three. Then comes one tool after the other, the
fastest first: what is there after an interruption is of use, and --resume goes on from it. A tool
that is not installed is left out, as is one that takes more than --patience seconds, or would by
its time on a smaller trace. After --minutes nothing more is started.

nsys stats runs the reports that answer the same questions; nsys-ai its skills, on its cache in
Parquet, which it makes first, and on the SQLite file. The shapes are those of
benchmarks/traces/shapes.py, and kineto: a trace of torch.profiler, beside json.load.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Timer
from typing import Any

from benchmarks.readers import kineto_trace
from benchmarks.report.compared_tools import (
    FORMATS,
    OURS,
    RIVALS,
    FailedError,
    Sums,
    Way,
    WrongError,
    clean,
    prepare,
    true_sums,
    ways,
)
from benchmarks.report.machine import machine
from benchmarks.report.result_tables import UNUSABLE, markdown, rows_of
from benchmarks.traces.shapes import SHAPES

PACKAGE = Path(__file__).parents[2] / "traceview"
GENERATOR = "benchmarks.traces.generator"
KINETO = "kineto"
START_UP_BYTES = 20_000_000
MEMORY_PER_BYTE = 4
LEAST_MEMORY = 100_000_000
NO_LIMIT_S = 1e9
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


class TooLongError(Exception):
    """The tool was ended after as long as its user would wait."""


def run(command: Sequence[str], printed: Path, limit_s: float = NO_LIMIT_S) -> Timed:
    """Time a command, which prints into a file.

    Raises TooLongError after limit_s, and FailedError if the command fails.
    """
    with printed.open("wb") as output:
        begun = time.perf_counter()
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.DEVNULL, start_new_session=True
        )
        timer = Timer(limit_s, os.killpg, (process.pid, signal.SIGKILL))
        timer.start()
        try:
            _, status, used = os.wait4(process.pid, 0)
        except BaseException:
            # Else a benchmark that is interrupted leaves it running, and it slows down the next.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        finally:
            timer.cancel()
        wall = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    if wall >= limit_s:
        raise TooLongError
    if process.returncode:
        raise FailedError(f"{' '.join(command)} ended with {process.returncode}")
    return Timed(wall, used.ru_utime + used.ru_stime, used.ru_maxrss / MIB)


def take_memory(trace: Path) -> None:
    """Let a process take as much as the largest report of a trace needs, so that it is free."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    size = min(MEMORY_PER_BYTE * trace.stat().st_size + LEAST_MEMORY, free // 2)
    program = "import sys, numpy; numpy.ones(int(sys.argv[1]), numpy.uint8)"
    subprocess.run((sys.executable, "-c", program, str(size)), check=True)


def measure(trace: Path, way: Way, printed: Path, limit_s: float = NO_LIMIT_S) -> Timed:
    """One run of all commands of a tool; what each prints goes into a file of the folder."""
    prepare(trace, way)
    take_memory(trace)
    done: list[Timed] = []
    for number, command in enumerate(way.commands):
        left = limit_s - sum(each.wall_s for each in done)
        done.append(run(command, printed / str(number), left))
    wall, cpu = (sum(getattr(each, name) for each in done) for name in ("wall_s", "cpu_s"))
    return Timed(wall, cpu, max(each.peak_mib for each in done))


def check(way: Way, printed: Path, expected: Sums) -> str:
    """Raise WrongError if the sums that a tool printed differ from those of SQLite."""
    if way.sums is None:
        return "not compared"
    files = [printed / str(number) for number in range(len(way.commands))]
    texts = [file.read_text("utf-8", errors="replace") for file in files]
    found = way.sums(texts)
    if found != expected:
        odd = sorted(name for name in {*found, *expected} if found.get(name) != expected.get(name))
        raise WrongError(f"{way.name} is wrong about {len(odd)} kernels, such as {odd[0]}")
    return f"{len(found)} equal"


_sums_once = cache(true_sums)


def checked(trace: Path, way: Way, printed: Path) -> str:
    return check(way, printed, _sums_once(trace) if way.sums else {})


def made(folder: Path, kernels: int, shape: str) -> Path:
    """The trace, which stays in the folder for the next time."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{kernels}-{shape}.{'json' if shape == KINETO else 'sqlite'}"
    if path.exists():
        return path
    # What an interruption leaves must not pass for the whole trace the next time.
    part = path.with_suffix(".part")
    part.unlink(missing_ok=True)
    if shape == KINETO:
        kineto_trace.make(part, 0, kernels * kineto_trace.OTHER_EVENTS_PER_STEP, calls=0)
    else:
        command = [sys.executable, "-m", GENERATOR, part, "--kernels", str(kernels)]
        subprocess.run([*command, "--shape", shape], check=True, stdout=subprocess.DEVNULL)
    return part.rename(path)


class Runs:
    """The runs of one tool on a trace. After one that fails there are no more."""

    def __init__(self, trace: Path, way: Way, printed: Path, limit_s: float) -> None:
        self._trace, self._way, self._printed, self._limit_s = trace, way, printed, limit_s
        self._timed: list[dict[str, float]] = []
        self._failed: dict[str, str] = {}
        printed.mkdir()

    def add(self) -> None:
        """Run the tool once."""
        with self._failure():
            if not self._failed:
                once = measure(self._trace, self._way, self._printed, self._limit_s)
                self._timed.append(asdict(once))

    def row(self, apart: Executor) -> dict[str, Any]:
        """All runs, or why there are none.

        They are checked in another process: Linux counts what this one holds as the peak of its
        children.
        """
        sums, name = "", {"tool": self._way.name}
        with self._failure():
            if not self._failed:
                sums = apart.submit(checked, self._trace, self._way, self._printed).result()
        clean(self._way)
        if self._failed:
            return {**name, **self._failed}
        figures = {each: [once[each] for once in self._timed] for each in self._timed[0]}
        return {**name, **figures, "sums": sums}

    @contextmanager
    def _failure(self) -> Iterator[None]:
        try:
            yield
        except TooLongError:
            self._failed = {"left_out": f"over {self._limit_s:.0f} s"}
        except FailedError as error:
            self._failed = {"failed": str(error)}
        except (WrongError, ValueError) as error:
            self._failed = {"wrong": str(error) or type(error).__name__}


def measured(
    apart: Executor, trace: Path, ways: Sequence[Way], runs: int, limit_s: float
) -> list[dict[str, Any]]:
    """A row per tool, whose runs took turns."""
    with TemporaryDirectory() as folder:
        tools = [
            Runs(trace, way, Path(folder, str(number)), limit_s) for number, way in enumerate(ways)
        ]
        for _ in range(runs):
            for tool in tools:
                tool.add()
        return [tool.row(apart) for tool in tools]


def bytes_alone(trace: Path, runs: int) -> dict[str, Any]:
    """Seconds to only read the file: cat, and one sum over all of it."""
    one_pass = (sys.executable, "-c", NUMPY_PASS, str(trace))
    cat, added = [], []
    with TemporaryDirectory() as folder:
        printed = Path(folder, "printed")
        for _ in range(runs):
            cat.append(run(("sh", "-c", 'cat "$0" > /dev/null', str(trace)), printed).wall_s)
            run(one_pass, printed)
            added.append(float(printed.read_text("utf-8")))
    return {"file_bytes": trace.stat().st_size, "cat_s": cat, "numpy_s": added}


def benchmark(given: argparse.Namespace, apart: Executor) -> dict[str, Any]:
    """Measure each tool on each trace, and write what is known after each of them."""
    begun = time.monotonic()
    found = _measured_before(given) or _nothing_yet(given)
    for tools, runs, (kernels, shape) in _planned(given):
        if time.monotonic() - begun > given.minutes * 60:
            print(f"Stopped after {given.minutes:g} min; --resume goes on.", file=sys.stderr)
            break
        trace = _trace(found, given, kernels, shape)
        path = made(given.folder, kernels, shape)
        known = {row["tool"] for row in trace["tools"]}
        left = [
            way
            for way in ways(path, given.nsys, given.nsys_ai)
            if way.name in tools and way.name not in known
        ]
        if not left:
            continue
        row = _left_out(found["traces"], trace, tools[0], given.patience)
        limit_s = NO_LIMIT_S if tools == _OURS else given.patience
        rows = [row] if row else measured(apart, path, left, runs, limit_s)
        trace["tools"] += rows
        print(*rows_of(trace)[-len(rows) :], sep="\n", file=sys.stderr, flush=True)
        if given.json:
            given.json.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    return found


_OURS = (OURS, *FORMATS)


def _planned(
    given: argparse.Namespace,
) -> Iterator[tuple[tuple[str, ...], int, tuple[int, str]]]:
    """Tools that take turns, how often they run, and the trace; what matters most comes first."""
    plain = [(kernels, "plain") for kernels in given.kernels]
    shapes = [(given.shape_kernels, shape) for shape in given.shapes]
    traces = list(dict.fromkeys([*plain, *shapes]))
    tools = [(_OURS, given.runs)]
    tools += [((tool,), given.rival_runs or given.runs) for tool in RIVALS]
    return ((tool, runs, trace) for tool, runs in tools for trace in traces)


def _nothing_yet(given: argparse.Namespace) -> dict[str, Any]:
    helped = (sys.executable, "-m", "traceview", "--help")
    nothing = Path(os.devnull)
    help_s = [run(helped, nothing).wall_s for _ in range(given.runs)]
    return {"machine": machine(given.nsys, given.nsys_ai), "help_s": help_s, "traces": []}


def _measured_before(given: argparse.Namespace) -> dict[str, Any]:
    there = given.resume and given.json and given.json.exists()
    before: dict[str, Any] = json.loads(given.json.read_text("utf-8")) if there else {}
    return before


def _trace(
    found: Mapping[str, Any], given: argparse.Namespace, kernels: int, shape: str
) -> dict[str, Any]:
    """The results of a trace; begins with the cost of its bytes, which brings it into the cache."""
    known = (t for t in found["traces"] if (t["kernels"], t["shape"]) == (kernels, shape))
    trace: dict[str, Any] | None = next(known, None)
    if trace is None:
        beside = bytes_alone(made(given.folder, kernels, shape), given.runs)
        trace = {"kernels": kernels, "shape": shape, **beside, "tools": []}
        found["traces"].append(trace)
    return trace


def _left_out(
    traces: Sequence[Mapping[str, Any]], trace: Mapping[str, Any], tool: str, patience: float
) -> dict[str, Any] | None:
    """A row without a time where the tool would take too long. Ours always runs."""
    # Of a small trace, most of the time is start-up and does not grow.
    known = [
        (statistics.median(row["wall_s"]), max(each["file_bytes"], START_UP_BYTES))
        for each in traces
        for row in each["tools"]
        if row["tool"] == tool and "wall_s" in row
    ]
    size = max(trace["file_bytes"], START_UP_BYTES)
    nearest = min(known, key=lambda each: (abs(each[1] - size), -each[0]), default=(0.0, size))
    expected = nearest[0] * max(size / nearest[1], 1)
    if tool in _OURS or expected <= patience:
        return None
    return {"tool": tool, "left_out": f"about {expected:.0f} s"}


def unusable(found: Mapping[str, Any]) -> list[str]:
    """Why tools that ran have no time: they failed or were wrong."""
    rows = [row for trace in found["traces"] for row in trace["tools"]]
    return [row[reason] for row in rows for reason in UNUSABLE if reason in row]


def main() -> None:
    parser = argparse.ArgumentParser(description="The whole report beside other tools.")
    lengths = [1_000, 100_000, 1_000_000, 10_000_000]
    parser.add_argument("--kernels", type=int, nargs="*", default=lengths)
    shapes = [*SHAPES, KINETO]
    parser.add_argument("--shapes", nargs="*", choices=shapes, default=shapes, metavar="SHAPE")
    parser.add_argument("--shape-kernels", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5, help="of traceview report, in each format")
    parser.add_argument("--rival-runs", type=int, help="of other tools; default: --runs")
    parser.add_argument("--nsys", default=shutil.which("nsys"))
    parser.add_argument("--nsys-ai", default=shutil.which("nsys-ai"))
    parser.add_argument("--patience", type=float, default=120.0, metavar="SECONDS")
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument("--folder", type=Path, default=Path(".cache/benchmark"))
    parser.add_argument("--json", type=Path, metavar="RESULTS.json")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--chart", type=Path, metavar="OUT.svg")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    # As after an installation: where Python may not write bytecode, each run would compile anew,
    # the templates of the page as well.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    compileall.compile_dir(PACKAGE, quiet=1)
    with ProcessPoolExecutor(1) as apart:
        found = benchmark(given, apart)
    print(markdown(found))
    if given.chart:
        from benchmarks.report.chart import draw

        given.chart.write_text(draw(found), "utf-8")
    if reasons := unusable(found):
        raise SystemExit("\n".join(reasons))


if __name__ == "__main__":
    main()
