"""Remedies name what the program's framework has, and nothing of another's."""

from itertools import product

import pytest

import traceview
from tests.build import Export
from traceview.base.hardware.rates import SHARING_MEMORY
from traceview.base.vocabulary.causes import LAUNCH_LATE
from traceview.traces.analyses import wording as wording
from traceview.traces.analyses.gpu_idle import remedies
from traceview.traces.facts.kernel_classes import terms
from traceview.traces.facts.steps.inferred import with_steps
from traceview.traces.trace.nsys.ranges import RANGE_PREFIX as PREFIX

FOREIGN = {
    "void at::native::vectorized_elementwise_kernel<4>(int)": ("cupy", "jax"),
    "cupy_add__float32": ("torch", "jax", "non_blocking", "DataLoader"),
    "loop_add_fusion": ("torch", "cupy", "non_blocking", "DataLoader"),
    "heat[abi:v1,cw51cXTLSUwv1s](Array<float, 2>)": ("torch", "cupy", "jax", "graph", "cuda_"),
    "JacobiMethod(float*)": ("torch", "cupy", "jax", "non_blocking", "DataLoader"),
}


@pytest.mark.parametrize("kernel", FOREIGN)
def test_remedies_fit_the_framework(tmp_path, kernel):
    trace = Export().launch((0, 2), (10, 50), name=kernel).load(tmp_path)
    names = ("pool", "early_uploads", "later_reads")
    phrases = [wording.elsewhere(trace), *(getattr(terms(trace), name) for name in names)]
    said = " ".join([wording.fewer_launches(trace), *phrases]).lower()
    assert not [name for name in FOREIGN[kernel] if name.lower() in said]


LOADER = "/usr/lib/python3/site-packages/torch/utils/data/dataloader.py"


@pytest.mark.parametrize("kernel", FOREIGN)
@pytest.mark.parametrize(
    ("range_", "file", "has_loader"),
    [
        (None, None, False),
        ("forward Net", "/work/gp.py", False),
        ("load", "/work/dataloader.py", False),
        (f"{PREFIX}data loading", None, True),
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", None, True),
        ("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", None, False),
        (None, LOADER, True),
    ],
)
def test_workers_are_named_where_a_loader_has_none(tmp_path, kernel, range_, file, has_loader):
    export = Export().launch((0, 2), (10, 50), name=kernel)
    if range_:
        export.range(range_, 0, 60)
    if file:
        export.python_sample(30, (file, 12, "__next__"), ("/work/train.py", 3, "main"))
    assert ("DataLoader" in wording.elsewhere(export.load(tmp_path))) == has_loader


@pytest.mark.parametrize("kernel", FOREIGN)
@pytest.mark.parametrize("others", [None, "D2H", "H2D"])
def test_what_is_pinned_is_not_to_be_pinned(tmp_path, kernel, others):
    """Also where readbacks are pageable, and not where another upload is."""
    export = Export().launch((0, 2), (10, 50), name=kernel)
    export.copy((60, 61), (62, 70), kind="H2D", source="pinned", destination="device")
    if others:
        ends = {"source": "pageable", "destination": "device"}
        ends = ends if others == "H2D" else {"source": "device", "destination": "pageable"}
        export.copy((80, 81), (82, 90), kind=others, **ends)
    trace = export.load(tmp_path)
    usual = terms(trace).early_uploads
    said = wording.early_uploads(trace)
    assert ("pin" in said.lower()) == (others == "H2D" and "pin" in usual.lower())
    assert said == usual or others != "H2D"


@pytest.mark.parametrize("name", ["triton_poi_fused_add_0", "triton__0d1d2de"])
def test_a_compiled_program_is_not_told_to_compile(tmp_path, name):
    export = Export().launch((0, 2), (10, 50), name=name)
    assert "reduce-overhead" in wording.fewer_launches(export.load(tmp_path))


@pytest.mark.parametrize(
    "name", ["Torch-Compiled Region: {}/0", "Torch-Compiled Region", "part {}"]
)
@pytest.mark.parametrize("nested", [True, False])
def test_graph_breaks_go_before_cuda_graphs(tmp_path, name, nested):
    """Compiled code that calls code compiled apart: in 3 of 3 passes of a public program."""
    export = Export()
    for number in range(3):
        at = 1_000 * number
        export.range(name.format(0), at, at + (900 if nested else 400))
        export.range(name.format(1), at + 500, at + 800)
        export.launch((at + 510, at + 520), (at + 530, at + 700), name="triton_poi_fused_add_0")
    action = remedies.action_for(export.load(tmp_path), LAUNCH_LATE)
    breaks = nested and name.startswith("Torch")
    assert action.startswith("Remove the graph breaks first") is breaks
    assert "aunch less often (compile with mode='reduce-overhead'" in action


def test_cells_of_recurrent_layers_run_together_in_one_call(tmp_path):
    name = "void at::native::<unnamed>::kernel::lstm_cell_forward<float, float, int, (int)1>(int)"
    trace = Export().launch((0, 2), (10, 50), name=name).load(tmp_path)
    assert wording.fewer_launches(trace).startswith("one nn.LSTM or nn.GRU")


def test_a_program_of_graphs_is_not_told_to_use_graphs(tmp_path):
    export = Export().launch((0, 2), (10, 50), name="void at::native::copy(int)")
    export.graph_launch((60, 62), [(70, 80), (80, 90)], name="void at::native::copy(int)")
    assert "into its CUDA graphs" in wording.fewer_launches(export.load(tmp_path))


@pytest.mark.parametrize(
    ("how", "outside", "expected"),
    [("_sample", 4, True), ("_sample", 6, False), ("_beam_search", 4, False)],
)
def test_generation_is_told_of_the_static_cache_where_it_takes_most_of_the_time(
    how, outside, expected, tmp_path
):
    """Beam search is not compiled: the cache gained nothing there (docs/accuracy.md)."""
    generate = ("/site-packages/transformers/generation/utils.py", 2500, how)
    linear = ("/site-packages/torch/nn/modules/linear.py", 134, "forward")
    export, main = Export(), ("/work/chat.py", 9, "<module>")
    export.launch((0, 2), (10, 50), name="void at::native::copy(int)")
    for number in range(10):
        stack = (linear, main) if number < outside else (linear, generate, main)
        export.python_sample(100 + 10 * number, *stack)
    assert ("generate" in wording.fewer_launches(export.load(tmp_path))) == expected


@pytest.mark.parametrize(("reads", "expected"), [(1, False), (40, True)])
def test_no_graph_holds_values_that_are_read_between_launches(reads, expected, tmp_path):
    export = Export()
    for number in range(60):
        at = 100 * number
        export.launch((at, at + 2), (at + 10, at + 50), name="void at::native::copy(int)")
        if number < reads:
            export.copy(
                (at + 51, at + 53),
                (at + 60, at + 62),
                kind="D2H",
                source="device",
                destination="pageable",
            )
    said = wording.fewer_launches(export.load(tmp_path))
    assert said.startswith("batch, or read no values on the CPU") == expected


def steps_of_xla(module: str, programs: int, gpus: int = 1, waits: int = 6) -> Export:
    """60 steps of so many programs, with so many launches that come late, on each GPU."""
    export = Export()
    for gpu in range(1, gpus):
        export.gpu(gpu)
    for number, gpu in product(range(60), range(gpus)):
        where, at = {"thread": gpu or None}, 1000 * number
        if not gpu:
            export.range(f"step_{number}", at, at + 900)
        for part in range(programs):
            name = f"XlaModule:#hlo_module={module},program_id={part}#"
            export.range(name, at + 100 * part, at + 100 * part + 8, domain="TSL", **where)
        for begin in range(at, at + 100 * waits, 100):
            kernel = (begin + 10, begin + 50)
            export.launch((begin, begin + 2), kernel, name="loop_add_fusion", device=gpu, **where)
    return export


@pytest.mark.parametrize("gpus", [1, 8])
def test_a_step_that_is_one_program_is_not_told_to_become_one(tmp_path, gpus):
    said = wording.fewer_launches(steps_of_xla("jit_step", 1, gpus).load(tmp_path))
    assert "jax.lax.scan" in said
    assert "jax.jit" not in said


@pytest.mark.parametrize("waits", [6, 2])
def test_a_step_of_many_programs_is_told_to_become_one(tmp_path, waits):
    """However few of their launches come late."""
    export = steps_of_xla("jit_add", 6, waits=waits)
    assert "jax.jit" in wording.fewer_launches(export.load(tmp_path))


@pytest.mark.parametrize(("waits", "gpus", "expected"), [(6, 1, False), (2, 1, True), (2, 8, True)])
def test_few_waits_show_one_program_where_its_ranges_are_unknown(tmp_path, waits, gpus, expected):
    said = wording.fewer_launches(steps_of_xla("", 0, gpus, waits).load(tmp_path))
    assert ("jax.jit" not in said) == expected


NNX = "/site-packages/flax/nnx"
TRAIN = ("/work/train.py", 9, "<module>")
CALL = (f"{NNX}/transforms/compilation.py", 435, "__call__")
FLATTEN = (f"{NNX}/graph.py", 700, "_graph_flatten")
DISPATCH = ("/site-packages/jax/_src/pjit.py", 263, "cache_miss")


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        ((FLATTEN, (f"{NNX}/extract.py", 200, "to_tree"), CALL), True),
        # The call of the compiled program has no frame of its own.
        ((CALL,), False),
        ((CALL, (f"{NNX}/graph.py", 2060, "update_context_manager_wrapper")), False),
        ((DISPATCH, CALL), False),
        ((FLATTEN, CALL, DISPATCH, CALL), False),
        ((FLATTEN, CALL, (f"{NNX}/graph.py", 1641, "cache_args_wrapper")), False),
        # By the program itself, around jax.jit.
        ((FLATTEN, (f"{NNX}/graph.py", 1300, "split")), False),
    ],
)
def test_modules_that_nnx_flattens_in_each_call_are_to_be_cached(tmp_path, stack, expected):
    export = steps_of_xla("jit_step", 1)
    for number in range(60):
        export.python_sample(1000 * number + 700, *stack, TRAIN)
    said = wording.fewer_launches(export.load(tmp_path))
    assert ("nnx.cached_partial" in said) == expected
    assert "jax.lax.scan" in said


def test_recurrent_layers_of_cudnn_cannot_be_fused(tmp_path):
    """A graph ran an LSTM 4.6 times as fast on an H200, torch.compile no faster."""
    export = Export().launch((0, 2), (10, 50), name="void at::native::copy(int)")
    export.launch((60, 62), (70, 80), name="void elemWiseRNNcell<float, (cudnnRNNMode_t)2>(int)")
    said = wording.fewer_launches(export.load(tmp_path))
    assert said.startswith("replay a CUDA graph")
    assert "torch.compile" not in said


GROUNDS = {
    "__pgi_uacc_cuda_fill_42_gpu": "openacc",
    "jacobi_step_57_gpu": "openacc",
    "residual_91_gpu__red": "openacc",
    "nvkernel_main_F1L42_2": "openmp",
    "__omp_offloading_fd00_2a0b1_main_l37": "openmp",
    "main$_omp_fn$0": "openmp",
    "_Z22partial_mapreduce_grid8identity7add_sum13CuDeviceArrayI7Float32Li1ELi1EE": "julia",
    "gpu_broadcast_kernel_linear(CompilerMetadata<DynamicSize>, CuDeviceArray<Float32>)": "julia",
    "void run_on_gpu(float*)": "",
    "update_gpu(float*)": "",
}


@pytest.mark.parametrize(("kernel", "name"), GROUNDS.items())
def test_compilers_of_directives_and_julia_are_known_by_their_kernels(tmp_path, kernel, name):
    assert terms(Export().launch((0, 2), (10, 50), name=kernel).load(tmp_path)).name == name


def looping(kernel, gpu=None, passes=40):
    """Each pass allocates, uploads from pageable memory, launches and waits."""
    export, at = Export(), 0
    if gpu:
        export.gpu(0, **gpu)
    for _ in range(passes):
        export.call("cuMemAlloc_v2", at, at + 300_000)
        times = (at + 300_000, at + 900_000), (at + 310_000, at + 890_000)
        export.copy(*times, bytes=4_000_000)
        export.launch((at + 900_000, at + 905_000), (at + 910_000, at + 1_500_000), name=kernel)
        export.sync("cudaStreamSynchronize_v3020", at + 905_000, at + 1_505_000)
        at += 1_510_000
    return export


def found(export, tmp_path):
    """All findings of a recording."""
    report = traceview.analyze(with_steps(export.load(tmp_path)))
    return [each.finding for each in report.findings]


def actions(export, tmp_path):
    return " ".join(each.action for each in found(export, tmp_path))


@pytest.mark.parametrize(
    ("kernel", "said"),
    [("jacobi_step_57_gpu", "acc data"), ("nvkernel_main_F1L4_2", "target data")],
)
def test_directives_that_copy_and_allocate_are_told_of_data_regions(tmp_path, kernel, said):
    text = actions(looping(kernel), tmp_path)
    assert said in text
    assert "Pin the host memory" not in text
    assert "cudaMallocAsync" not in text


@pytest.mark.parametrize(("copies", "again"), [(2, False), (3, False), (4, True), (30, True)])
def test_arrays_that_directives_copy_once_are_in_a_data_region(tmp_path, copies, again):
    """Copies before the loop, of arrays that stay on the GPU in it."""
    export, at = Export(), 0
    for _ in range(copies):
        ends = {"kind": "H2D", "source": "pageable", "destination": "device"}
        export.copy((at, at + 50_000), (at + 1_000, at + 49_000), bytes=1 << 20, **ends)
        at += 60_000
    for number in range(30):
        at += 110_000
        export.launch((at, at + 3_000), (at + 4_000, at + 100_000), name="nvkernel_main_F1L4_2")
        export.range(f"step_{number}", at, at + 105_000)
    told = [each.action for each in found(export, tmp_path) if "pageable" in each.message]
    assert ["data region" in each for each in told] == [again]


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        ("main_46_gpu", "Make the loop parallel: acc parallel loop"),
        ("nvkernel_main_F1L4_2", "Make the loop parallel: target teams distribute"),
        ("solve(float*)", "Spread the work over more threads and blocks"),
    ],
)
@pytest.mark.parametrize("threads", [1, 128])
def test_a_loop_that_runs_on_one_thread_is_to_be_parallel(tmp_path, kernel, said, threads):
    export, grid = Export(), {"gridX": 1, "blockX": threads}
    for at in range(0, 900_000_000, 90_000_000):
        export.launch((at, at + 5_000), (at + 9_000, at + 89_000_000), name=kernel, **grid)
    assert (said in actions(export, tmp_path)) is (threads == 1)


@pytest.mark.parametrize("capability", SHARING_MEMORY)
@pytest.mark.parametrize("kernel", ["resize(float*)", "void at::native::add(int)", "cupy_add__f"])
def test_no_copy_where_cpu_and_gpu_share_memory(tmp_path, capability, kernel):
    major, minor = map(int, capability.split("."))
    gpu = {"computeMajor": major, "computeMinor": minor}
    text = actions(looping(kernel, gpu=gpu), tmp_path)
    assert "share their memory here" in text
    assert "Pin" not in text


def test_memory_that_nothing_frees_is_said(tmp_path):
    messages = " ".join(each.message for each in found(looping("solve(int)", passes=150), tmp_path))
    assert "No recorded call frees what 150 calls to cuMemAlloc allocated." in messages
