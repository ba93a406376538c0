"""The difference of two sides: parts that sum to it exactly, and what is matched with what."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from traceview.base.errors import ComparisonRefusedError
from traceview.traces.comparison.decomposition import compare_runs
from traceview.traces.comparison.figures import KernelShape, RunFigures, StepPart


def kernel(name: str, time_ns: int, calls: int = 1, **more: object) -> StepPart:
    shape = KernelShape((more.pop("grid", 128), 1, 1), (128, 1, 1))
    values = {"kind": "kernel", "group": "gemm", "place": "", "symbol": name, "shape": shape}
    return StepPart(**{**values, "name": name, "time_ns": time_ns, "busy_ns": time_ns,
                       "calls": calls, **more})  # fmt: skip


def idle(cause: str, place: str, time_ns: int, symbol: str = "") -> StepPart:
    return StepPart("idle", "", cause, place, time_ns, 0, 1, symbol=symbol)


def a_run(*parts: StepPart, steps: int = 1, digest: str = "", **more: object) -> RunFigures:
    """A run of equal steps; the sequence is that of the parts, as often as they are called."""
    window = sum(part.time_ns for part in parts)
    base, rest = divmod(window, steps)
    listed = [at for at, part in enumerate(parts) if part.kind != "idle"
              for _ in range(part.calls // steps)]  # fmt: skip
    values: dict[str, object] = {
        "name": f"run{digest}", "digest": digest, "recorder": "nsys", "devices": 1,
        "environment": {"gpu": "NVIDIA H200"}, "has_steps": True, "window_ns": window,
        "step_ns": tuple(base + (number < rest) for number in range(steps)), "parts": parts,
        "sequence": tuple(listed),
        "sequence_ns": tuple(parts[at].time_ns // parts[at].calls for at in listed),
    }  # fmt: skip
    return RunFigures(**{**values, **more})


def by_name(comparison) -> dict[str, object]:
    return {part.name: part for part in comparison.parts}


def random_run(draw: random.Random, number: int) -> RunFigures:
    steps = draw.randint(1, 7)
    parts = [
        kernel(
            draw.choice("abcdefgh"),
            draw.randint(1, 10_000),
            steps * draw.randint(1, 4),
            grid=draw.choice((1, 64, 128)),
            place=draw.choice(("", "forward", "backward")),
            group=draw.choice(("gemm", "elementwise", "other")),
        )
        for _ in range(draw.randint(1, 12))
    ]
    parts.append(kernel("common", draw.randint(1, 999), steps))
    gaps = [idle(draw.choice(("sync-drain", "launch-late")), draw.choice(("", "t.py:1")), 7)]
    unique = {(p.kind, p.group, p.name, p.place, p.shape): p for p in (*parts, *gaps)}
    return a_run(*unique.values(), steps=steps, digest=str(number))


@pytest.mark.parametrize("seed", range(200))
def test_parts_sum_to_the_difference_exactly(seed):
    draw = random.Random(seed)
    sides = [[random_run(draw, 10 * side + at) for at in range(draw.randint(1, 4))]
             for side in range(2)]  # fmt: skip
    result = compare_runs(*sides)
    for ours, side in (("before_ns", sides[0]), ("after_ns", sides[1])):
        mean = sum(Fraction(run.window_ns, run.steps) for run in side) / len(side)
        assert getattr(result, ours) == mean == sum(getattr(part, ours) for part in result.parts)
    assert sum(part.delta_ns for part in result.parts) == result.delta_ns
    assert all(part.calls_ns + part.each_ns == part.delta_ns for part in result.parts)
    calls = [sum(Fraction(p.calls, r.steps) for r in side for p in r.parts) / len(side)
             for side in sides]  # fmt: skip
    assert sum(part.calls_before for part in result.parts) == calls[0]
    assert sum(part.calls_after for part in result.parts) == calls[1]


def test_the_largest_change_is_first():
    before = a_run(kernel("a", 100), kernel("b", 50), digest="1")
    after = a_run(kernel("a", 101), kernel("b", 20), digest="2")
    assert [part.name for part in compare_runs([before], [after]).parts] == ["b", "a"]


def test_another_grid_is_another_configuration():
    before = a_run(kernel("a", 100, grid=64), kernel("b", 9), digest="1")
    after = a_run(kernel("a", 40, grid=32), kernel("b", 9), digest="2")
    part = by_name(compare_runs([before], [after]))["a"]
    assert (part.change, part.delta_ns) == ("reconfigured", -60)
    assert (part.before.shape.grid, part.after.shape.grid) == ((64, 1, 1), (32, 1, 1))


def test_a_label_that_another_kernel_made_longer_is_the_same_kernel():
    before = a_run(kernel("add", 100, symbol="x"), digest="1")
    after = a_run(kernel("add float", 100, symbol="x"), kernel("add half", 5), digest="2")
    result = by_name(compare_runs([before], [after], force=True))
    assert result["add float"].change == "same"
    assert result["add half"].change == "appeared"


def test_a_kernel_at_the_place_of_another_is_renamed():
    """Between the same neighbours, of the same class: cuBLAS chose another tile."""
    before = a_run(kernel("norm", 9), kernel("gemm 128", 100), kernel("act", 9), digest="1")
    after = a_run(kernel("norm", 9), kernel("gemm 256", 70), kernel("act", 9), digest="2")
    part = by_name(compare_runs([before], [after]))["gemm 256"]
    assert (part.change, part.before.name, part.delta_ns) == ("renamed", "gemm 128", -30)


def test_a_kernel_of_another_class_is_new():
    before = a_run(kernel("norm", 9), kernel("gemm", 100), digest="1")
    after = a_run(kernel("norm", 9), kernel("copy", 70, group="cast-copy"), digest="2")
    result = by_name(compare_runs([before], [after]))
    assert (result["gemm"].change, result["copy"].change) == ("vanished", "appeared")


def test_one_call_of_many_is_renamed_and_the_rest_stays():
    """Of 5 calls (one of 600, four of 100) the long one became another kernel."""
    norm = kernel("norm", 50, 5)
    before = a_run(
        kernel("gemm", 1000, 5), norm, digest="1",
        sequence=(1, 0, 1, 0, 1, 0, 1, 0, 1, 0),
        sequence_ns=(10, 100, 10, 100, 10, 600, 10, 100, 10, 100),
    )  # fmt: skip
    after = a_run(
        kernel("gemm", 400, 4), norm, kernel("slow gemm", 3000), digest="2",
        sequence=(1, 0, 1, 0, 1, 2, 1, 0, 1, 0),
        sequence_ns=(10, 100, 10, 100, 10, 3000, 10, 100, 10, 100),
    )  # fmt: skip
    result = by_name(compare_runs([before], [after]))
    renamed, rest = result["slow gemm"], result["gemm"]
    assert (renamed.change, renamed.before.name) == ("renamed", "gemm")
    assert (renamed.before_ns, renamed.calls_before, renamed.delta_ns) == (600, 1, 2400)
    assert (rest.change, rest.calls_before, rest.calls_after, rest.delta_ns) == ("same", 4, 4, 0)


def test_unknown_kernels_are_renamed_only_as_a_whole():
    one = a_run(kernel("norm", 9, 3), kernel("mine", 1, group="other"), digest="1")
    other = a_run(kernel("norm", 9, 3), kernel("yours", 9, 4, group="other"), digest="2")
    changes = {part.change for part in compare_runs([one], [other]).parts}
    assert changes == {"same", "vanished", "appeared"}


def test_a_kernel_that_runs_far_more_often_is_no_new_name():
    """The sequence of one call each, of which the steps have 1 and 3,000."""
    one = a_run(kernel("norm", 9), kernel("mine", 1, group="other"), digest="1")
    other = a_run(
        kernel("norm", 9), kernel("yours", 9, 3_000, group="other"), digest="2", sequence=(0, 1),
        sequence_ns=(9, 1),
    )  # fmt: skip
    result = by_name(compare_runs([one], [other]))
    assert (result["mine"].change, result["yours"].change) == ("vanished", "appeared")


def test_idle_time_moves_with_its_code_and_not_with_its_cause():
    before = a_run(kernel("k", 9), idle("launch-late", "t.py:10", 50, "get_batch"), digest="1")
    after = a_run(
        kernel("k", 9),
        idle("launch-late", "t.py:12", 90, "get_batch"),
        idle("launch-late", "t.py:70", 5, "log"),
        idle("sync-drain", "t.py:75", 30, "item"),
        digest="2",
    )
    result = compare_runs([before], [after])
    found = {part.place: (part.change, part.delta_ns) for part in result.parts}
    assert found["t.py:12"] == ("same", 40)
    assert found["t.py:70"] == ("appeared", 5)
    assert found["t.py:75"] == ("appeared", 30)


def test_pinned_memory_is_another_configuration_of_a_copy():
    def copies(memory: str, time_ns: int, digest: str) -> RunFigures:
        copy = StepPart("copy", "H2D", f"H2D {memory}", "", time_ns, time_ns, 1)
        return a_run(kernel("k", 9), copy, digest=digest)

    result = by_name(compare_runs([copies("pageable", 90, "1")], [copies("pinned", 20, "2")]))
    part = result["H2D pinned"]
    assert (part.change, part.before.name, part.delta_ns) == ("reconfigured", "H2D pageable", -70)


def test_runs_without_steps_are_compared_by_their_windows():
    before = a_run(kernel("k", 900, 9), steps=9, digest="1")
    after = a_run(kernel("k", 1000, 10), digest="2", has_steps=False)
    result = compare_runs([before], [after])
    assert (result.before_ns, result.after_ns) == (900, 1000)
    assert len(result.notes) == 1


def test_steps_of_twice_the_work_are_told():
    before = a_run(kernel("a", 100, 2), kernel("b", 100, 2), digest="1")
    after = a_run(kernel("a", 200, 4), kernel("b", 200, 4), digest="2")
    (note,) = compare_runs([before], [after]).notes
    assert "2.00 times as often" in note
    assert compare_runs([before], [a_run(*before.parts, digest="3")]).notes == ()


@pytest.mark.parametrize(
    ("own_ns", "noted"),
    [
        (970, "take 3.0 % of kernel time before and 75.0 % after: they may be different programs"),
        (700, ""),
    ],
)
def test_a_small_part_of_shared_kernels_is_noted(own_ns, noted):
    before = a_run(
        kernel("shared", 1000 - own_ns), kernel("gemm", own_ns, 3, place="forward"), digest="1"
    )
    after = a_run(kernel("softmax", 10, 1, group="softmax"), kernel("shared", 30), digest="2")
    notes = compare_runs([before], [after]).notes
    assert [noted in note for note in notes] == ([True] if noted else [])


def test_counts_are_per_step_and_exact():
    before = a_run(kernel("k", 9, 3), steps=3, digest="1", counts={"copies": 4})
    after = [a_run(kernel("k", 9), digest=d, counts={"copies": c}) for d, c in (("2", 1), ("3", 2))]
    (count,) = compare_runs([before], after).counts
    assert (count.name, count.before, count.after) == ("copies", Fraction(4, 3), Fraction(3, 2))
    assert count.varies


def test_the_same_capture_is_refused():
    run = a_run(kernel("k", 9), digest="1")
    with pytest.raises(ComparisonRefusedError):
        compare_runs([run], [run])
    assert compare_runs([run], [run], force=True).delta_ns == 0
