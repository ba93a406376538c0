"""Steps of recordings without ranges: passes of the launch sequence, held to the recorded steps."""

import numpy as np
import pytest

import traceview
from tests.build import Export, without
from tests.trace.kineto import traces
from traceview.traces.facts.ranges.ranges import pattern_of
from traceview.traces.facts.steps.inferred import with_steps
from traceview.traces.facts.steps.steps import steps, steps_source
from traceview.traces.trace.nsys.ranges import RANGE_PREFIX as PREFIX

MS = 1_000_000


@pytest.mark.parametrize("name", ["mlp_nosync", "mlp_sync", "mlp_print_loss", "training"])
def test_steps_are_found_again_without_their_ranges(unpack, name):
    trace = traceview.load(unpack(name))
    recorded = steps(trace)
    found = with_steps(without(trace, "ranges"))
    assert steps_source(trace) == "user-ranges"
    assert steps_source(found) == "repetition"
    inferred = steps(found)
    assert len(inferred) == len(recorded)
    # A step begins after the last launch of the one before, wherever the program's range begins.
    begins = np.sort(recorded.cpu_start_ns)[1:]
    assert np.all(
        np.sort(inferred.cpu_start_ns)[1:] <= np.append(begins[1:], inferred.cpu_end_ns[-1])
    )
    assert np.median(inferred.operations) == pytest.approx(np.median(recorded.operations), rel=0.1)


def test_ranges_of_the_program_come_first(unpack):
    trace = traceview.load(unpack("training"))
    assert with_steps(trace) is trace


def test_the_report_counts_recorded_ranges_alone(unpack):
    trace = without(traceview.load(unpack("mlp_nosync")), "ranges")
    report = traceview.analyze(trace)
    assert "ranges" not in report.trace.row_counts
    assert report.step_count == 8


def launches(export, names, calls, gap=10):
    """One launch after the other, of kernels with these names, `calls` times over with a pause."""
    at = 0
    for _ in range(calls):
        for name in names:
            export = export.launch(call=(at, at + 2), kernel=(at + 3, at + 9), name=name)
            at += gap
        at += 4 * gap
    return export


def test_trials_of_a_compiler_hide_no_steps(tmp_path):
    export, at = Export(), 0

    def launch(name):
        nonlocal at
        export.launch(call=(at, at + MS), kernel=(at + 2 * MS, at + 9 * MS), name=name)
        at += 10 * MS

    for number in range(300):
        launch(f"trial{number * number % 61}")
    export.range("XlaCompile:#module=jit_step#", 0, at, domain="TSL")
    for _ in range(6):
        for number in range(10):
            launch(f"k{number}")
        at += 40 * MS
    assert steps(with_steps(export.load(tmp_path))).operations.tolist() == [10] * 6


@pytest.mark.parametrize(
    ("first", "name", "number"),
    [
        ("loop_add_fusion", "XlaCompile:#module=jit_step#", 0),
        ("RedzoneAllocatorKernelImpl", "mine", 0),
        ("loop_add_fusion", "mine", 30),
    ],
)
def test_trials_that_repeat_while_xla_compiles_are_no_steps(tmp_path, first, name, number):
    names = [first, *(f"loop_add_fusion_{kernel}" for kernel in range(9))]
    export = launches(Export(), names, 30, gap=MS)
    export.range(name, 0, 1000 * MS, domain="TSL")
    at = 1001 * MS
    export.launch(call=(at, at + 2), kernel=(at + 3, at + 9), name="loop_multiply_fusion")
    assert len(steps(with_steps(export.load(tmp_path)))) == number


@pytest.mark.parametrize(("compiled_ms", "number"), [(900, 0), (100, 30)])
def test_iterations_of_a_module_before_more_compilation_are_no_steps(tmp_path, compiled_ms, number):
    """A solver makes the data in one call; what is compiled then is the loop of the program."""
    export = launches(Export(), [f"loop_add_fusion_{number}" for number in range(10)], 30, gap=MS)
    export.range("XlaModule:#hlo_module=jit_solve#", 0, 500 * MS, domain="TSL")
    export.range("XlaCompile:#module=jit_step#", 501 * MS, (501 + compiled_ms) * MS, domain="TSL")
    at = 1500 * MS
    export.launch(call=(at, at + 2), kernel=(at + 3, at + 9), name="loop_multiply_fusion")
    assert len(steps(with_steps(export.load(tmp_path)))) == number


@pytest.mark.parametrize("kernels", [3, 10])
@pytest.mark.parametrize(
    ("compiled", "again", "number"), [(200, 0, 0), (20, 0, 30), (200, 60, 60), (200, 9, 9)]
)
def test_passes_that_are_next_to_nothing_beside_compilation_after_them_are_no_steps(
    tmp_path, kernels, compiled, again, number
):
    """A program crops its images; the recording ends while the model is compiled, or later.

    `compiled` times as long as the passes. After them, the loop runs `again` times.
    """
    names = [f"crop_{number}" for number in range(kernels)]
    export = launches(Export(), names, 30, gap=20_000)
    at = 30 * (kernels + 4) * 20_000
    end = at + compiled * at
    export.python_event("compilation", at, end, at=("train.py", 398, "main"))
    for _ in range(again):
        for name in ("forward", "backward", "adam"):
            end += MS
            export.launch(call=(end, end + 2), kernel=(end + 3, end + 9), name=name)
        end += 4 * MS
    if not again:
        export.launch(call=(end + 5, end + 7), kernel=(end + 8, end + 9), name="forward")

    found = steps(with_steps(export.load(tmp_path)))
    assert len(found) == number


def test_ranges_of_libraries_and_operators_are_no_steps(tmp_path):
    export = launches(Export(), [f"k{number}" for number in range(10)], 6)
    for at in range(0, 600, 100):
        export = export.range("cub::DeviceScan", at, at + 40, domain="CCCL")
        export = export.range(f"aten::mul, op_id = {at}", at + 41, at + 90)
    trace = export.load(tmp_path)
    assert len(steps(trace)) == 0
    found = with_steps(trace)
    assert steps_source(found) == "repetition"
    assert steps(found).names.decode().tolist() == [f"step_{number}" for number in range(6)]


@pytest.mark.parametrize(("rest", "expected"), [(0, 24), (40, 0)], ids=["epoch", "step"])
def test_what_repeats_in_a_part_of_a_recorded_range_is_no_step(tmp_path, rest, expected):
    """An epoch repeats as a whole; in one step only the optimizer's updates do."""
    export = Export().run(range="step_7")
    update = ["lerp", "mul", "addcmul", "sqrt", "div", "addcdiv"]
    for at, name in enumerate([*(f"layer_{number}" for number in range(rest)), *24 * update]):
        begin = 10 * at + 40 * (at // len(update))
        export.launch(call=(begin, begin + 2), kernel=(begin + 3, begin + 9), name=name)
    export.range("step_7", 0, 10_000)
    trace = export.load(tmp_path)
    assert len(steps(with_steps(trace))) == expected


def test_a_sweep_over_sizes_is_no_loop(tmp_path):
    export = Export()
    for at, size in enumerate((16, 64, 2048, 4096)):
        export = export.range(f"batch_{size}", 100 * at, 100 * at + 90)
        export = export.launch(call=(100 * at, 100 * at + 2), kernel=(100 * at + 5, 100 * at + 50))
    assert len(steps(export.load(tmp_path))) == 0


@pytest.mark.parametrize(("growth", "number"), [(2, 0), (1, 8)], ids=["sweep", "loop"])
def test_passes_that_copy_ever_more_are_no_loop(tmp_path, growth, number):
    export = Export()
    for at in range(8):
        begin, size = 1_000 * at, 4096 * growth**at
        export.copy((begin, begin + 90), (begin + 10, begin + 80), bytes=size)
        export.launch((begin + 100, begin + 110), (begin + 120, begin + 400), name="solve")
        end = begin + 500
        export.copy((begin + 130, end), (end - 60, end - 10), bytes=size, kind="D2H")
    assert len(steps(with_steps(export.load(tmp_path)))) == number


@pytest.mark.parametrize("first", [0, 100])
def test_steps_that_are_logged_every_so_often_are_a_loop(tmp_path, first):
    export = Export()
    for at in range(5):
        export = export.range(f"step_{first + 10 * at}", 100 * at, 100 * at + 90)
        export = export.launch(call=(100 * at, 100 * at + 2), kernel=(100 * at + 5, 100 * at + 50))
    assert len(steps(export.load(tmp_path))) == 5


@pytest.mark.parametrize("epochs", [1, 2])
def test_steps_that_lightning_marks(tmp_path, epochs):
    """Its ranges of one or more epochs, each with a validation after its batches."""
    export, now, batch_ns = Export(), 0, 10 * MS
    for _ in range(epochs):
        begun = now
        for _ in range(10):
            loading = "[pl][profile][_TrainingEpochLoop].train_dataloader_next"
            export.range(loading, now + 10, now + 2 * MS)
            export.range("[pl][profile]run_training_batch", now + 3 * MS, now + 9 * MS)
            export.range("[pl][module]torch.nn.Linear: layer", now + 4 * MS, now + 5 * MS)
            export.launch((now + 4 * MS + 10, now + 4 * MS + 20), (now + 5 * MS, now + 8 * MS))
            now += batch_ns
        export.range("[pl][profile]run_training_epoch", begun, now - 10)
        for _ in range(3):
            validation = "[pl][profile][Strategy]SingleDeviceStrategy.validation_step"
            export.range(validation, now + 10, now + 2 * MS)
            export.launch((now + 100, now + 200), (now + 1 * MS, now + 2 * MS))
            now += 3 * MS

    trace = with_steps(export.load(tmp_path))

    assert set(steps(trace).names.decode()) == {"[pl][profile]run_training_batch"}
    assert (len(steps(trace)), steps_source(trace)) == (10 * epochs, "profiler-steps")


def test_steps_that_jax_marks_are_in_the_domain_of_xla(tmp_path):
    export = Export()
    for number in range(8):
        at = number * 10 * MS
        marker = f"train#step_num={number},_r=1#"
        export.range(marker, at, at + 9 * MS, domain="TSL")
        export.range("XlaModule:#hlo_module=jit_step#", at + 10, at + 5 * MS, domain="TSL")
        export.launch((at + 100, at + 200), (at + MS, at + 4 * MS))

    trace = with_steps(export.load(tmp_path))

    assert (len(steps(trace)), steps_source(trace)) == (8, "profiler-steps")


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("step_7", "step_#"),
        ("h2d", "h2d"),
        ("epoch_3/h2d_12", "epoch_#/h2d_#"),
        ("all2all", "all2all"),
        ("1024x512", "#x#"),
        ("ProfilerStep#12", "ProfilerStep##"),
        ("aten::mul, op_id = 421", "aten::mul"),
    ],
)
def test_numbers_in_a_pattern(name, pattern):
    assert pattern_of(name) == pattern


@pytest.mark.parametrize(("pause", "expected"), [(1, 0), (3, 20)], ids=["none", "longer"])
def test_equal_layers_are_steps_of_their_model(tmp_path, pause, expected):
    """Six layers per call of a model: its calls are the steps if the CPU pauses before each."""
    export, at = Export(), 0
    for launch in range(20 * 6 * 4):
        at += 1_200 if launch % 24 else 1_200 * pause
        name = f"void at::native::k{launch % 4}<int>(int)"
        export.launch(call=(at, at + 200), kernel=(at + 300, at + 900), name=name)
    assert len(steps(with_steps(export.load(tmp_path)))) == expected


AHEAD = {
    "CUDA C++": "{}(float*)",
    "OpenACC": "{}_39_gpu",
    "OpenACC of pgcc": "__pgi_uacc_cuda_{}",
    "OpenMP": "nvkernel_{}_F1L24_2",
    "CuPy": "cupy_{}__float32_float32",
    "Numba": "__main__::{}[abi:v1,cw51cXTLSUwv1sCUt9Uw1](Array<float, 1, C, mutable, aligned>)",
}


@pytest.mark.parametrize("written", AHEAD)
@pytest.mark.parametrize("seed", range(4))
def test_passes_launched_far_ahead_are_steps_of_a_simulation(tmp_path, seed, written):
    """The CPU launches everything at once and waits at the end: no model, so no layers."""
    draw = np.random.default_rng(seed)
    kernels, passes = int(draw.integers(2, 9)), int(draw.integers(12, 200))
    words = ["force", "integrate", "collide", "stream", "pressure", "advect", "swap", "halo"]
    took = draw.integers(5_000, 90_000, kernels)
    export, at, busy = Export(), 0, 10_000
    for word in ["fill", "setup"][: int(draw.integers(3))]:
        export.launch(call=(at, at + 5_000), kernel=(busy, busy + 900), name=word)
        at, busy = at + 6_000, busy + 1_500
    for number in range(kernels * passes):
        which = number % kernels
        end = busy + int(took[which])
        export.launch(
            call=(at, at + 5_000), kernel=(busy, end), name=AHEAD[written].format(words[which])
        )
        at, busy = at + 6_000, end + 600
    export.call("cudaDeviceSynchronize_v3020", at, busy)
    found = steps(with_steps(export.load(tmp_path)))
    assert abs(len(found) - passes) <= 1
    assert np.median(found.operations) == kernels


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("ProfilerStep#3", 0),
        ("execute_context_1(888_788544)_generation_0(0)", 0),
        ("execute_32_context_0(sq0sk0)_generation_32(sq32sk32785)", 0),
        ("train", 20),
    ],
)
def test_layers_of_the_only_step_that_a_profiler_marked(tmp_path, name, number):
    """What a loop in a range of any other name does twenty times are steps."""
    export, at = Export(), 0
    for _ in range(20):
        at += 10_000
        for launch in range(8):
            at += 1_000
            export.launch(call=(at, at + 200), kernel=(at + 300, at + 900), name=f"k{launch}")
    export.range(name, 0, at + 1_000)
    assert len(steps(with_steps(export.load(tmp_path)))) == number


def annotated(name, per_call, *, layers=3, calls=6):
    """Calls of a model of equal layers, of six kernels each; the first ones are in a range."""
    export, at = Export(), 0
    for _ in range(calls):
        export.launch((at, at + 2), (at + 3, at + 9), name="embedding")
        for layer in range(layers):
            for number in range(6):
                at += 10
                export.launch((at, at + 2), (at + 3, at + 9), name=f"k{number}")
                if number < per_call and (name != "once" or layer == 0):
                    export.range(name, at - 1, at + 5)
        at += 10
        export.launch((at, at + 2), (at + 3, at + 9), name="head")
        at += 200
    return export


@pytest.mark.parametrize(
    ("name", "per_call", "source", "number"),
    [
        # The attention of each of three layers: parts of a step.
        ("attention", 1, "repetition", 6),
        # Most of the launches.
        ("block", 5, "user-ranges", 90),
        # Once per call.
        ("once", 1, "user-ranges", 6),
        # Named and numbered like a step.
        ("iter 7", 1, "user-ranges", 18),
    ],
)
def test_ranges_that_each_pass_holds_several_times_are_parts(
    name, per_call, source, number, tmp_path
):
    found = with_steps(annotated(name, per_call).load(tmp_path))
    assert steps_source(found) == source
    assert len(steps(found)) == number


def profiled(names, modules=(), lost=0):
    """Launches of these kernels as torch.profiler records them, and calls of modules.

    The kernels of the `lost` last launches are not recorded.
    """
    events, at = [], 0
    for number, name in enumerate(names):
        at += 5_000 if name == "k0" else 1_000
        events.append(traces.call("cudaLaunchKernel", at, 5, number))
        if number < len(names) - lost:
            events.append(traces.kernel(name, at + 10, 50, number))
    for number, name in enumerate(modules):
        events.append(traces.python(f"nn.Module: {name}", 16_000 * number, 15_500, number, None))
    return events


LAYER = [f"k{number}" for number in range(12)]


@pytest.mark.parametrize(
    ("names", "number"),
    [
        (12 * LAYER, 12),
        # A loop after what the program does once.
        (["upload", *12 * LAYER], 12),
        # Those of a model between its embedding and its head.
        (["embedding", *12 * LAYER, "head"], 0),
        # The embedding takes about as many launches, the last of them as in a layer.
        (["k3", *[f"e{number}" for number in range(9)], *LAYER[10:], *12 * LAYER, "head"], 0),
        # The recording begins and ends within a step.
        ([*LAYER[4:], *12 * LAYER, *LAYER[:4]], 12),
        # No layer is so long.
        (["encoder", *12 * [f"k{number}" for number in range(120)], "decoder"], 12),
    ],
    ids=["steps", "start", "layers", "as long", "cut", "long"],
)
def test_layers_of_the_call_that_torch_profiler_recorded(tmp_path, names, number):
    trace = traceview.load(traces.write(tmp_path / "t.json", profiled(names)))
    assert len(steps(with_steps(trace))) == number


@pytest.mark.parametrize(("name", "number"), [("forward pass", 0), ("forward", 0), ("run", 12)])
def test_layers_in_the_range_of_one_call_are_no_steps(tmp_path, name, number):
    export = launches(Export(), LAYER, 12).range(name, 0, 1_000_000)
    assert len(steps(with_steps(export.load(tmp_path)))) == number


@pytest.mark.parametrize("lost", [1, 7, 30])
@pytest.mark.parametrize(("before", "number"), [(["embedding"], 0), ([], 10)])
def test_layers_of_a_call_whose_end_was_not_recorded(tmp_path, before, number, lost):
    names = [*before, *(10 * LAYER), *(lost * ["head"])]
    trace = traceview.load(traces.write(tmp_path / "t.json", profiled(names, lost=lost)))
    assert len(steps(with_steps(trace))) == number


@pytest.mark.parametrize(
    ("modules", "number"),
    [
        ([f"Block_{layer}" for layer in range(12)], 0),
        (12 * ["Block_0"], 12),
        # Too few stacks to know.
        (["Model_0"], 12),
    ],
    ids=["layers", "steps", "unknown"],
)
def test_passes_that_call_other_modules_are_layers(tmp_path, modules, number):
    trace = traceview.load(traces.write(tmp_path / "t.json", profiled(12 * LAYER, modules)))
    assert len(steps(with_steps(trace))) == number


@pytest.mark.parametrize(("blocks", "number"), [(12, 0), (1, 12)], ids=["layers", "steps"])
def test_passes_in_which_fsdp_names_other_modules_are_layers(tmp_path, blocks, number):
    export = launches(Export(), LAYER, 12)
    for each in range(12):
        name = f"FSDP::pre_forward (blocks.{each % blocks}.module), op_id = {each}"
        export = export.range(name, 160 * each + 11, 160 * each + 21)
    assert len(steps(with_steps(export.load(tmp_path)))) == number


def uploads(export, count):
    """Arrays of one size after the other, each with memory of its own and a memset."""
    for each in range(count):
        at = 10_000 * each
        export.set((at, at + 10), (at + 20, at + 40))
        export.copy((at + 50, at + 60), (at + 70, at + 900), source="pageable")
        export.copy((at + 950, at + 960), (at + 970, at + 1_900), source="pageable")
    return export


def test_a_program_that_loads_its_data_has_no_steps(tmp_path):
    export = uploads(Export(), 40)
    assert steps_source(with_steps(export.load(tmp_path))) == "none"


@pytest.mark.parametrize(("last_ns", "source"), [(1000, "repetition"), (1_000_000, "none")])
def test_passes_beside_the_work_are_no_steps(last_ns, source, tmp_path):
    export = launches(Export(), ["a", "b", "c"], 20)
    export.launch((2_000, 2_010), (2_020, 2_020 + last_ns), name="most")
    assert steps_source(with_steps(export.load(tmp_path))) == source


@pytest.mark.parametrize("passes", [4, 9])
def test_a_step_ends_behind_the_ranges_that_it_opened(tmp_path, passes):
    """A range around each forward pass ends later than its last launch, and before the next."""
    export = launches(Export(), ("gemm", "gelu", "norm", "copy"), passes)
    for number in range(passes):
        export = export.range(f"part {number % 2}", 80 * number - 4, 80 * number + 36)

    trace = with_steps(export.load(tmp_path))

    found = steps(trace)
    assert found.operations.tolist() == [4] * len(found)


@pytest.mark.parametrize(("warm", "timed", "after"), [(3, 5, 0), (1, 4, 0), (2, 9, 3), (0, 6, 4)])
@pytest.mark.parametrize("named", ["inference", "benchmark (batch 64)"])
def test_passes_in_a_range_of_the_program_are_its_loop(tmp_path, named, warm, timed, after):
    """Three forward passes warm up before the range with the timed ones, and none lies across."""
    export = launches(Export(), ("conv", "norm", "relu", "gemm"), warm + timed + after)
    begin, end = 80 * warm - 20, 80 * (warm + timed) - 30
    found = steps(with_steps(export.range(named, begin, end).load(tmp_path)))
    assert found.operations.tolist() == [4] * timed
    assert found.cpu_start_ns[0] >= begin
    assert found.cpu_end_ns[-1] <= end


@pytest.mark.parametrize(("passes", "first", "last"), [(12, 9, 11), (12, 2, 5), (8, 0, 3)])
def test_a_range_around_a_few_passes_is_no_loop(tmp_path, passes, first, last):
    export = launches(Export(), ("conv", "norm", "relu", "gemm"), passes)
    export.range("validate", 80 * first - 20, 80 * last - 30)
    found = steps(with_steps(export.load(tmp_path)))
    assert found.operations.tolist() == [4] * (passes - (last - first))


@pytest.mark.parametrize(
    "name", ["stencil", "void at::native::vectorized_elementwise_kernel<4>(x)"]
)
@pytest.mark.parametrize("around", [None, "aten::add, seq = 1"])
@pytest.mark.parametrize("pause_us", [5, 200])
@pytest.mark.parametrize("per_wait", [0, 1, 3, 10])
def test_a_loop_that_launches_one_kernel(tmp_path, name, around, pause_us, per_wait):
    """A pass lasts from wait to wait; without waits each launch is one that comes long after."""
    us, at, ready, launched = MS // 1000, 1000, 0, 60
    export = Export()
    for number in range(launched):
        ready = max(ready, at + 20 * us) + 50 * us
        export.launch((at, at + 4 * us), (ready - 50 * us, ready), name=name)
        if around:
            export.range(around, at - us, at + 6 * us)
        at += (8 + pause_us) * us
        if per_wait and number % per_wait == per_wait - 1:
            export.sync("cudaStreamSynchronize_v3020", at, max(at, ready) + us)
            at = max(at, ready) + 10 * us
    found = steps(with_steps(export.load(tmp_path)))
    if per_wait:
        assert found.operations.tolist() == [per_wait] * (launched // per_wait)
    elif pause_us < 100:
        assert not len(found)
    else:
        assert found.operations.tolist() == [1] * launched


FORWARD, BACKWARD = ("conv", "norm", "relu", "gemm"), ("dgrad", "wgrad", "norm_backward")
UPDATE = "multi_tensor_apply_kernel<FusedAdam>"


def launched(export, at, names, us):
    for name in names:
        export.launch((at, at + 4_000), (at + 6_000, at + 6_000 + us * 1_000), name=name)
        at += 9_000 + us * 1_000
    return at


def played(tmp_path, marked, rounds, passes, names):
    """Rounds of passes that end in a read and CPU work, each followed by 12 training steps."""
    export, at = Export(), 0
    for _ in range(rounds):
        for _ in range(passes):
            at = launched(export, at, names, 50)
            export.copy((at, at + 9_000), (at + 2_000, at + 5_000), kind="D2H", bytes=400)
            at += 1_000_000
        for _ in range(12):
            begin, at = at, launched(export, at, (*FORWARD, *BACKWARD, UPDATE, UPDATE), 300)
            if marked is not None:
                export.range(f"{marked}step_{at}", begin, at)
                export.range(f"{PREFIX}optimizer", at - 320_000, at - 1_000)
    return with_steps(export.load(tmp_path))


@pytest.mark.parametrize("marked", [None, "", PREFIX])
@pytest.mark.parametrize(("rounds", "passes"), [(1, 60), (1, 300), (3, 80)])
def test_play_before_training_is_a_loop(tmp_path, marked, rounds, passes):
    """A program plays with the model that it then trains: that is no start-up."""
    if rounds > 1 and marked is None:
        pytest.skip("the play of later rounds is a part of the first step behind it")
    found = steps(played(tmp_path, marked, rounds, passes, FORWARD))
    training = found.operations > len(FORWARD) + 1
    assert abs(np.count_nonzero(~training) - rounds * passes) <= rounds
    assert abs(np.count_nonzero(training) - 12 * rounds) <= 1


@pytest.mark.parametrize("marked", [None, "", PREFIX])
@pytest.mark.parametrize(
    "names", [(*FORWARD, *BACKWARD, UPDATE, UPDATE), ("fill", "uniform", "scale")]
)
def test_warm_up_and_a_start_are_no_play(tmp_path, marked, names):
    found = steps(played(tmp_path, marked, 1, 20, names))
    assert not [name for name in found.names.decode() if name.startswith("pass")]


@pytest.mark.parametrize("waits", [(True, True), (False, False), (True, False)])
@pytest.mark.parametrize(("passes", "loops"), [((300, 200), 2), ((300, 8), 1), ((90, 300), 1)])
def test_loops_one_after_the_other(tmp_path, waits, passes, loops):
    """A program without ranges advances its particles, then solves; a short solve is its end."""
    export, at, busy = Export(), 0, 0
    kernels = (("force", "integrate"), ("assemble", "solve", "project"))
    for number, names, wait in zip(passes, kernels, waits, strict=True):
        for _ in range(number):
            for name in names:
                start = max(busy, at + 5_000)
                busy = start + 50_000
                export.launch((at, at + 4_000), (start, busy), name=f"{name}(float*)")
                at, busy = at + 6_000, busy + 600
            if wait:
                export.sync("cudaDeviceSynchronize", at, busy)
                at = busy + 5_000
    found = steps(with_steps(export.load(tmp_path)))
    assert len(np.unique(found.series)) == loops
    assert abs(len(found) - (sum(passes) if loops > 1 else max(passes))) <= 2


@pytest.mark.parametrize("names", [("iter",), ("step_{}",), ("forward", "backward {}")])
@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("ends", ["never", "at the end"])
@pytest.mark.parametrize("passes", [6, 30])
def test_ranges_that_were_never_popped_are_no_steps(tmp_path, names, closed, ends, passes):
    """Each is pushed within the one before. What is closed in them, a layer, keeps its name."""
    export, end = Export(), passes * MS
    for number in range(passes):
        at = number * MS
        for place, name in enumerate(names):
            last = None if ends == "never" else end
            export.range(name.format(number), at + place, last, kind="push-pop")
        if closed:
            export.range("layer", at + 20_000, at + 500_000)
        for kernel in range(9):
            start = at + kernel * 50_000 + 30_000
            span = (start + 9_000, start + 30_000)
            export.launch((start, start + 5_000), span, name=f"k{kernel}")
    trace = with_steps(export.load(tmp_path))

    kept = {str(name) for name in trace.recorded("ranges").texts("name").decode()}
    assert {name for name in kept if not name.startswith("step_")} == (
        {"layer"} if closed else set()
    )
    assert len(steps(trace)) == passes
    [warning] = trace.warnings
    assert warning.startswith(f"{passes * len(names)} ranges that were never closed are left out: ")


@pytest.mark.parametrize("deep", [1, 4])
def test_ranges_that_a_cut_recording_leaves_open_stay(tmp_path, deep):
    export = Export()
    for number in range(8):
        export.range(f"step_{number}", number * 100, number * 100 + (90 if number < 7 else 100))
    for level in range(deep):
        export.range(f"block_{level}", 710 + level, None, kind="push-pop")
    trace = export.load(tmp_path)
    assert len(with_steps(trace).recorded("ranges")) == 8 + deep
    assert not with_steps(trace).warnings


def three_passes(tmp_path, lengths_ms, *, kernels=12, reads=True, before=0, tuned=0):
    """Passes of so many ms each; the rest of a long one comes before or between its kernels."""
    export, at = Export(), 0
    for number in range(before):
        export.launch((at, at + 5_000), (at + 8_000, at + 20_000), name=f"init_{number}")
        at += 30_000
    for length_ms in lengths_ms:
        pause = (length_ms - 40) * MS // (kernels if tuned else 1)
        for kernel in range(kernels):
            at += pause if tuned or kernel == kernels // 2 else 0
            start, at = at, at + 40 * MS // kernels
            export.launch((start, start + 5_000), (start + 8_000, at - 9_000), name=f"k{kernel}")
        if reads:
            export.copy((at, at + 20_000), (at + 9_000, at + 18_000), kind="D2H", source="device")
            at += 30_000
    return with_steps(export.load(tmp_path))


@pytest.mark.parametrize("tuned", [False, True])
@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("first_ms", [100, 4_000])
def test_of_three_equal_passes_a_long_first_one_is_warm_up(tmp_path, first_ms, before, tuned):
    trace = three_passes(tmp_path, (first_ms, 41, 40), before=before, tuned=tuned)
    report = traceview.analyze(trace)
    assert (report.verdict.steps, report.verdict.warm_up_steps) == (3, 1)
    assert 39 * MS < report.verdict.step_median_ns < 45 * MS
    assert {each.finding.severity for each in report.findings} <= {"low", "info"}
    assert not any("long pause" in each.finding.message for each in report.findings)


@pytest.mark.parametrize(
    ("lengths", "more"),
    [
        # As long as the others, other sizes, layers of one pass, too few kernels to tell.
        ((45, 44, 45), {}),
        ((200, 90, 45), {}),
        ((400, 45, 45), {"reads": False}),
        ((400, 45, 45), {"kernels": 3}),
        ((400, 45, 45), {"before": 30}),
    ],
)
def test_three_other_passes_are_no_loop(tmp_path, lengths, more):
    assert not len(steps(three_passes(tmp_path, lengths, **more)))
