"""What sampled threads do has a color in the timeline and a clause in the report on ranks."""

import pytest

from traceview.base.vocabulary.activities import ACTIVITY_NAMES
from traceview.render.base.code import TIMELINE
from traceview.traces.ranks.figures import Place
from traceview.traces.ranks.job_findings import activity_of_rank

OF_SAMPLES = sorted({*ACTIVITY_NAMES} - {"off-cpu"})


@pytest.mark.parametrize("doing", OF_SAMPLES)
def test_every_activity_has_a_color(doing):
    assert f"python-{doing}" in TIMELINE


@pytest.mark.parametrize("doing", sorted({*OF_SAMPLES} - {"cpu"}))
def test_every_activity_but_work_has_a_clause(doing):
    clause = activity_of_rank("launch-late", Place("train.py", 7, "step", what=doing))
    assert not clause.startswith("its CPU works")
