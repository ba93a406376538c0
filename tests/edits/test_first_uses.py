"""Steps of mostly first uses are no part of what an edit wins per step."""

import random

import pytest

import traceview
from tests.build import Export
from tests.edits.programs import us
from traceview.render.what_if import facts
from traceview.traces.analyses.verdict.parts import loop_times
from traceview.traces.facts.forecast import main_loop, model

PAUSE, WORK = 400, 120


def launching(steps: int, loads: dict[int, int]) -> Export:
    """Per step 400 µs of Python at data.py:24 and a kernel; before that of some, code is loaded."""
    export, at = Export(), 0
    for step in range(steps):
        begin = at
        for time in range(at + 10, at + PAUSE, 20):
            export.python_sample(us(time, time)[0], ("data.py", 24, "fetch"))
        at += PAUSE
        name = "k"
        if took := loads.get(step, 0):
            name = f"first_{step}"
            export.call("cuModuleLoadData", *us(at, at + took))
            at += took
        export.launch(us(at, at + 5), us(at + 6, at + WORK + 10), name=name)
        at += WORK + 5
        export.range(f"step_{step}", *us(begin, at))
    return export


@pytest.mark.parametrize("seed", range(6))
def test_steps_of_mostly_first_uses_do_not_count(tmp_path, seed):
    random.seed(seed)
    steps = random.randint(8, 20)
    loading = random.sample(range(3, steps), random.randint(1, 2))
    loads = {step: random.choice((500, 5_000, 60_000)) for step in loading}
    trace = launching(steps, loads).load(tmp_path)

    answer = traceview.what_if(trace, "cpu data.py:24=0")

    # The first step is warm-up, and only begins the second.
    assert (answer.steps, answer.set_aside) == (steps - 1 - len(loads), len(loads))
    assert answer.recorded_ns / 1000 == pytest.approx(PAUSE + WORK + 5, rel=0.02)
    assert "left out" in facts(answer)[-1]
    # What the report states savings of is as long, without first uses of any length.
    (loop,) = loop_times(trace)
    recorded_ns = main_loop(model(trace)).recorded.mean()
    assert recorded_ns == pytest.approx(loop.step_ns, rel=0.05)


def test_steps_count_where_all_are_mostly_first_uses(tmp_path):
    trace = launching(6, dict.fromkeys(range(6), 5_000)).load(tmp_path)
    answer = traceview.what_if(trace, "cpu data.py:24=0")
    assert (answer.steps, answer.set_aside) == (5, 0)
