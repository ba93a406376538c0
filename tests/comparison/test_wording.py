"""The sentences about a comparison, whole."""

from dataclasses import replace
from fractions import Fraction

import pytest

from tests.comparison.sides import (
    DRAIN,
    GELU,
    GEMM,
    SCALAR,
    SYNCS,
    VECTOR,
    a_certainty,
    a_comparison,
    a_difference,
    a_run,
)
from traceview.traces.comparison.changes import MOST_CHANGES, changes, main_changes
from traceview.traces.comparison.comparison import CountDifference
from traceview.traces.comparison.figures import KernelShape
from traceview.traces.comparison.wording import (
    change_of_time,
    changed_counts,
    headline,
    notes,
    sentence,
    shape_changes,
    short_place,
)

STEP = (a_difference("step", 12_400_000, 12_910_000),)


def compared(certainty, parts=STEP, **more):
    return headline(a_comparison(parts, certainty, **more))


def test_a_certain_difference():
    assert compared(a_certainty()) == (
        "Takes 4.1 % more: mean 12.91 instead of 12.40 ms per step "
        "(+510 µs, 95 % interval +380 to +630 µs, 5 and 5 runs)."
    )


def test_a_difference_within_the_noise():
    assert compared(a_certainty(low=-100_000)) == (
        "No difference beyond the noise of the runs: mean 12.91 instead of 12.40 ms per step "
        "(+510 µs, 95 % interval −100 to +630 µs, 5 and 5 runs)."
    )


def test_one_run_per_side_says_that_noise_is_not_known():
    assert compared(a_certainty("steps", (1, 1))) == (
        "Takes 4.1 % more: mean 12.91 instead of 12.40 ms per step (+510 µs). "
        "One run per side: not known whether this is noise; counts are exact."
    )
    within = compared(a_certainty("steps", (1, 1), low=-1))
    assert within.endswith("Less than the scatter of the steps: no difference is shown.")


@pytest.mark.parametrize(
    ("before", "after", "start"),
    [
        (200, 100, "2.0× as fast: mean 100 instead of 200 ns"),
        (100, 350, "3.5× as long: mean 350 instead of 100 ns"),
        (
            12_400_000,
            12_401_000,
            "Takes <0.1 % more: mean 12.4010 instead of 12.4000 ms per step (+1.00 µs",
        ),
        (100, 100, "No difference: 100 ns per step on both sides."),
    ],
)
def test_directions(before, after, start):
    assert compared(a_certainty(), (a_difference("k", before, after),)).startswith(start)


def test_without_steps_the_window_is_compared():
    whole = replace(a_run(), has_steps=False)
    comparison = a_comparison(STEP, before=(whole,), after=(whole,))
    assert "ms of steady GPU time (" in headline(comparison)


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (
            DRAIN,
            "The GPU now sits idle for 3.10 ms per step after synchronizations at train.py:75.",
        ),
        (
            a_difference("launch-late", 3_000_000, 1_000_000, kind="idle", place="step_#/load"),
            "The GPU sits idle for 1.00 instead of 3.00 ms per step waiting for the CPU to launch "
            "work in step_#/load.",
        ),
        (
            a_difference("copy-wait", 3_000_000, 0, kind="idle"),
            "The GPU no longer sits idle waiting for copies (3.00 ms per step before).",
        ),
        (
            GELU,
            "gelu takes 40.0 instead of 20.0 µs per call, 12 calls per step; "
            "load width 32 bit instead of 128 bit.",
        ),
        (
            a_difference("add", 10_000, 20_000, (1, 2)),
            "add makes 2 instead of 1 calls per step.",
        ),
        (
            a_difference("add", 10_000, 60_000, (1, 2)),
            "add makes 2 instead of 1 calls per step, 30.0 instead of 10.0 µs per call.",
        ),
        (
            a_difference("add", 0, 60_000, (0, 2), change="appeared"),
            "add is new: 2 calls per step of 30.0 µs.",
        ),
        (
            a_difference("add", 60_000, 0, (1, 0), change="vanished", place="step_#"),
            "add is gone, before 1 call per step of 60.0 µs in step_#.",
        ),
        (
            a_difference("H2D", 60_000, 90_000, kind="copy", group="H2D", place="train.py:7"),
            "H2D copies take 90.0 instead of 60.0 µs per call at train.py:7.",
        ),
    ],
)  # fmt: skip
def test_sentences(part, text):
    assert sentence(part) == text


def test_a_deep_path_is_told_by_its_innermost_ranges():
    deep = "autograd::engine: AddmmBackward#/AddmmBackward#/aten::mm"
    assert short_place(deep) == "AddmmBackward#/aten::mm"
    assert short_place("forward/layer_#") == "forward/layer_#"
    assert short_place("a/b/c.py:12") == "a/b/c.py:12"


def test_a_renamed_kernel_names_both():
    part = replace(GEMM, name="hopper_sgemm", change="renamed")
    assert sentence(part).startswith(
        "hopper_sgemm replaces ampere_sgemm and takes 370.8 instead of"
    )


def test_causes_come_before_what_only_moved_and_small_parts_have_no_sentence():
    moved = a_difference("slower", 10_000_000, 19_000_000)
    small = a_difference("small", 10_000, 11_000)
    comparison = a_comparison((moved, small, DRAIN, GELU))
    assert [each.parts[0].name for each in changes(comparison)] == ["sync-drain", "slower"]


def test_a_cause_comes_first_only_if_it_is_a_good_part_of_the_difference():
    moved = a_difference("slower", 10_000_000, 19_000_000)
    new = a_difference("new", 0, 500_000, (0, 1), change="appeared")
    gaps = a_difference("launch-late", 1_000_000, 4_000_000, (10, 40), kind="idle")
    told = changes(a_comparison((moved, new, gaps)))
    assert [each.parts[0].name for each in told] == ["slower", "launch-late", "new"]


def test_where_causes_cancel_a_small_new_part_does_not_come_before_a_large_change_of_time():
    """Found on a Jacobi solver: copies of 1.5 µs came before 6.6 µs of idle time, net +0.6 µs."""
    gone = a_difference("graph", 18_000, 0, (1, 0), change="vanished")
    copies = a_difference("copies", 0, 1_500, (0, 1), change="appeared")
    slower = a_difference("slower", 2_400, 19_500)
    told = changes(a_comparison((gone, copies, slower)))
    assert [each.parts[0].name for each in told] == ["graph", "slower", "copies"]


@pytest.mark.parametrize(("count", "others"), [(6, 0), (7, 0), (8, 2), (9, 3)])
def test_changes_that_are_not_listed_are_counted_and_summed(count, others):
    parts = [a_difference(f"k{at}", 1_000, 1_000_000 + at) for at in range(count)]
    told = main_changes(a_comparison(parts))
    assert len(told) == (MOST_CHANGES + 1 if others else count)
    assert sum(change.delta_ns for change in told) == sum(part.delta_ns for part in parts)
    assert told[-1].text.startswith("…") == bool(others)
    if others:
        assert told[-1].text == f"… and {others} more changes."
        assert len(told[-1].parts) == others


def test_what_moved_within_the_noise_is_no_change():
    moved = a_difference("slower", 10_000_000, 19_000_000)
    noise = a_certainty(low=-1)
    (drain,) = changes(a_comparison((moved, DRAIN), noise))
    assert drain.parts == (DRAIN,)


def test_counts_of_a_few_steps_are_no_change():
    pairs = [(0, 1), (Fraction(3, 39), Fraction(4, 40)), (131_000, 131_400), (2, Fraction(21, 10))]
    counts = [
        CountDifference(f"count_{at}", Fraction(before), Fraction(after), varies=False)
        for at, (before, after) in enumerate(pairs)
    ]
    told = changed_counts(a_comparison(STEP, counts=counts))
    assert [count.name for count in told] == ["count_0", "count_3"]


def test_shapes_name_what_both_sides_recorded():
    unknown = replace(SCALAR, load_bits=None, dtype=None)
    assert [*shape_changes(VECTOR, SCALAR)] == [("load width", "128 bit", "32 bit")]
    assert [*shape_changes(VECTOR, unknown)] == []


def test_other_recorders_and_warnings_are_noted():
    other = replace(a_run("b.json"), recorder="torch.profiler", warnings=("cut",))
    told = [*notes(a_comparison(STEP, after=(other,)))]
    assert told == [
        "nsys and torch.profiler recorded the two sides: times on the CPU are not comparable.",
        "b.json: cut",
    ]


def test_calls_and_time_per_call_sum_to_the_difference():
    part = a_difference("add", 10_000, 60_000, (1, 3))
    assert part.calls_ns + part.each_ns == part.delta_ns == Fraction(50_000)


def test_idle_time_of_one_cause_is_one_change_with_its_largest_places():
    gaps = [
        a_difference("launch-late", before, after, kind="idle", place=place, change=change)
        for before, after, place, change in (
            (9_000_000, 12_000_000, "", "same"),
            (0, 300_000, "train.py:9", "appeared"),
            (1_000_000, 3_000_000, "train.py:7", "same"),
            (0, 500_000, "train.py:8", "appeared"),
            (0, 400_000, "train.py:10", "appeared"),
        )
    ]
    launches = CountDifference("launches", Fraction(361), Fraction(400), varies=False)
    (change,) = changes(a_comparison(gaps, counts=(launches,)))
    assert change.delta_ns == 6_200_000
    assert change.text == (
        "The GPU sits idle for 16.2 instead of 10.0 ms per step waiting for the CPU to launch "
        "work: +2.00 ms at train.py:7, +500 µs at train.py:8, +400 µs at train.py:10. "
        "Launches per step: 400 instead of 361."
    )


@pytest.mark.parametrize(
    ("elsewhere_ns", "expected"),
    [
        (100_000, "3.20 ms per step after synchronizations: +3.10 ms at train.py:75."),
        (1_000, "3.10 ms per step after synchronizations at train.py:75."),
    ],
)
def test_the_time_of_a_cause_is_not_said_of_one_of_its_places(elsewhere_ns, expected):
    elsewhere = replace(DRAIN, place="", after_ns=Fraction(elsewhere_ns))
    (change,) = changes(a_comparison((DRAIN, elsewhere)))
    assert change.text == f"The GPU now sits idle for {expected}"


def test_fewer_launches_do_not_explain_more_idle_time():
    gaps = a_difference("launch-late", 1_000_000, 4_000_000, kind="idle")
    launches = CountDifference("launches", Fraction(360), Fraction(1), varies=False)
    (change,) = changes(a_comparison((gaps,), counts=(launches,)))
    assert "launches" not in change.text


def test_a_synchronization_comes_before_the_late_launches_that_it_leads_to():
    late = a_difference("launch-late", 0, 4_000_000, (0, 3), "idle", change="appeared")
    drain, launches = changes(a_comparison((late, DRAIN), counts=(SYNCS,)))
    assert "synchronizations at train.py:75" in drain.text
    assert launches.text.endswith(" The CPU no longer runs ahead of the GPU.")


@pytest.mark.parametrize(
    ("before_ns", "counts"),
    [
        (0, ()),
        (0, (replace(SYNCS, before=Fraction(1), after=Fraction(2)),)),
        (0, (replace(SYNCS, before=Fraction(1), after=Fraction(0)),)),
        (1_000_000, (SYNCS,)),
    ],
)
def test_late_launches_of_their_own_are_no_result_of_synchronizations(before_ns, counts):
    late = a_difference("launch-late", before_ns, 9_000_000, (1, 3), "idle", change="appeared")
    first, _ = changes(a_comparison((late, DRAIN), counts=counts))
    assert first.parts == (late,)
    assert "ahead" not in first.text


def kernels(number, change, before_ns=400_000, after_ns=100_000, shapes=(None, None)):
    return [
        a_difference(f"k{at}", before_ns, after_ns, group="gemm", change=change, shapes=shapes)
        for at in range(number)
    ]


def test_many_kernels_of_a_class_that_changed_are_one_change():
    shapes = (replace(SCALAR, dtype="fp32"), replace(SCALAR, dtype="tf32"))
    parts = [*kernels(4, "renamed", shapes=shapes), *kernels(2, "vanished", 200_000, 0)]
    (change,) = changes(a_comparison(parts))
    assert change.text == (
        "6 gemm kernels take 0.400 instead of 2.00 ms per step: 4 replaced, 2 gone; "
        "data type tf32 instead of fp32."
    )
    (change,) = changes(a_comparison(kernels(5, "appeared", 0, 200_000)))
    assert change.text == "5 gemm kernels are new: 1.00 ms per step."
    (change,) = changes(a_comparison(kernels(5, "reconfigured")))
    assert change.text.endswith("per step: all with another launch configuration.")


def test_few_kernels_of_a_class_are_told_singly():
    told = changes(a_comparison(kernels(3, "renamed")))
    assert [len(change.parts) for change in told] == [1, 1, 1]


def test_copies_from_other_memory_say_so():
    part = a_difference("H2D pinned", 3_000_000, 600_000, kind="copy", group="H2D")
    pageable = replace(part.before, name="H2D pageable")
    part = replace(part, change="reconfigured", before=pageable)
    assert sentence(part) == (
        "H2D copies take 0.600 instead of 3.00 ms per call; host memory pinned instead of pageable."
    )


@pytest.mark.parametrize(
    ("calls", "grid", "dtype", "work"),
    [
        ((34, 30), 1, "fp16", "less"),
        ((30, 30), 1, "fp16", None),
        ((30, 30), 4, "fp16", "more"),
        # A kernel of the program may give each thread more to do.
        ((30, 30), 4, None, None),
        ((30, 60), 1, None, "more"),
        # Half as many calls of twice the size.
        ((30, 15), 2, "fp16", None),
    ],
)
@pytest.mark.parametrize("stepped", [False, True])
def test_recordings_of_different_amounts_of_work(calls, grid, dtype, work, stepped):
    """Cut after 300 ms each: the time is the same, and less was done in it."""
    whole = (replace(a_run(), has_steps=stepped),)
    shapes = [KernelShape((each, 1, 1), (256, 1, 1), dtype=dtype) for each in (128, 128 * grid)]
    flash = a_difference("flash", 250_000_000, 252_000_000, calls)
    assert flash.before
    assert flash.after
    sides = [
        replace(side, shape=shape)
        for side, shape in zip((flash.before, flash.after), shapes, strict=True)
    ]
    kernels = (
        replace(flash, before=sides[0], after=sides[1]),
        a_difference("other", 50_000_000, 47_000_000, (8, 8)),
    )
    comparison = a_comparison(kernels, a_certainty("none", (1, 1)), before=whole, after=whole)
    line, share = headline(comparison), change_of_time(comparison)
    if work and not stepped:
        told = f"Most kernels do {work} work than before, so this tells of no speed-up: 299.0"
        assert line.startswith(told)
        assert not share
    else:
        assert line.startswith("Takes 0.3 % less: ")
        assert share == "takes 0.3 % less"


@pytest.mark.parametrize("cold", [(True, False), (False, True), (True, True), (False, False)])
@pytest.mark.parametrize("stepped", [False, True])
def test_a_cold_side_tells_of_no_speed_up(cold, stepped):
    before, after = ((replace(a_run(), has_steps=stepped, cold=each),) for each in cold)
    comparison = a_comparison(STEP, before=before, after=after)
    sides = " and the ".join(name for name, on in zip(("first", "second"), cold, strict=True) if on)
    told = f"The {sides} side shows first calls alone, so this tells of no speed-up: "
    assert headline(comparison).startswith(told if any(cold) else "Takes 4.1 % more: ")
    assert bool(change_of_time(comparison)) is not any(cold)
