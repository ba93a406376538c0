"""Idle time is where the CPU was, whichever range launches the next work."""

import random
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from tests.build import Export
from traceview.traces.comparison.run_figures import figures_of
from traceview.traces.comparison.window import run_window

NAMES = ("load", "upload", "Vorwärts", "backward pass", "opt", "log:epoch")
US = 1_000


@pytest.mark.parametrize("seed", range(8))
def test_idle_time_is_in_the_ranges_that_the_cpu_was_in(tmp_path: Path, seed: int) -> None:
    """Phases of random length and order, some of which launch; between them the CPU is in none."""
    random.seed(seed)
    names = random.sample(NAMES, random.randint(2, len(NAMES)))
    slow = random.choice(names)
    export, spans, launched, at = Export(), [], [], 0
    for step in range(5):
        begin = at
        for name in names:
            at += random.choice((0, 3, 20)) * US
            start, at = at, at + random.randint(20, 60) * US * (50 if name == slow else 1)
            export.range(name, start, at)
            spans.append((start, at, name))
            if random.random() < 0.7 or name == names[-1]:
                call, kernel = at - 15 * US, (at - 11 * US, at - 6 * US)
                export.launch((call, call + 2 * US), kernel)
                launched.append((call, *kernel, name))
        export.range(f"step_{step}", begin, at)
    trace = export.load(tmp_path)

    (begin,), (end,) = run_window(trace).covered
    expected = Counter[str]()
    for (_, _, idle, _), (call, until, _, launcher) in pairwise(launched):
        for time in range(max(idle, begin), min(until, end), US):
            own = [name for start, stop, name in spans if start <= time < stop]
            expected[launcher if time >= call else next(iter(own), "")] += US
    parts = [part for part in figures_of(trace).parts if part.kind == "idle"]
    assert Counter({part.place: part.time_ns for part in parts}) == expected
    assert max(parts, key=lambda part: part.time_ns).place == slow
