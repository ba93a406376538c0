"""Which ranges are steps, how long each lasts, and which are unlike the others."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.build import Export
from traceview.base import groups
from traceview.traces.facts.idle.step_parts import step_parts
from traceview.traces.facts.ranges import origins
from traceview.traces.facts.steps import series
from traceview.traces.facts.steps.steps import pace, steps, warm_up_end_ns


def names(export, folder):
    return steps(export.load(folder)).names.decode().tolist()


def looped(*levels, start=0, length=10_000):
    """Nested ranges: each level is a name (numbers are put for {}) and how often it repeats."""
    spans = []

    def fill(rest, first, last, numbers):
        if not rest:
            return
        (name, times), width = rest[0], (last - first) // rest[0][1]
        for number in range(times):
            begin = first + number * width
            spans.append((name.format(number, number), begin, begin + width - 1))
            fill(rest[1:], begin, begin + width - 1, number)

    fill(levels, start, start + length, 0)
    return spans


def worked(spans, *, thread=0, more=()):
    """These ranges, with a kernel launched at the start of each of the innermost."""
    export = Export()
    for name, start, end in (*spans, *more):
        export.range(name, start, end, thread=thread)
    least = min(end - start for _, start, end in spans)
    for _, start, end in spans:
        if end - start == least:
            export.launch((start, start + 1), (start + 1, start + 3), thread=thread)
    return export


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        ([("step_{}", 3), ("layer_{}", 4)], "step_"),
        ([("step_{}", 3), ("forward", 1), ("layer_{}", 4)], "step_"),
        ([("train", 1), ("iter{}", 3)], "iter"),
        ([("epoch_{}", 3), ("batch_{}", 4)], "batch_"),
        ([("Epoch {}", 2), ("batch {}", 4), ("layer_{}", 2)], "batch "),
        ([("Epoch {}/batch {}", 6)], "Epoch "),
        ([("train_step#{}", 5)], "train_step#"),
        ([("epoch {}", 3), ("sample", 4)], "sample"),
        ([("epoch {}", 3), ("forward", 1)], "epoch "),
        ([("fold {}", 2), ("epoch {}", 2), ("minibatch {}", 4)], "minibatch "),
        ([("request_{}", 4), ("layer_{}", 3)], "request_"),
        ([("work", 5)], "work"),
        ([("optimizer_step", 1), ("part", 5)], "part"),
        ([("request", 4), ("optimizer_step", 2)], "request"),
    ],
    ids=lambda value: value if isinstance(value, str) else "/".join(name for name, _ in value),
)
def test_the_outermost_repeated_range_is_the_step(tmp_path, levels, expected):
    found = names(worked(looped(*levels)), tmp_path)

    assert {name.startswith(expected) for name in found} == {True}
    place = next(i for i, (name, _) in enumerate(levels) if name.startswith(expected))
    assert len(found) == np.prod([times for _, times in levels[: place + 1]])


@pytest.mark.parametrize("layer", ["layer_{}", "TransformerLayer_{}", "layers.{}.attention"])
def test_layers_of_one_call_are_no_steps(tmp_path, layer):
    assert not names(worked(looped(("forward", 1), (layer, 4))), tmp_path)
    assert not names(worked(looped(("forward", 1), (layer, 4), ("mm", 3))), tmp_path)
    assert len(names(worked(looped(("player_{}", 4))), tmp_path)) == 4


@pytest.mark.parametrize("call", ["forward", "forward pass", "Backward", "model.forward", "my_bwd"])
@pytest.mark.parametrize("part", ["attention", "scaled dot product attention"])
def test_parts_of_the_only_call_of_a_model_are_no_steps(tmp_path, call, part):
    assert not names(worked(looped(("profile", 1), (call, 1), (part, 12))), tmp_path)
    assert len(names(worked(looped(("profile", 1), ("forwarder", 1), (part, 12))), tmp_path)) == 12
    assert len(names(worked(looped(("profile", 1), (call, 5), (part, 12))), tmp_path)) == 5
    assert len(names(worked(looped((call, 1), ("step_{}", 12))), tmp_path)) == 12


def test_a_range_beside_the_steps_is_a_series_of_its_own(tmp_path):
    export = worked(looped(("step_{}", 4), length=4000))
    export.range("validate", 4000, 4100).range("validate", 4200, 4300)
    export.launch((4010, 4011), (4020, 4030)).launch((4210, 4211), (4220, 4230))

    found = steps(export.load(tmp_path))
    assert sorted(found.names.decode()) == [
        "step_0",
        "step_1",
        "step_2",
        "step_3",
        "validate",
        "validate",
    ]
    assert sorted(np.bincount(found.series).tolist()) == [2, 4]


def test_what_repeats_outside_the_loop_of_the_steps_does_not_hide_it(tmp_path):
    spans = looped(("train", 1), ("step_{}", 4), length=4000)
    export = worked(spans, more=[("log", 4100, 4110), ("log", 4200, 4210)])

    assert set(names(export, tmp_path)) == {f"step_{i}" for i in range(4)}


def test_loops_of_one_name_in_different_places_are_two_series(tmp_path):
    spans = looped(("train", 1), ("step_{}", 3), length=3000)
    spans += looped(("eval", 1), ("step_{}", 2), start=5000, length=2000)
    found = steps(worked(spans).load(tmp_path))

    assert sorted(np.bincount(found.series).tolist()) == [2, 3]


def test_a_thread_that_only_loads_data_has_no_steps(tmp_path):
    export = worked(looped(("step_{}", 3), length=3000))
    for number in range(6):
        export.range("load", number * 500, number * 500 + 400, thread=2)

    assert set(names(export, tmp_path)) == {"step_0", "step_1", "step_2"}


def test_autograds_own_ranges_are_parts_of_the_steps(tmp_path):
    export = Export().named_thread(4, "pt_autograd_0")
    for step in range(3):
        at = step * 1000
        export.range(f"step_{step}", at, at + 900).range(
            "AddmmBackward0", at + 100, at + 200, thread=4
        )
        export.launch((at + 110, at + 111), (at + 120, at + 150), thread=4)
    found = steps(export.load(tmp_path))

    assert list(found.names.decode()) == ["step_0", "step_1", "step_2"]
    assert found.operations.tolist() == [1, 1, 1]


@pytest.mark.parametrize("passes", [1, 3])
@pytest.mark.parametrize(
    ("name", "outside", "parts"),
    [("compiled backward #", 0, True), ("micro_batch_#", 0, False), ("validate #", 850, False)],
)
def test_ranges_of_another_thread_in_the_steps_are_parts_of_them(
    tmp_path, passes, name, outside, parts
):
    """torch.compile names its code on autograd's thread: 71 % of a run were told twice."""
    export = Export()
    for step in range(4):
        at = step * 1000
        export.range(f"step_{step}", at, at + 900)
        export.launch((at + 10, at + 11), (at + 20, at + 30))
        for number in range(passes):
            begin = at + 100 + 200 * number + outside
            export.range(
                name.replace("#", str(step * passes + number)), begin, begin + 150, thread=4
            )
            export.launch((begin + 10, begin + 11), (begin + 20, begin + 50), thread=4)
    found = steps(export.load(tmp_path))
    assert len(groups.different(found.series)) == (1 if parts else 2)
    of_steps = found.names.matching(lambda each: each.startswith("step"))
    assert found.operations[of_steps].tolist() == [1 + passes * parts] * 4


def test_strictly_a_threads_launches_without_a_range_are_in_no_step(tmp_path):
    export = Export()
    for step in range(3):
        at = step * 1000
        export.range(f"step_{step}", at, at + 900)
        export.launch((at + 10, at + 11), (at + 20, at + 30))
        export.launch((at + 110, at + 111), (at + 120, at + 150), thread=4)
    trace = export.load(tmp_path)

    assert steps(trace).operations.tolist() == [2, 2, 2]
    assert steps(trace.but(strict=True)).operations.tolist() == [1, 1, 1]


def paced(works, *, run_ahead=True, gap=0, **where):
    """Steps whose kernels take these times; a CPU that runs ahead issues a step in 10 ns."""
    export, clock = Export(), 1000
    for number, work in enumerate(works):
        cpu = 10 * number if run_ahead else clock
        export.range(f"step_{number}", cpu, cpu + (8 if run_ahead else work + gap), **where)
        begin = clock + gap
        export.launch((cpu + 1, cpu + 2), (begin, begin + work), **where)
        clock = begin + work
    return export


def test_a_step_lasts_from_the_end_of_the_gpu_work_before_it_to_its_own(tmp_path):
    trace = paced([500, 100, 100, 140], gap=7).load(tmp_path)

    assert pace(trace).duration_ns.tolist() == [1507, 107, 107, 147]


@pytest.mark.parametrize(
    ("rounds", "others", "of_send"),
    [(2, 1, [90, 90]), (3, 1, [90, 1000, 1000]), (2, 0, [90, 1000])],
)
def test_two_steps_with_others_in_between_last_their_own_time(tmp_path, rounds, others, of_send):
    """From two steps, one of which lasts a round of the program, no usual time can be told."""
    export = Export()
    for begin in range(0, 1000 * rounds, 1000):
        for place, name in enumerate(("send", "receive")[: 1 + others]):
            at = begin + 300 * place
            export.range(name, at, at + 80).launch((at, at + 1), (at + 10, at + 90))
    trace = export.load(tmp_path)

    sends = np.array([name == "send" for name in steps(trace).names.decode()])
    assert pace(trace).duration_ns[sends].tolist() == of_send


def test_steps_of_several_epochs_do_not_count_the_time_between_these(tmp_path):
    export = Export()
    for epoch in range(2):
        at = epoch * 10_000
        export.range(f"epoch_{epoch}", at, at + 400)
        for batch in range(4):
            start = at + 100 * batch
            export.range(f"batch_{batch}", start, start + 90)
            export.launch((start + 1, start + 2), (start + 5, start + 95))
    trace = export.load(tmp_path)

    assert pace(trace).duration_ns.tolist() == [95, 100, 100, 100] * 2


@pytest.mark.parametrize(
    ("works", "warm_up", "outliers"),
    [
        ([900, 100, 101, 99, 100, 100, 100, 100], [0], []),
        ([900, 700, 101, 99, 100, 100, 100, 100], [0, 1], []),
        ([100, 101, 99, 100, 100, 900, 100, 100], [], [5]),
        ([900, 100, 101, 99, 100, 100, 130, 100], [0], [6]),
        ([100, 101, 99, 100, 100, 105, 100, 100], [], []),
        ([80, 140, 90, 130, 85, 120, 95, 150], [], []),
        ([900, 100, 100], [0], []),
        ([900, 100], [], []),
        # Four that are alike are too few to blame a fifth.
        ([900, 100, 100, 200, 100], [0], []),
        ([900, 100, 100, 200, 100, 100], [0], [3]),
        # A slow step behind a fast one is not warm-up, wherever it is.
        ([100, 900, 100, 100, 100, 100, 100, 100], [], [1]),
        # Faster than the others is no warm-up either.
        ([50, 100, 100, 100, 100, 100, 100, 100], [], []),
    ],
)
def test_warm_up_and_outliers_are_told_by_their_own_time(tmp_path, works, warm_up, outliers):
    found = pace(paced(works, run_ahead=False).load(tmp_path))

    assert np.flatnonzero(found.warm_up).tolist() == warm_up
    assert np.flatnonzero(found.outlier).tolist() == outliers


@pytest.mark.parametrize(
    ("times", "outliers"),
    [
        # Work of the fourth step ends before that of the third.
        ([82, 97, 0, 16], []),
        ([97, 5], []),
        ([97, 30], [20]),
        ([97, 50, 0], [20]),
        ([82, 97], [20, 21]),
    ],
)
@pytest.mark.parametrize("later", [0, 12])
def test_what_the_next_steps_make_up_for_is_not_lost(times, outliers, later):
    steps_ns = 1_000 * np.array([50] * 20 + times + [50] * (8 + later))
    found = series.classify(steps_ns, np.zeros(len(steps_ns), np.int64))

    assert np.flatnonzero(found.outlier).tolist() == outliers


def test_set_up_ends_with_warm_up(tmp_path):
    works = [900, 700, 100, 100, 100, 100, 100, 100]
    trace = paced(works, run_ahead=False).load(tmp_path)

    assert warm_up_end_ns(trace) == steps(trace).cpu_start_ns[2]


@pytest.mark.parametrize(
    ("around", "warms_up"),
    [
        ("ProfilerStep#1", False),
        ("ProfilerStep#30", False),
        ("ProfilerStep#0", True),
        ("train", True),
        (None, True),
    ],
)
@pytest.mark.parametrize("name", ["step_{}", "denoise {}"])
def test_what_comes_before_an_inner_loop_comes_again(tmp_path, around, warms_up, name):
    """A step behind the profiler's first encodes a text, then loops: nothing of it is warm-up."""
    export = Export().launch((0, 10), (10, 500))
    if around:
        export.range(around, -5, 9000)
    for at in range(4):
        start = 1000 + 1000 * at
        export.range(name.format(at), start, start + 900)
        export.launch((start + 10, start + 20), (start + 20, start + 800))
    trace = export.load(tmp_path)

    assert len(steps(trace)) == 4
    assert (warm_up_end_ns(trace) > np.iinfo(np.int64).min) is warms_up


def test_a_step_without_gpu_work_among_others_is_not_judged(tmp_path):
    export = (
        paced([100] * 6, run_ahead=False)
        .range("step_6", 2000, 9000)
        .launch((9500, 9501), (9502, 9503))
    )
    found = pace(export.load(tmp_path))

    assert found.timed.tolist() == [True] * 6 + [False]
    assert not found.outlier.any()


def test_no_ranges_no_steps(tmp_path):
    trace = Export().launch((0, 1), (2, 3)).load(tmp_path)

    assert len(steps(trace)) == 0
    assert warm_up_end_ns(trace) == np.iinfo(np.int64).min


def test_launches_beside_the_steps_of_a_thread(tmp_path):
    export = Export()
    for step in range(3):
        at = step * 1000
        export.range(f"step_{step}", at, at + 900)
        export.range(f"step_{step}", at + 100, at + 200, thread=4)
        export.launch((at + 10, at + 11), (at + 20, at + 30))
        export.launch((at + 110, at + 111), (at + 120, at + 150), thread=4)
    export.range("flush", 300, 350, thread=4).range("copy", 1500, 1600, thread=5)
    export.launch((310, 311), (320, 350), thread=4)  # in a range beside its thread's steps
    export.launch((1510, 1511), (1520, 1550), thread=5)  # on a thread without steps
    export.launch((2310, 2311), (2320, 2350), thread=4)  # in no range of its thread
    found = steps(export.load(tmp_path))

    by_thread = [found.operations[found.thread == thread].tolist() for thread in (0, 1)]
    assert by_thread == [[1, 2, 2], [1, 1, 1]]


def overtaken(number=4):
    """Pairs of steps, of which the second works on a stream of its own and is done first."""
    export = Export()
    for pair in range(number):
        at = pair * 1_000_000
        export.range(f"step_{2 * pair}", at, at + 20_000)
        export.launch((at + 1_000, at + 5_000), (at + 10_000, at + 900_000), stream=7)
        export.range(f"step_{2 * pair + 1}", at + 30_000, at + 100_000)
        export.launch((at + 31_000, at + 35_000), (at + 40_000, at + 80_000), stream=8)
        export.sync("cudaStreamSynchronize_v3020", at + 40_000, at + 82_000, stream=8)
    return export


def test_a_step_whose_work_is_done_before_that_of_the_step_before_has_no_parts(tmp_path):
    trace = overtaken().load(tmp_path)
    timed, parts = pace(trace), step_parts(trace)

    assert timed.duration_ns.tolist() == [900_000, 0, *[1_000_000, 0] * 3]
    assert parts.part_ns.sum(axis=1).tolist() == timed.duration_ns.tolist()
    assert not parts.part_ns[1::2].any()
    assert (parts.part_ns >= 0).all()


@pytest.mark.parametrize(("passes", "expected"), [(4, "forward"), (0, "Warm-up Step ")])
def test_steps_of_a_warm_up_range_count_where_there_is_nothing_else(tmp_path, passes, expected):
    """A benchmark: numbered steps that warm up, then passes without a number."""
    spans = looped(("Warm-up", 1), ("Warm-up Step {}", 3), length=3000)
    measured = [("forward", 4000 + 1000 * number, 4900 + 1000 * number) for number in range(passes)]

    found = names(worked([*spans, *measured]), tmp_path)

    assert len(found) == (passes or 3)
    assert all(name.startswith(expected) for name in found)


def test_ranges_that_launch_nothing_are_no_steps_where_others_launch(tmp_path):
    export = Export().range("train", 0, 100).launch((1, 2), (3, 4))
    export.range("unpack", 110, 120).range("unpack", 130, 140)
    assert names(export, tmp_path) == []


@pytest.mark.parametrize(
    ("rule", "near"),
    [
        (series._STEP, series._NEAR_STEP),
        (origins._PROFILER_STEP, series._NEAR_STEP),
        (series._EPOCH, series._NEAR_EPOCH),
    ],
)
@given(data=st.data())
def test_no_name_of_a_step_or_an_epoch_is_passed_over(rule, near, data):
    assert near.search(data.draw(st.from_regex(rule)))


@pytest.mark.parametrize("step", ["ProfilerStep#1", "ProfilerStep#7", "iterate"])
@pytest.mark.parametrize(
    ("parts", "passes", "are_parts"),
    [
        (("attn(F)", "attn(B)", "mlp(W)"), 4, True),
        (("forward", "backward"), 9, True),
        # One kind is a loop, and what comes less often is beside it.
        (("train",), 6, False),
        (("train", "evaluate/2"), 6, False),
    ],
)
def test_kinds_that_take_turns_in_the_only_profiler_step_are_its_parts(
    tmp_path, step, parts, passes, are_parts
):
    export, at = Export(), 10
    for number in range(passes):
        for part in parts:
            name, _, every = part.partition("/")
            if number % int(every or 1) == 0:
                export.range(name, at, at + 90)
                export.launch((at + 10, at + 20), (at + 30, at + 80))
                at += 100
    export.range(step, 0, at)
    found = steps(export.load(tmp_path))
    if are_parts and step != "iterate":
        assert found.names.decode() == [step]
    else:
        assert step not in found.names.decode()
        assert len(found) > 1
