"""Samples of Python that gather where it calls a library: they do not show what ran in between."""

import numpy as np
import pytest

from tests.analyses.single_answer import ask
from tests.build import Export
from traceview.traces.analyses.gpu_idle.analysis import ANALYSIS

MS = 1_000_000
CALLER = ("/work/search.py", 70, "search")
NETWORK = ("/work/search.py", 31, "evaluate")


def searches(places, *, number=90, gap=2 * MS, native=False, inner=()):
    """Passes with a gap each; a sample in it, in turn at one of these places of it (0 to 1)."""
    export, at = Export(), 0
    for turn in range(number):
        for _ in range(3):
            export.launch((at, at + 5_000), (at + 8_000, at + 100_000))
            at += 110_000
        begin, place = at, places[turn % len(places)]
        frames = [*inner, NETWORK, CALLER]
        if native:
            export.native_sample(
                begin + int(place * gap), *((file, name) for file, _, name in frames)
            )
        else:
            export.python_sample(begin + int(place * gap), *frames)
        at += gap
    return export


def idle(tmp_path, export):
    said = ask(ANALYSIS, export, tmp_path).findings
    return next(each for each in said if "other work than launching" in each.message)


ENDS = [0.02, 0.05, 0.1, 0.15, 0.85, 0.9, 0.93]
OWN = ("/work/.venv/traceview_injected/sync_marks.py", 40, "mark")


@pytest.mark.parametrize("places", [ENDS, ENDS[:3], ENDS[4:]])
@pytest.mark.parametrize("inner", [(), (OWN,)])
@pytest.mark.parametrize("gap", [MS, 4 * MS])
def test_what_ran_between_samples_at_the_ends_of_gaps_is_not_known(tmp_path, places, inner, gap):
    found = idle(tmp_path, searches(places, inner=inner, gap=gap))

    assert "in or between calls of evaluate: what ran in between is not known" in found.message
    # All of each gap, by the calls, whatever part of the samples lies in them.
    assert found.evidence.values["idle_ns"] == pytest.approx(90 * gap, rel=0.1)


@pytest.mark.parametrize(
    "export",
    [
        searches(np.linspace(0.05, 0.95, 9).tolist()),
        searches(np.linspace(0.05, 0.95, 9).tolist(), inner=(OWN,)),
        searches(ENDS, number=20),
        searches(ENDS, native=True),
    ],
)
def test_samples_all_over_the_gaps_or_few_of_them_name_the_line(tmp_path, export):
    message = idle(tmp_path, export).message
    assert "between calls of" not in message
    assert "search.py:31 in evaluate" in message or "in evaluate (search.py)" in message
