"""Time `parse_ptx` on modules of growing size; twice the text should take twice the time.

    python benchmarks/parse_ptx.py FILE.ptx [--megabytes 5 10 20] [--runs 3]

The functions of FILE are repeated under new names until the text has the size. Every run is a
fresh process; memory is the most that it held, text and listing together.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

from traceview.ptx.parse import parse_ptx

MIB = 1024  # ru_maxrss counts KiB on Linux
FUNCTION = re.compile(r"^\.visible \.entry (\w+)", re.MULTILINE)


def repeated(text: str, characters: int) -> str:
    """A module of about so many characters, made of the functions of `text`."""
    begin = FUNCTION.search(text)
    if not begin:
        sys.exit("the file has no .visible .entry")
    end = text.rindex("\n}\n") + 3
    functions = text[begin.start() : end]
    copies = max(1, characters // len(functions))
    many = (FUNCTION.sub(rf".visible .entry \1_{n}", functions) for n in range(copies))
    return text[: begin.start()] + "".join(many) + text[end:]


def measure(path: str, megabytes: int) -> None:
    """Parse once and print what it took as JSON."""
    text = repeated(Path(path).read_text(), megabytes * 1_000_000)
    begin = time.perf_counter()
    listing = parse_ptx(text, path)
    seconds = time.perf_counter() - begin
    instructions = sum(len(function.instructions) for function in listing.functions)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MIB
    print(json.dumps({"seconds": seconds, "instructions": instructions, "peak_mib": peak}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file")
    parser.add_argument("--megabytes", type=int, nargs="+", default=[5, 10, 20])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--once", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        measure(options.file, options.once)
        return
    for size in options.megabytes:
        command = [sys.executable, __file__, options.file, "--once", str(size)]
        runs = [
            json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
            for _ in range(options.runs)
        ]
        best = min(runs, key=lambda run: run["seconds"])
        print(
            f"{size:4} MB  {best['seconds']:6.2f} s  {size / best['seconds']:5.2f} MB/s"
            f"  {best['instructions']:9,} instructions  {best['peak_mib']:6.0f} MiB"
        )


if __name__ == "__main__":
    main()
