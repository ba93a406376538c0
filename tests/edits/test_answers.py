"""Edits of small programs, with the time per step computed by hand."""

import pytest

import traceview
from tests.build import Export
from tests.edits.programs import copying, gpu_bound, launch_bound, synchronizing, us
from tests.oracles.nsys_stats import H200
from traceview.base.errors import InputError
from traceview.traces.edits.wording import notes
from traceview.traces.facts.work.from_ranges import declaration


@pytest.fixture
def replay(tmp_path):
    def run(export, *edits, **options):
        return traceview.what_if(export.load(tmp_path), *edits, **options)

    return run


def times(answer):
    """Recorded and replayed time per step in µs, row by row."""
    return [answer.recorded_ns / 1000, *(each.forecast.replayed_ns / 1000 for each in answer.edits)]


@pytest.mark.parametrize(
    ("program", "edit", "after"),
    [
        # 4 × (50 + 1): the GPU is never idle.
        (gpu_bound, "kernel gemm*=0.5", 204),
        (gpu_bound, "kernel gemm_?=2x", 204),
        (gpu_bound, "kernel GEMM_1=0", 304),
        # One kernel of 200 per step, with one pitch: no launch is waited for.
        (gpu_bound, "fuse gemm*=0.5", 201),
        # Of two pairs of neighbours, one is each other's; the third follows none that matches.
        (gpu_bound, "fuse gemm_0|gemm_1|gemm_3=1", 403),
        # Three pitches of a graph's nodes, one of the stream.
        (gpu_bound, "graph step", 401.9),
        (gpu_bound, "cpu step=0", 404),
        (gpu_bound, "no-recorder", 404),
        # The CPU launches as late as before.
        (launch_bound, "kernel k=0.5", 200),
        # One call of 5 µs and the 45 µs before it: the kernel of 20 µs follows at once.
        (launch_bound, "fuse k=0.5", 50),
        # One call of 5 µs and the 45 µs before the step.
        (launch_bound, "graph step_#", 50),
        # 4 calls of 5 µs, and the 45 µs between the steps.
        (launch_bound, "cpu step=0", 65),
        (launch_bound, "cpu step=0.5", 132.5),
        # A call of 5 µs and the 45 µs before it lose a quarter of their time, 16 µs at most.
        (launch_bound, "no-recorder", 200 - 4 * 12.5),
        # The GPU alone: a kernel and 1 µs.
        (synchronizing, "no-sync cudaStreamSynchronize", 101),
        (synchronizing, "no-sync step", 101),
        (synchronizing, "kernel *=0.5", 111),
        (copying, "link 2x", 102),
        (copying, "copy h2d=0.25", 77),
        (copying, "copy *=2x", 102),
    ],
)
def test_the_time_per_step(replay, program, edit, after):
    answer = replay(program(), edit)
    assert times(answer)[1] == pytest.approx(after, abs=0.01)
    assert answer.quality.is_exact
    assert answer.steps == 5


def test_a_row_is_on_top_of_those_before_it(replay):
    answer = replay(synchronizing(), "no-sync step", "kernel *=0.5", "no-recorder")
    # Without the wait, 101; then the CPU: a call of 5, one of 3, and 50 µs.
    assert times(answer)[:3] == [161, 101, 58]
    saved = [each.saved_ns for each in answer.edits]
    assert saved[:2] == [60_000, 43_000]
    assert sum(saved) == answer.forecast.saved_ns


def test_what_an_edit_touches_is_counted_per_step(replay):
    graph, kernels = replay(launch_bound(), "graph step", "kernel *=1").edits
    assert (graph.applied.items, graph.applied.values) == (4, {"graphs": 1})
    assert (kernels.applied.items, kernels.applied.time_ns) == (4, 40_000)
    [wait] = replay(synchronizing(), "no-sync cudaStream*").edits
    assert (wait.applied.items, wait.applied.time_ns) == (1, 106_000)
    [pause] = replay(launch_bound(), "cpu step=0").edits
    assert (pause.applied.items, pause.applied.time_ns) == (3, 135_000)


def test_kernels_that_are_fused_are_counted_with_the_runs_that_they_become(replay):
    answer = replay(gpu_bound(), "fuse gemm_0|gemm_1|gemm_9=0.5")
    [applied] = [each.applied for each in answer.edits]
    assert (applied.items, applied.values) == (2, {"chains": 1})
    assert "2 operations, 200 µs, become 1 per step" in answer.to_markdown()
    assert "fused gemm_0|gemm_1|gemm_9 × 0.5: no kernel matches gemm_9." in notes(answer)


def fused_chain(*between) -> Export:
    """Per step two kernels of 10 µs, launched every 50 µs, and what `between` adds in between."""
    export = Export()
    for step in range(6):
        first = 200 * step
        export.range(f"step_{step}", *us(first, first + 155))
        export.launch(us(first, first + 5), us(first + 6, first + 16), name="a")
        for add in between:
            add(export, first)
        export.launch(us(first + 50, first + 55), us(first + 56, first + 66), name="b")
    return export


def test_what_parts_a_chain_and_what_belongs_to_it(replay):
    def looks_up(export, at):
        export.call("cuKernelGetName", *us(at + 40, at + 41))

    def clears(export, at):
        export.set(us(at + 20, at + 22), us(at + 26, at + 28))

    def waits(export, at):
        export.sync("cudaStreamSynchronize_v3020", *us(at + 20, at + 25))

    def uploads(export, at):
        export.copy(us(at + 20, at + 22), us(at + 26, at + 28), source="pinned")

    for between, chains, after in (
        ((), 1, 150),
        ((looks_up,), 1, 150),
        ((clears,), 1, 150),
    ):
        answer = replay(fused_chain(*between), "fuse a|b=1")
        assert answer.edits[0].applied.values == {"chains": chains}
        assert times(answer) == [200, after]
    for parted in (waits, uploads):
        with pytest.raises(InputError, match="follow each other"):
            replay(fused_chain(parted), "fuse a|b=1")


def test_a_wait_parts_a_graph(replay):
    answer = replay(synchronizing(), "graph step")
    assert answer.edits[0].applied.values == {"graphs": 1}
    export = Export()
    for step in range(6):
        first = 400 * step
        export.range(f"step_{step}", *us(first, first + 300))
        for part in (0, 150):
            export.launch(
                us(first + part, first + part + 5), us(first + part + 6, first + part + 50)
            )
            export.launch(
                us(first + part + 20, first + part + 25), us(first + part + 51, first + part + 80)
            )
            export.sync("cudaDeviceSynchronize_v3020", *us(first + part + 30, first + part + 85))
    applied = replay(export, "graph step").edits[0].applied
    assert (applied.items, applied.values) == (4, {"graphs": 2})


def test_the_busy_share_and_what_limits_then(replay):
    answer = replay(launch_bound(), "graph step")
    assert answer.before.busy_pct == pytest.approx(20)
    assert answer.after.busy_pct == pytest.approx(80)
    assert answer.after.step_ns == 50_000
    assert answer.before.busy_ns + sum(answer.before.idle_ns.values()) == answer.before.step_ns
    # 45 µs of Python and a call of 5 µs.
    assert (answer.next.cpu_ns, answer.next.gpu_ns) == (5_000, 0)
    bound = replay(gpu_bound(), "kernel *=0.5")
    assert (bound.next.cpu_ns, bound.next.gpu_ns) == (0, 20_000)


def test_cpu_time_at_a_line_is_that_of_its_samples(replay):
    program = launch_bound(samples=True)
    # The line is in the three pauses within a step; the line that calls it is in all four.
    assert times(replay(program, "cpu data.py:24=0"))[1] == pytest.approx(65)
    assert times(replay(program, "cpu load=0"))[1] == pytest.approx(65)
    called = replay(program, "cpu train.py:9=0").edits[0].applied
    assert called.time_ns == pytest.approx(180_000)


def test_an_edit_touches_the_selected_ranges_alone(replay):
    chosen = replay(gpu_bound(), "kernel *=0", ranges="step_3")
    every = replay(gpu_bound(), "kernel *=0", exclude_ranges="step_3")
    # One step of the five measured ones takes 4 µs of pitch.
    assert times(chosen) == [404, pytest.approx(404 - 400 / 5)]
    # Two steps at the pace of the CPU, the whole one behind them, and two of 4 µs of pitch.
    assert times(every)[1] == pytest.approx((20 + 20 + 408 + 4 + 4) / 5)
    cheaper = replay(launch_bound(), "no-recorder", ranges="step_3")
    assert times(cheaper)[1] == pytest.approx(200 - 4 * 12.5 / 5, abs=0.01)
    with pytest.raises(InputError, match="no range matches 'nowhere'"):
        replay(gpu_bound(), "kernel *=0", ranges="nowhere")


def test_another_gpu_scales_kernels_near_a_ceiling(replay):
    """480 MB in 100 µs are 99.7 % of the bandwidth of this H200. A B200 moves 7.7 TB/s."""
    export = Export()
    for step in range(6):
        first, start = 20 * step, 6 + 202 * step
        export.range(f"step_{step}", *us(first, first + 18))
        export.range(declaration("read", bytes=480e6, flop=0), *us(first, first + 4))
        export.launch(us(first, first + 2), us(start, start + 100), name="read")
        export.launch(us(first + 6, first + 8), us(start + 101, start + 201), name="other")
    answer = replay(export, "gpu B200")
    recorded = H200["memoryBandwidth"]
    assert times(answer) == [202, pytest.approx(102 + 100 * recorded / 7.7e12, abs=0.01)]
    values = answer.edits[0].applied.values
    assert (values["memory_bound_ns"], values["unknown_ns"]) == (100_000, 100_000)


def test_another_gpu_needs_known_work(replay):
    with pytest.raises(InputError, match=r"bytes and FLOP are unknown; .*--ncu"):
        replay(gpu_bound(), "gpu B200")
    with pytest.raises(InputError, match="no rates are known of a GPU 'X1'"):
        replay(gpu_bound(), "gpu X1")


@pytest.mark.parametrize(("kernels", "pause", "alone"), [(5, 900_000, True), (5, 0, False)])
def test_a_replay_of_first_calls_says_so_as_the_report_does(replay, kernels, pause, alone):
    """What a start and first calls win is no forecast of later passes."""
    export = Export().call("cudaMalloc_v3020", 0, 1_000)
    for number in range(kernels):
        at = pause + 110 * number
        export.launch(us(at, at + 2), us(at + 6, at + 106), name=f"k{number}")
    answer = replay(export, "kernel k1=0")
    said = [each for each in notes(answer) if "first calls alone" in each]
    assert (answer.quality.first_calls, len(said)) == (alone, alone)


def test_without_steps_times_are_of_the_run(replay):
    export = Export()
    for number in range(3):
        start = 6 + 101 * number
        export.launch(us(7 * number, 7 * number + 2), us(start, start + 100), name=f"k{number}")
    answer = replay(export, "kernel k1=0")
    assert answer.steps == 0
    # From the first call to the last end: 308 µs.
    assert times(answer) == [308, 208]
    assert answer.edits[0].applied.items == 1


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ("kernel gem=0", r"no kernel matches 'gem'; closest: 'gemm_0', .*put \* around"),
        ("fuse gem|zz=0", r"no kernel matches 'gem\|zz'; closest: 'gemm_0', .*put \* around"),
        ("fuse gemm_0|gemm_2=0", r"no two kernels that match 'gemm_0\|gemm_2' follow each other"),
        ("link 2x", "no copies between host and GPU are recorded here; leave out link"),
        ("kernel zzz=0", "no kernel matches 'zzz'; there are: 'gemm_0'"),
        ("copy D2H=0", "no copy matches 'D2H'; the recording names no copy"),
        ("no-sync cudaStreamSynchronize", "has no synchronizations or blocking copies"),
        ("graph stage", "no range matches 'stage'; there are: 'step_#'"),
        ("cpu data.py:24=0", r"no Python samples, so 'data.py:24' .*; record them with: traceview"),
        ("cpu load=0", "no range matches 'load'; .*functions need Python samples"),
    ],
)
def test_an_edit_that_touches_nothing_is_an_error(replay, edit, message):
    with pytest.raises(InputError, match=message):
        replay(gpu_bound(), edit)


def test_a_wait_is_named_with_those_that_there_are(replay):
    with pytest.raises(InputError, match="closest: 'cudaStreamSynchronize'"):
        replay(synchronizing(), "no-sync cudaDeviceSynchronize")
    with pytest.raises(InputError, match=r"does not say which lines wait, such as 'train.py:90'"):
        replay(synchronizing(), "no-sync train.py:90")
    sampled = launch_bound(samples=True)
    with pytest.raises(
        InputError, match=r"no sampled line matches 'data.py:25'; closest: 'data.py:24'"
    ):
        replay(sampled, "cpu data.py:25=0")


def test_without_gpu_work_there_is_nothing_to_replay(replay):
    with pytest.raises(InputError, match="has no GPU work to replay"):
        replay(Export().call("cudaMalloc_v3020", 0, 10), "kernel *=0")
    with pytest.raises(InputError, match="no edits were given"):
        replay(gpu_bound())
