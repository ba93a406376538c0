"""Kernels of the forward pass that the backward pass launches once more: gradient checkpointing."""

import pytest

from tests.analyses.single_answer import ask
from tests.build import Export
from tests.places import DATA
from traceview.traces.analyses.kernel_share.analysis import ANALYSIS
from traceview.traces.analyses.kernel_share.rules import recomputed_kernels
from traceview.traces.trace.load import load

MAIN, AUTOGRAD = 1, 11
US = 1_000
UP, DOWN = "sgemm_up_tn", "sgemm_down_tn"
GELU = "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl<float>>"
GELU_BACKWARD = GELU.replace("GeluCUDA", "GeluBackwardCUDA")
GRADIENTS = [(AUTOGRAD, "sgemm_nt"), (AUTOGRAD, GELU_BACKWARD), (AUTOGRAD, "sgemm_nn")]
FORWARD = [(MAIN, UP), (MAIN, GELU), (MAIN, DOWN)]
AGAIN = [(AUTOGRAD, UP), (AUTOGRAD, GELU)]


def training(*launches, steps=4):
    """Steps of kernels of 100 µs, one after another without a gap, launched ahead of the GPU."""
    export, at = Export(), 0
    for _ in range(steps):
        for thread, name in launches:
            call, kernel = (at // 100, at // 100 + US // 2), (at + 100 * US, at + 200 * US)
            export.launch(call, kernel, thread=thread, name=name)
            at += 100 * US
    return export


def told(export, folder):
    findings = ask(ANALYSIS, export, folder).findings
    return [each for each in findings if "computes activations again" in each.message]


def test_what_the_backward_pass_computes_again(tmp_path):
    [finding] = told(training(*FORWARD, *AGAIN, *GRADIENTS), tmp_path)

    assert finding.message == (
        "The backward pass computes activations again: 8 kernels of the forward pass take 800 µs "
        "(25.0 % of kernel time)."
    )
    assert finding.time_at_stake_ns == 800 * US
    assert finding.severity == "low"  # how much memory is free is not recorded
    assert finding.saving == "about"
    assert "checkpoint fewer blocks" in finding.action


def test_only_runs_that_hold_a_kernel_of_the_forward_pass_alone(tmp_path):
    """A GEMM of one shape may be launched in either pass."""
    export = training(*FORWARD, *AGAIN, (AUTOGRAD, "sgemm_nt"), (AUTOGRAD, UP), *GRADIENTS)
    trace = export.load(tmp_path)
    assert int(recomputed_kernels(trace).sum()) == 4 * 2


def test_a_backward_pass_of_mostly_nameless_kernels(tmp_path):
    """Of Qwen2 on an H200, one in fifty that autograd's thread launches tells that it is one."""
    export = training(*FORWARD, *AGAIN, *GRADIENTS, *[(AUTOGRAD, "vectorized_elementwise")] * 40)
    assert int(recomputed_kernels(export.load(tmp_path)).sum()) == 4 * 2


def test_kernels_of_one_name_are_computed_once(tmp_path):
    """Their names are a column that stores its value once."""
    assert not recomputed_kernels(training((MAIN, UP)).load(tmp_path)).any()


@pytest.mark.parametrize(
    "launches",
    [
        [*FORWARD, *GRADIENTS],
        # Forward passes on two threads, and nothing of a backward pass.
        [*FORWARD, *AGAIN],
        # Both passes on one thread: nothing tells which one a kernel is of.
        [(MAIN, name) for _, name in (*FORWARD, *AGAIN, *GRADIENTS)],
        # The forward pass launches no such kernel.
        [(MAIN, UP), (MAIN, DOWN), *AGAIN, *GRADIENTS],
    ],
    ids=["kept", "inference", "one thread", "another kernel"],
)
def test_nothing_is_computed_again(launches, tmp_path):
    assert not told(training(*launches), tmp_path)


@pytest.mark.parametrize(("used", "severity"), [(100, "medium"), (140, "info")])
def test_memory_decides_whether_activations_can_be_kept(used, severity, tmp_path):
    export = training(*FORWARD, *AGAIN, *GRADIENTS).memory(0, bytes=used * 10**9)
    [finding] = told(export, tmp_path)
    assert finding.severity == severity
    assert f"Memory peaks at {used} GB of 150 GB." in finding.message


def test_a_real_recording():
    """Eight blocks: a GEMM and a GELU each, in each of three passes; some additions before them."""
    trace = load(DATA / "workloads" / "recomputation.sqlite.xz")
    again = trace.kernels.take(recomputed_kernels(trace))
    names = [str(name) for name in again.texts("name").decode()]
    assert sum("GeluCUDAKernelImpl" in name for name in names) == 3 * 8
    assert sum("gemm" in name for name in names) == 3 * 8
    assert again.duration_ns.sum() == pytest.approx(3 * 8 * (702_000 + 31_500), rel=0.02)
