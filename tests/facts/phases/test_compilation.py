"""Windows of compilation, from samples, ranges, kernels and compiler processes."""

import numpy as np
import pytest

from tests.build import Export
from traceview.base.intervals import Intervals
from traceview.traces.facts import code
from traceview.traces.facts.compilation import compilation, compiling
from traceview.traces.facts.trials import trial_runs, with_preparation

MS = 1_000_000
MAIN = ("/home/me/train.py", 7, "<module>")
STEP = ("/lib/torch/_dynamo/eval_frame.py", 1263, "_fn")
COMPILE = ("/lib/torch/_dynamo/convert_frame.py", 1040, "compile_inner")
LOWER = ("/lib/torch/_inductor/graph.py", 500, "run_node")
PTXAS = ("/lib/triton/backends/nvidia/compiler.py", 300, "make_cubin")
IMPORT = ("<frozen importlib._bootstrap>", 1360, "_find_and_load")


def windows(trace):
    found = compilation(trace)
    return [
        (start // MS, end // MS, code.TOOLS[tool])
        for start, end, tool in zip(
            found.start_ns.tolist(), found.end_ns.tolist(), found.tool.tolist(), strict=True
        )
    ]


def launching(*times):
    """A launch at each of these times, in ms, of a kernel of 1 ms."""
    export = Export()
    for time in times:
        at = time * MS
        export.launch((at, at + 5_000), (at + 10_000, at + MS))
    return export


def sampled(export, start, end, *frames):
    """A sample each millisecond."""
    for time in range(start, end):
        export.python_sample(time * MS, *frames, MAIN)
    return export


def test_samples_in_a_compiler_are_compilation(tmp_path):
    export = launching(0, 200, 210)
    sampled(export, 10, 20, STEP)
    sampled(export, 20, 180, LOWER, COMPILE, STEP)
    sampled(export, 180, 210, STEP)

    assert windows(export.load(tmp_path)) == [(20, 180, "torch.compile")]


def test_a_stack_names_the_outermost_compiler(tmp_path):
    export = sampled(launching(0, 200), 20, 180, PTXAS, COMPILE)

    assert [tool for *_, tool in windows(export.load(tmp_path))] == ["torch.compile"]


@pytest.mark.parametrize(
    "frames",
    [
        # An import of the compiler, a compiled function at work, the end of the program.
        (("/lib/torch/_inductor/lowering.py", 1, "register_lowering"), IMPORT),
        (("/lib/torch/_inductor/lowering.py", 1, "<module>"),),
        (("/lib/torch/_inductor/compile_fx.py", 1875, "run"), STEP),
        (("/lib/torch/_inductor/async_compile.py", 9, "shutdown_compile_workers"),),
        # The launch of a compiled kernel.
        (("/lib/triton/compiler/compiler.py", 487, "launch_metadata"), STEP),
        (("/lib/triton/compiler/compiler.py", 420, "__getattribute__"), STEP),
        (("/lib/triton/backends/nvidia/compiler.py", 70, "get_arg_specialization"), STEP),
        (("/lib/triton/runtime/autotuner.py", 400, "all_kwargs"), STEP),
        # torch 2.3 runs compiled code in files of the compiler.
        (("/lib/torch/_inductor/codecache.py", 1164, "__call__"), STEP),
        (
            ("/lib/torch/_inductor/compile_fx.py", 930, "copy_misaligned_inputs"),
            ("/lib/torch/_inductor/compile_fx.py", 979, "run"),
            ("/lib/torch/_inductor/codecache.py", 1164, "__call__"),
            STEP,
        ),
    ],
)
def test_what_runs_or_imports_a_compiler_is_no_compilation(tmp_path, frames):
    export = sampled(launching(0, 200), 20, 180, *frames)

    assert windows(export.load(tmp_path)) == []


@pytest.mark.parametrize(("every", "compiles"), [(2, True), (5, True), (15, False), (40, False)])
@pytest.mark.parametrize("tool", [PTXAS, LOWER])
def test_frames_of_a_compiler_that_launches_pass_now_and_then(tmp_path, tool, every, compiles):
    """Steps of compiled code launch all the time, and enter a file of the compiler for a moment."""
    export = launching(0, *range(20, 180, 7), 200)
    for time in range(20, 180):
        export.python_sample(time * MS, *((tool,) if time % every == 0 else ()), STEP, MAIN)

    assert bool(windows(export.load(tmp_path))) is compiles


def test_a_compiler_below_running_code_compiles(tmp_path):
    run = ("/lib/torch/_inductor/compile_fx.py", 1875, "run")
    export = sampled(launching(0, 200), 20, 180, PTXAS, run, STEP)

    assert windows(export.load(tmp_path)) == [(20, 180, "Triton")]


RANGES = {
    "FusionKernelRuntime::compileFusionParallel": "nvFuser",
    "executor_utils::NVRTC": "nvFuser",
    "executor_utils::Nvrtc::CompileProgram": "nvFuser",
    "nvrtcCompileProgram": "NVRTC",
    "mylib::nvrtc::build(kernel_7)": "NVRTC",
    "_compile.compile_inner (dynamo_timed)": "torch.compile",
    "compile_fx.<locals>.fw_compiler_base (dynamo_timed)": "torch.compile",
    "backward._backward_impl (dynamo_timed)": "torch.compile",
}


@pytest.mark.parametrize(("name", "tool"), RANGES.items())
def test_ranges_around_compilation(tmp_path, name, tool):
    export = launching(0, 300).range("call", 10 * MS, 290 * MS).range(name, 20 * MS, 280 * MS)

    assert windows(export.load(tmp_path)) == [(20, 280, tool)]


@pytest.mark.parametrize(
    "name",
    [
        *("executor_utils::validateKernelInputs", "runFusionWithInputs", "recompile", "renvrtc"),
        *("Torch-Compiled Region: 0/0", "TorchDynamo Cache Lookup", "CompiledFunction"),
    ],
)
def test_other_ranges_are_no_compilation(tmp_path, name):
    assert windows(launching(0, 300).range(name, 20 * MS, 280 * MS).load(tmp_path)) == []


GENERATED = {
    "cupy_add__float32_float32_float32": "CuPy",
    "_ZN6cudapy8__main__3addB2v1B94cw51cXTLSUwv1sCUt9Uw1E5ArrayIfLi1E1C7mutable7alignedE": "Numba",
    "integrate_3f1a_cuda_kernel_forward": "Warp",
    "nvfuser_pointwise_f0_c1_r0_g0": "nvFuser",
    "CudaCodeGen::kernel12": "nvFuser",
    "loop_add_fusion_2": "XLA",
    "fusion_3": "XLA",
}


@pytest.mark.parametrize(("name", "tool"), GENERATED.items())
@pytest.mark.parametrize("load", ["cuModuleLoadData", "cuModuleLoadDataEx", "cuLibraryLoadData"])
@pytest.mark.parametrize("asks", ["cuCtxSetCurrent", "cuMemGetInfo", "cudaGetDevice", None])
def test_the_first_call_of_a_generated_kernel_compiles_it(tmp_path, name, tool, load, asks):
    """The thread is silent, loads the code and launches it: again after each new kernel."""
    export, at = Export(), 0
    for number in range(3):
        if asks:
            export.call(asks, at + 199 * MS, at + 199 * MS + 50_000)
        export.call(load, at + 200 * MS, at + 201 * MS)
        times = (at + 202 * MS, at + 203 * MS), (at + 204 * MS, at + 205 * MS)
        export.launch(*times, name=f"{name}{number}" if tool == "nvFuser" else name)
        at += 210 * MS
    assert windows(export.load(tmp_path)) == [(203, 620, tool)]


@pytest.mark.parametrize("name", ["my_own_kernel", "at::native::vectorized_elementwise_kernel"])
def test_loading_the_code_of_other_kernels_is_no_compilation(tmp_path, name):
    export = launching(0).call("cuModuleLoadData", 200 * MS, 201 * MS)
    export.launch((202 * MS, 203 * MS), (204 * MS, 205 * MS), name=name)
    assert windows(export.load(tmp_path)) == []


def test_a_compiler_that_holds_the_interpreter_takes_no_samples(tmp_path):
    """The sampler needs the lock that XLA holds: no sample falls between the first and the last."""
    backend = ("/lib/jax/_src/compiler.py", 395, "backend_compile_and_load")
    export = launching(0, 4000)
    for time in (20, 21, 3500, 3501):
        export.python_sample(time * MS, backend, MAIN)

    [(start, end, tool)] = windows(export.load(tmp_path))

    assert (start, end, tool) == (20, 3502, "XLA")


def test_a_thread_that_calls_no_cuda_compiles_beside_the_program(tmp_path):
    export = launching(0, 200)
    for time in range(20, 180):
        export.python_sample(time * MS, COMPILE, MAIN, thread=5)

    assert windows(export.load(tmp_path)) == []


def test_a_compiler_process_explains_a_stretch_without_launches(tmp_path):
    export = launching(0, 500, 510)
    export.overhead(100 * MS, 101 * MS, process=7, thread=0).named_thread(0, "ptxas", process=7)
    export.overhead(505 * MS, 506 * MS, process=8, thread=0).named_thread(0, "ptxas", process=8)

    assert windows(export.load(tmp_path)) == [(0, 500, "a compiler")]


def test_the_kernels_that_ran_tell_which_tool_started_a_compiler_process(tmp_path):
    export = launching(0, 500)
    export.launch((510 * MS, 511 * MS), (512 * MS, 513 * MS), name="triton_poi_fused_add_0")
    export.overhead(100 * MS, 101 * MS, process=7, thread=0).named_thread(0, "gcc", process=7)

    assert windows(export.load(tmp_path)) == [(0, 500, "torch.compile")]


def test_samples_and_processes_of_one_tool_add_up(tmp_path):
    export = sampled(launching(0, 600), 10, 100, COMPILE)
    export.launch((610 * MS, 611 * MS), (612 * MS, 613 * MS), name="triton_poi_fused_add_0")
    for process, at in ((7, 200), (8, 400)):
        export.overhead(at * MS, (at + 1) * MS, process=process, thread=0)
        export.named_thread(0, "gcc", process=process)

    assert windows(export.load(tmp_path)) == [(10, 400, "torch.compile")]


def test_trials_of_the_configurations_of_a_kernel_are_compilation(tmp_path):
    trial = ("/lib/torch/_inductor/runtime/benchmarking.py", 310, "benchmark_gpu")
    run = ("/lib/torch/_inductor/runtime/triton_heuristics.py", 1400, "run")
    export = sampled(launching(0, *range(100, 200, 10)), 20, 100, trial, run, STEP)
    sampled(export, 100, 190, run, STEP)

    assert windows(export.load(tmp_path)) == [(20, 100, "torch.compile")]


def test_another_helper_process_explains_nothing(tmp_path):
    export = launching(0, 500, 510)
    export.overhead(100 * MS, 101 * MS, process=7, thread=0).named_thread(0, "python3", process=7)

    assert windows(export.load(tmp_path)) == []


def test_xla_says_itself_when_it_compiles(tmp_path):
    export = launching(0, 500)
    export.range("XlaCompile:#module=jit_step#", 50 * MS, 300 * MS, domain="TSL")
    export.range("XlaCompile:#module=mine#", 350 * MS, 450 * MS)

    assert windows(export.load(tmp_path)) == [(50, 300, "XLA")]


def test_a_range_of_xla_after_the_last_work_has_lost_its_end(tmp_path):
    export = launching(0, 500)
    export.range("XlaCompile:#module=jit_step#", 50 * MS, 300 * MS, domain="TSL")
    export.range("XlaPassPipeline:#name=x#", 100 * MS, 900 * MS, domain="TSL", thread=2)

    assert windows(export.load(tmp_path)) == [(50, 300, "XLA")]


def test_loading_code_is_no_compilation(tmp_path):
    export = launching(0, 500).call("cuModuleLoadData", 10 * MS, 490 * MS)

    assert windows(export.load(tmp_path)) == []


def test_work_between_two_compilations_keeps_them_apart(tmp_path):
    export = launching(0, 105, 130, 155, 400)
    for start, end in ((20, 100), (160, 220)):
        sampled(export, start, end, COMPILE)

    assert [row[:2] for row in windows(export.load(tmp_path))] == [(20, 103), (160, 220)]


def test_time_counts_as_compilation_if_most_of_it_is(tmp_path):
    trace = sampled(launching(0, 200), 20, 180, COMPILE).load(tmp_path)

    start, end = np.array([0, 150 * MS]), np.array([100 * MS, 250 * MS])
    assert compiling(trace, start, end).tolist() == [True, False]


def runs(text, convolutions="abcdef", layout="-"):
    name = np.array([ord(letter) for letter in text])
    is_convolution = np.array([letter in convolutions for letter in text])
    is_layout = np.array([letter in layout for letter in text])
    first, last = trial_runs(name, is_convolution, is_layout)
    return [text[begin : end + 1] for begin, end in zip(first, last, strict=True)]


def test_each_algorithm_runs_twice_in_a_trial():
    assert runs("xa-a-b-b-c-cxax") == ["a-a-b-b-c-c"]


def test_convolutions_of_a_network_are_no_trial():
    # Apart by other kernels, all of one name, none twice, or the same in each pass.
    assert runs("axbxcxaxbxcx") == []
    assert runs("xaaaaaaaax") == []
    assert runs("xabcdefabcdefx") == []
    assert runs("xaabbccx" * 4) == []


def test_idle_time_before_kernels_of_cudnn_near_a_trial_belongs_to_it():
    def ms(*times):
        return np.array(times, np.int64) * MS

    # Idle before the operations at 140 (cuDNN, near), 700 (not cuDNN), 703 (short) and 800 (far).
    start, end = ms(100, 140, 700, 703, 800), ms(110, 141, 701, 704, 801)
    by_cudnn = np.array([True, True, False, True, True])
    found = with_preparation(Intervals(ms(100), ms(110)), start, end, by_cudnn)

    assert (found.start // MS).tolist() == [100]
    assert (found.end // MS).tolist() == [140]
