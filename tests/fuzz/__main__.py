"""Run mutants and count what came of them; exit 1 where one is neither answered nor refused."""

import argparse
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.fuzz.mutants import MUTANTS
from tests.fuzz.trials import GOOD, SANITIZED, trial
from tests.places import REPOSITORY
from traceview.base.compiled import library

_FLAGS = ("-g", "-O1", "-fPIC", "-shared", "-fno-sanitize-recover=all")
_SANITIZERS = "-fsanitize=address,undefined"


def sanitized(arguments: list[str]) -> int:
    """Run this in a Python with AddressSanitizer, on a copy whose C code is built with it."""
    with TemporaryDirectory(prefix="fuzz-asan-") as name:
        copy = Path(name)
        shutil.copytree(REPOSITORY / "traceview", copy / "traceview")
        (copy / "tests").symlink_to(REPOSITORY / "tests")
        sources = sorted(map(str, (copy / "traceview").rglob("*.c")))
        built = copy / "traceview/traces/trace/sqlite/pages.so"
        subprocess.run(["gcc", *_FLAGS, _SANITIZERS, "-o", str(built), *sources], check=True)
        shown = subprocess.run(
            ["gcc", "-print-file-name=libasan.so"], check=True, capture_output=True, text=True
        )
        environment = {
            **os.environ,
            SANITIZED: "1",
            "LD_PRELOAD": shown.stdout.strip(),
            "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:hard_rss_limit_mb=4096",
            "PYTHONPATH": str(copy),
        }
        # -P: the copy, not the folder that this starts in.
        command = [sys.executable, "-P", "-m", "tests.fuzz", *arguments]
        return subprocess.run(command, env=environment, check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("kind", choices=sorted(MUTANTS))
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the first mutant")
    parser.add_argument("--keep", type=Path, help="folder for the mutants that fail")
    parser.add_argument("--asan", action="store_true", help="with AddressSanitizer and UBSan")
    given = parser.parse_args()
    if given.asan and SANITIZED not in os.environ:
        return sanitized(sys.argv[1:])
    library.check()
    counts: Counter[str] = Counter()
    for seed in range(given.seed, given.seed + given.count):
        result = trial(given.kind, seed, given.keep)
        counts[result] += 1
        if result not in GOOD:
            print(f"{given.kind} {seed}: {result}", flush=True)
    print(f"{given.kind}:", ", ".join(f"{n} {what}" for what, n in sorted(counts.items())))
    return 0 if set(counts) <= set(GOOD) else 1


if __name__ == "__main__":
    sys.exit(main())
