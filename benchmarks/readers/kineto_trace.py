"""Reading a large trace of torch.profiler: parsers beside one another, and the whole reader.

    python -m benchmarks.readers.kineto_trace [--gigabytes 1] [--trace FILE.json[.gz]] [--parsers]
    python -m benchmarks.readers.kineto_trace --others PYTHON   # with HolisticTraceAnalysis of PyPI
    python -m benchmarks.readers.kineto_trace --like FILE.json.gz --gigabytes 0.25 0.5 1 2

Without --trace a trace is made in libkineto's layout: two thirds Python calls, operators, launches
and kernels; with --like, of that trace's events again and again. Each reader runs in a process of
its own, which tells its peak memory; --others adds json.load and the parser of HTA, on the same
file. CPU seconds are printed beside the wall clock, as the machine may be shared.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

PROGRAM = "benchmarks.readers.kineto_trace"
CALLS_PER_STEP, OTHER_EVENTS_PER_STEP = 8, 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--gigabytes", type=float, nargs="+", default=[1.0], help="sizes of the made trace"
    )
    parser.add_argument("--like", type=Path, help="a trace to repeat up to these sizes")
    parser.add_argument("--trace", type=Path, help="a trace to read instead")
    parser.add_argument("--events", type=int, help="events of the made trace, in place of a size")
    parser.add_argument(
        "--parsers", action="store_true", help="compare parsers, on the first 64 MB"
    )
    parser.add_argument("--others", metavar="PYTHON", help="also measure json.load, and HTA there")
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        print(json.dumps(read(options.read)))
        return
    with tempfile.TemporaryDirectory() as folder:
        for gigabytes in options.gigabytes:
            path = Path(folder, "made.json.gz")
            if options.like:
                repeat(options.like, path, gigabytes)
            elif not options.trace:
                make(path, gigabytes, options.events)
            report(options.trace or path)
        path = options.trace or path
        if options.others:
            beside(path, options.others)
        if options.parsers:
            compare(path)


def make(path: Path, gigabytes: float, events: int | None, calls: int = CALLS_PER_STEP) -> None:
    """Write a trace of about that size, gzipped where its name says so.

    Each kernel comes with that many nested Python calls, its operator, its launch and its arrow.
    """
    size, step, per_step = 0, 0, calls + OTHER_EVENTS_PER_STEP
    with (
        gzip.open(path, "wb", compresslevel=1) if path.suffix == ".gz" else path.open("wb") as file
    ):
        file.write(HEADER.replace('"with_stack": 1', f'"with_stack": {int(calls > 0)}').encode())
        while (step * per_step < events) if events else (size < gigabytes * 1e9):
            block = "".join(one_step(number, calls) for number in range(step, step + 1000)).encode()
            file.write(block)
            size += len(block)
            step += 1000
        file.write(FOOTER.encode())


def repeat(like: Path, path: Path, gigabytes: float) -> None:
    """Write a gzipped trace of about that size, with the events of another again and again.

    Each time they are as much later as that trace is long, and have ids of their own.
    """
    opened = gzip.open if like.suffix == ".gz" else open
    with opened(like, "rb") as file:
        whole = json.load(file, parse_float=Decimal)
    events = whole.pop("traceEvents")
    starts = [Decimal(each["ts"]) for each in events if each.get("ph") == "X"]
    length = int(max(starts) - min(starts)) + 1
    args = [each.get("args", {}) for each in events]
    ids = 1 + max(int(each.get(key) or 0) for each in args for key in IDS)
    pieces = [SHIFTED.split(as_libkineto(each)) for each in events]
    head = json.dumps(whole, default=str).removesuffix("}")
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(f'{head}, "traceEvents": [\n'.encode())
        size, number = 0, 0
        while size < gigabytes * 1e9:
            more = (shifted(each, number * length, number * ids) for each in pieces)
            text = ",\n" * bool(number) + ",\n".join(more)
            file.write(text.encode())
            size, number = size + len(text), number + 1
        file.write(b"\n]}")


IDS = ("External id", "correlation", "Python id", "Python parent id")
SHIFTED = re.compile(rf'("ts": |"(?:{"|".join(IDS)})": )(\d+)')


def as_libkineto(event: dict[str, Any]) -> str:
    """An event in the lines of libkineto, its times as they were written."""
    args = event.pop("args", None)
    keys = [
        f'"{key}": {value if type(value) is Decimal else json.dumps(value)}'
        for key, value in event.items()
    ]
    lines = [", ".join(line) for line in (keys[:5], keys[5:]) if line]
    if args is not None:
        inner = json.dumps(args, default=float)[1:-1]
        lines.append(f'"args": {{\n      {inner}\n    }}')
    return "  {\n    " + ",\n    ".join(lines) + "\n  }"


def shifted(pieces: list[str], later_us: int, later_ids: int) -> str:
    """The event of a text, its key and its number in turn, that much later and further."""
    result = list(pieces)
    for place in range(1, len(result), 3):
        more = later_us if result[place] == '"ts": ' else later_ids
        result[place + 1] = str(int(result[place + 1]) + more)
    return "".join(result)


HEADER = (
    '{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100", "computeMajor": 9,'
    ' "computeMinor": 0, "numSms": 132, "maxThreadsPerMultiprocessor": 2048, "warpSize": 32}],'
    ' "with_stack": 1, "baseTimeNanoseconds": 1790857026000000000,\n  "traceEvents": [\n'
)
FOOTER = '  {\n    "ph": "i", "s": "g", "name": "Record Window End"\n  }\n  ],"traceName": "t" }'
FIRST_NS = 4_488_084_880_550_402


def one_step(number: int, calls: int) -> str:
    """Nested Python calls, an operator, a launch, its kernel and the arrow between them."""
    at = FIRST_NS + 40_000 * number
    events, first = [], calls * number + 1
    for depth in range(calls):
        parent = first + depth - 1 if depth else "null"
        name = f"model/layer_{depth}.py({10 * depth + 3}): forward"
        ids = f'"Python parent id": {parent}, "Python id": {first + depth}, "Ev Idx": {number}'
        events.append(event("python_function", name, at + 100 * depth, 30_000 - 200 * depth, ids))
    dims = '"Concrete Inputs": ["", ""], "Input Dims": [[4096, 1024], [1024, 1024]], "Ev Idx": 1'
    events.append(
        event("cpu_op", "aten::mm", at + 1_000, 9_000, f'"External id": {number}, {dims}')
    )
    link = f'"External id": {number}, "correlation": {number}'
    events.append(
        event("cuda_runtime", "cudaLaunchKernel", at + 2_000, 3_000, f'"cbid": 211, {link}')
    )
    shape = (
        f'"queued": 0, "device": 0, "context": 1, "stream": 7, {link}, "registers per thread": 64, '
        '"shared memory": 49152, "blocks per SM": 1.0, "warps per SM": 4.0, "grid": [132, 1, 1], '
        '"block": [128, 1, 1], "est. achieved occupancy %": 0'
    )
    name = f"void gemm_kernel<float, {number % 40}>(float const*, float*, int)"
    events.append(event("kernel", name, at + 8_000, 20_000, shape, pid=0, tid=7))
    time_us = f"{(at + 8_000) // 1000}.{(at + 8_000) % 1000:03d}"
    events.append(
        f'  {{\n    "ph": "f", "id": {number}, "pid": 0, "tid": 7, "ts": {time_us},\n'
        '    "cat": "ac2g", "name": "ac2g", "bp": "e"\n  },\n'
    )
    return "".join(events)


def event(
    cat: str, name: str, start: int, length: int, args: str, pid: int = 5, tid: int = 5
) -> str:
    start_us, length_us = (f"{ns // 1000}.{ns % 1000:03d}" for ns in (start, length))
    return (
        f'  {{\n    "ph": "X", "cat": "{cat}", "name": "{name}", "pid": {pid}, "tid": {tid},\n'
        f'    "ts": {start_us}, "dur": {length_us},\n    "args": {{\n      {args}\n    }}\n  }},\n'
    )


def report(path: Path) -> None:
    command = [sys.executable, "-m", PROGRAM, "--read", str(path)]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    print(f"{path.name}: {path.stat().st_size / 1e6:.0f} MB on disk")
    for name, value in found.items():
        print(
            f"  {name:<24} {value:,.2f}" if isinstance(value, float) else f"  {name:<24} {value:,}"
        )


def peak_mb() -> float:
    """The most memory that this process held; getrusage would count that of its parent, too."""
    status = Path("/proc/self/status").read_text("utf-8")
    return int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e6


MEASURED = """
import json, resource, sys, time
from benchmarks.readers.kineto_trace import peak_mb
{imports}
before, peak = resource.getrusage(resource.RUSAGE_SELF), peak_mb()
start = time.perf_counter()
{work}
wall = time.perf_counter() - start
after = resource.getrusage(resource.RUSAGE_SELF)
cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
print(json.dumps([wall, cpu, peak_mb() - peak]))
"""
OTHERS = {
    "json.load": ("import gzip", "json.load(gzip.open(sys.argv[1]))"),
    "HTA": (
        "import logging\nlogging.disable(logging.CRITICAL)\nfrom hta.common.trace import Trace",
        "found = Trace(trace_files={0: sys.argv[1]}, trace_dir='')\n"
        "found.parse_traces(use_multiprocessing=False)",
    ),
}


def beside(path: Path, python: str) -> None:
    """Other readers of the whole file, each in a process of its own."""
    for name, (imports, work) in OTHERS.items():
        program = MEASURED.format(imports=imports, work=work)
        command = [sys.executable if name == "json.load" else python, "-c", program, str(path)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            print(f"  {name}: {done.stderr.strip().splitlines()[-1]}")
            continue
        wall, cpu, peak = json.loads(done.stdout.splitlines()[-1])
        print(
            f"  {name:<12} wall_s {wall:,.2f}  cpu_s {cpu:,.2f}  peak_mb_beyond_start {peak:,.0f}"
        )


def read(path: Path) -> dict[str, Any]:
    """Load a trace in this process, and tell time and memory."""
    from traceview.base.tables import Texts
    from traceview.traces.trace.load import load

    before, peak = resource.getrusage(resource.RUSAGE_SELF), peak_mb()
    start = time.perf_counter()
    trace = load(path)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_SELF)
    held = 0
    for table in trace.tables.values():
        for column in table.columns:
            values = (
                table.texts(column.name).codes if column.dtype == "text" else table[column.name]
            )
            assert not isinstance(values, Texts)
            held += values.itemsize * (1 if values.strides == (0,) else len(values))
    return {
        "rows": sum(map(len, trace.tables.values())),
        "wall_s": wall,
        "cpu_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "tables_mb": held / 1e6,
        "peak_mb_beyond_start": peak_mb() - peak,
        "peak_by_tables": (peak_mb() - peak) / (held / 1e6),
    }


def compare(path: Path) -> None:
    """Parsers on the first 64 MB of events; each yields every event as objects of Python."""
    from traceview.traces.trace.archives import unpacked_pieces
    from traceview.traces.trace.kineto.events import decode_events

    size, parts = 0, []
    with path.open("rb") as file:
        for piece in unpacked_pieces(file, "gzip" if path.suffix == ".gz" else None):
            parts.append(piece)
            size += len(piece)
            if size > 64e6:
                break
    text = b"".join(parts)
    text = text[text.index(b"[", text.index(b'"traceEvents"')) :]
    text = text[: text.rindex(b"},") + 1] + b"]"
    print(f"parsers, {len(text) / 1e6:.0f} MB:")
    parsers: dict[str, Callable[[bytes], Any]] = {
        "msgspec, typed": decode_events,
        "json": json.loads,
    }
    try:
        import orjson

        parsers["orjson"] = orjson.loads
    except ImportError:
        pass
    try:
        import simdjson

        # Without as_list the values stay in the parser, and are decoded as they are read.
        parsers["pysimdjson"] = lambda raw: simdjson.Parser().parse(raw).as_list()
    except ImportError:
        pass
    for name, parse in parsers.items():
        best = min(seconds(parse, text) for _ in range(3))
        print(f"  {name:<16} {best:6.2f} s CPU  {len(text) / 1e6 / best:6.0f} MB/s")


def seconds(parse: Callable[[bytes], Any], text: bytes) -> float:
    start = time.process_time()
    parse(text)
    return time.process_time() - start


if __name__ == "__main__":
    main()
