"""Stages of long work: told to a listener, to nobody else, and never out of 0 to 100."""

import traceview
from tests.places import DATA
from traceview.base.stages import in_stage, listening, stage


def test_a_report_tells_its_stages():
    told = []
    with listening(lambda name, pct: told.append((name, pct))):
        traceview.analyze(traceview.load(DATA / "training.sqlite.xz"))
    names = list(dict.fromkeys(name for name, _ in told))
    assert names == ["Unpacking the trace", "Reading the trace", "Analyzing"]
    for name in names:
        shares = [pct for each, pct in told if each == name]
        assert shares == sorted(shares)
        assert 0 <= shares[0] <= shares[-1] <= 100
    before = len(told)
    stage("Nobody listens", 1, 2)
    assert len(told) == before


def test_items_come_as_they_were():
    told = []
    with listening(lambda name, pct: told.append((name, pct))):
        assert list(in_stage("Count", "abcd")) == ["a", "b", "c", "d"]
        stage("Unknown")
    assert told == [*(("Count", pct) for pct in (0, 25, 50, 75)), ("Unknown", None)]
