"""A report makes no more calls of Python for a longer trace, whatever its shape.

Twice as many kernels bring twice as many launch configurations, names of ranges, samples and waits.
Work on these is done in arrays: what grows with them in Python would take seconds at a million.
"""

import os
import sys

import pytest

from benchmarks.traces.generator import make_trace
from benchmarks.traces.shapes import SHAPES
from tests.headless.forked_python import run_script

pytestmark = pytest.mark.programs

# Kernels; the streams of the shorter trace are those of the longer one only from 12,000 kernels on.
LENGTHS = {"dynamic": 10_000, "literal-names": 10_000, "graphs": 10_000, "python-samples": 10_000}
# A dense trace has ten more ranges per kernel, so fewer kernels make as many rows.
LENGTHS |= {"dense": 4_000, "streams": 12_000}
# A longer trace has a few more steps, which programs number, rows that are shown and gaps:
# at most one call for each of its kernels.
MOST_MORE = 10_000
# Pages are decoded in pieces of this size.
PIECE_BYTES, CALLS_PER_PIECE = 1 << 20, 400
COUNT = """
import sys, threading
import traceview
from traceview.render.screen import render_screen

calls = 0

def count(frame, event, argument):
    global calls
    calls += event in ("call", "c_call")

def report(path):
    return render_screen(traceview.analyze(traceview.load(path)), width=100)

report(sys.argv[1])  # Modules are imported, and caches of constants filled.
for path in sys.argv[1:]:
    calls = 0
    threading.setprofile(count)
    sys.setprofile(count)
    report(path)
    sys.setprofile(None)
    threading.setprofile(None)
    print(calls)
"""


@pytest.mark.parametrize("shape", LENGTHS)
def test_calls_do_not_grow_with_the_trace(shape, tmp_path):
    paths = [tmp_path / f"{times}.sqlite" for times in (1, 2)]
    for times, path in enumerate(paths, 1):
        make_trace(path, times * LENGTHS[shape], SHAPES[shape], seed=5)

    (tmp_path / "count.py").write_text(COUNT)
    command = [sys.executable, "count.py", *map(str, paths)]
    done = run_script(command, os.environ, folder=tmp_path)

    assert done.returncode == 0, done.stderr
    short, long = map(int, done.stdout.split())
    more_bytes = paths[1].stat().st_size - paths[0].stat().st_size
    assert long - short < MOST_MORE + CALLS_PER_PIECE * more_bytes / PIECE_BYTES
