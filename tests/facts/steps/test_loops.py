"""Loops of steps: those of other sizes are judged each by itself."""

import numpy as np
import pytest

from tests.build import Export
from traceview.base.tables import Texts
from traceview.traces.facts.idle.step_parts import step_parts
from traceview.traces.facts.ranges.nesting import Lanes
from traceview.traces.facts.steps.series import numbers
from traceview.traces.facts.steps.steps import loop_names, pace, steps, warm_up_end_ns


def swept(*loops, name="step_{}", around=None, pause=50):
    """Loops of steps that take these times, one after the other; `around` names their ranges."""
    export, clock = Export(), 1000
    for number, works in enumerate(loops):
        begun, clock = clock, clock + pause
        for step, work in enumerate(works):
            export.range(name.format(step), clock, clock + work)
            export.launch((clock + 1, clock + 2), (clock + 3, clock + work))
            clock += work
        if around:
            export.range(around.format(number), begun, clock)
    return export


def loops(trace):
    return np.bincount(pace(trace).loop).tolist()


def test_loops_of_other_sizes_are_judged_each_by_itself(tmp_path):
    small, large = [30, 10, 10, 10, 10, 10, 10, 40], [3000, 1000, 1010, 990, 1000, 1000]
    trace = swept(small, large, [5, 5, 5]).load(tmp_path)
    found = pace(trace)

    assert loops(trace) == [8, 6, 3]
    assert sorted(set(found.median_ns.tolist())) == [5, 10, 1000]
    assert np.flatnonzero(found.warm_up).tolist() == [0, 8]
    assert np.flatnonzero(found.outlier).tolist() == [7]
    # What the CPU did between two loops is in no step.
    assert found.duration_ns.tolist() == [*small, *large, 5, 5, 5]
    assert list(dict.fromkeys(loop_names(trace).decode())) == [
        "step_# (1)",
        "step_# (2)",
        "step_# (3)",
    ]


def test_epochs_that_number_their_batches_anew_are_one_loop(tmp_path):
    trace = swept([30, 10, 10], [10, 11, 10], [10, 10, 40], pause=5).load(tmp_path)
    found = pace(trace)

    assert loops(trace) == [9]
    assert np.flatnonzero(found.outlier).tolist() == [3, 6, 8]
    # The first of an epoch bears the time since the last one.
    assert found.duration_ns.tolist() == [30, 10, 10, 15, 11, 10, 15, 10, 40]
    assert set(loop_names(trace).decode()) == {"step_#"}


@pytest.mark.parametrize(
    ("second", "sizes", "named"),
    [([10] * 4, [8], {"size_#/step_#"}), ([90] * 4, [4, 4], {"size_0/step_#", "size_1/step_#"})],
)
def test_a_range_around_tells_loops_apart_where_they_differ(tmp_path, second, sizes, named):
    trace = swept([10] * 4, second, around="size_{}").load(tmp_path)

    assert loops(trace) == sizes
    assert set(loop_names(trace).decode()) == named


@pytest.mark.parametrize(
    ("works", "sizes"),
    [
        # Medians 30 and 50: the steps of one loop differ among themselves by as much, or do not.
        ([[10, 90, 30, 20, 60], [15, 95, 50, 30, 80]], [10]),
        ([[30, 30, 30, 29, 31], [50, 50, 50, 49, 51]], [5, 5]),
        # One slow epoch of ten is an epoch of these; two are not.
        ([*[[10] * 3] * 9, [40] * 3], [30]),
        ([*[[10] * 3] * 8, *[[40] * 3] * 2], [3] * 10),
        # Loops of one step are none.
        ([[10], [40], [70], [10]], [4]),
    ],
)
def test_loops_are_alike_by_their_medians(tmp_path, works, sizes):
    assert loops(swept(*works, around="epoch_{}").load(tmp_path)) == sizes


@pytest.mark.parametrize(
    "names",
    [
        ["step_0"] * 6,
        [f"left_{5 - number}" for number in range(6)],
        ["part"] * 6,
        [f"step_{number}" for number in range(8, 14)],
    ],
    ids=lambda names: names[1],
)
def test_numbers_that_do_not_start_again_tell_of_no_loop(tmp_path, names):
    export = Export()
    for place, name in enumerate(names):
        work = 10 if place < 3 else 500
        export.range(name, place * 1000, place * 1000 + work)
        export.launch((place * 1000 + 1, place * 1000 + 2), (place * 1000 + 3, place * 1000 + work))

    assert loops(export.load(tmp_path)) == [6]


def test_numbers_of_names_are_alike_whatever_zeros_lead_them_and_however_long():
    long = "9" * 5000
    names = ["step_2", "step_20", "step_002", f"step_{long}", f"step_0{long}", "step_0", "step_00"]

    alike = numbers(Texts.of(names)).tolist()

    assert alike == [alike[place] for place in (0, 1, 0, 3, 3, 5, 5)]
    assert len(set(alike)) == 4
    assert len(set(numbers(Texts.of(["step_2", "step_20", "step_200"])).tolist())) == 3


def test_a_loop_whose_numbers_are_padded_starts_again(tmp_path):
    export, clock = Export(), 0
    names = ["step_00", "step_01", "step_02", "step_000", "step_001", "step_002"]
    for name, took in zip(names, [10, 10, 10, 900, 900, 900], strict=True):
        export.range(name, clock, clock + took)
        export.launch((clock + 1, clock + 2), (clock + 3, clock + took))
        clock += took

    assert loops(export.load(tmp_path)) == [3, 3]


def looked_at(monkeypatch, folder, series):
    """How many intervals are laid out and looked up to part the steps of so many series."""
    export, clock, count = Export(), 0, 0
    for number in range(4):
        for each in range(series):
            name = f"op_{chr(97 + each // 26)}{chr(97 + each % 26)}_{number}"
            export.range(name, clock, clock + 50)
            export.launch((clock + 1, clock + 2), (clock + 10, clock + 40))
            clock += 100
    folder = folder / str(series)
    folder.mkdir()
    trace = export.load(folder)

    def counting(function):
        def count_and_call(lanes, lane, *times):
            nonlocal count
            count += len(lane) + len(getattr(lanes, "start", ()))
            return function(lanes, lane, *times)

        return count_and_call

    locate, union = Lanes.locate, Lanes.union.__func__
    monkeypatch.setattr(Lanes, "locate", counting(locate))
    monkeypatch.setattr(Lanes, "union", classmethod(counting(union)))
    assert len(set(steps(trace).series.tolist())) == series
    assert (step_parts(trace).part_ns.sum(axis=1) == pace(trace).duration_ns).all()
    monkeypatch.undo()
    return count


def test_many_series_take_no_more_than_in_proportion(tmp_path, monkeypatch):
    few, many = [looked_at(monkeypatch, tmp_path, series) for series in (20, 200)]

    assert 0 < many <= 11 * few


def test_set_up_is_that_of_the_first_loop(tmp_path):
    # By the pace of the later loop all steps of the first one would be warm-up.
    trace = swept([900, 500, 500, 500], [10] * 6).load(tmp_path)

    assert warm_up_end_ns(trace) == steps(trace).cpu_start_ns[1]
