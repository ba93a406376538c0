"""Tensors updated one by one: loops over parameters that launch a kernel or two for each."""

import pytest

from tests.analyses.single_answer import ask
from tests.build import Export
from traceview.traces.analyses.kernel_share.analysis import ANALYSIS

LERP = "void at::native::vectorized_elementwise_kernel<4, at::native::lerp_scalar_kernel<float>>"
MUL = "void at::native::vectorized_elementwise_kernel<4, at::native::AUnaryFunctor<float>>"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>"
COPY = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda>"
FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>"
SQRT = "void at::native::vectorized_elementwise_kernel<4, at::native::sqrt_kernel_cuda<float>>"
UPDATE = "void at::native::vectorized_elementwise_kernel<4, at::native::addcdiv_cuda_kernel<float>>"
GEMM = "nvjet_sm90_tst_192x192_64x4_2x1_v_bz_coopB_TNN"


def steps_of(*names, tensors=24, sizes=6, steps=4):
    """Steps of a GEMM of 100 and a loop over tensors with kernels of 2 every 4 ns."""
    export, at = Export(), 0
    for number in range(steps):
        begin = at
        export.launch((at, at + 1), (at + 1, at + 100), name=GEMM)
        at += 100
        for tensor in range(tensors):
            for name in names:
                grid = 1 + tensor % sizes
                export.launch((at, at + 1), (at + 1, at + 3), name=name, gridX=grid)
                at += 4
        export.range(f"step_{number}", begin, at)
    return export


def told(export, folder):
    findings = ask(ANALYSIS, export, folder).findings
    return [each for each in findings if "one by one" in each.message]


@pytest.mark.parametrize(("names", "each"), [((LERP,), 1), ((MUL, ADD), 2)])
def test_an_average_of_weights(names, each, tmp_path):
    [finding] = told(steps_of(*names), tmp_path)

    assert finding.message == (
        f"Tensors are updated one by one: {72 * each} elementwise kernels in 3 loops, "
        f"{24 * each} in a row, take {3 * (96 * each - 2)} ns with the gaps between them."
    )
    # A kernel of 2 ns stays of each loop.
    assert finding.time_at_stake_ns == pytest.approx(3 * (96 * each - 4), rel=0.02)
    assert finding.saving == "about"
    assert "_foreach_lerp_" in finding.action


@pytest.mark.parametrize(
    "export",
    [
        steps_of(LERP, tensors=12),
        # One tensor again and again: a loop over elements or time, which nothing foreach does.
        steps_of(LERP, sizes=2),
        steps_of(FILL),
        # Parameters that autocast or FSDP casts.
        steps_of(COPY),
        # A chain of many operations is one for a compiler to fuse.
        steps_of(LERP, MUL, ADD, COPY),
        # Once, at the start of the program.
        steps_of(LERP, steps=1),
    ],
    ids=["few tensors", "equal sizes", "fill", "casts", "chain", "once"],
)
def test_no_loop_over_tensors(export, tmp_path):
    assert not told(export, tmp_path)


@pytest.mark.parametrize("sizes", [6, 2, 1])
def test_an_optimizer_that_updates_tensor_by_tensor_becomes_a_kernel(tmp_path, sizes):
    """Of 160 launches per step, 4 µs apart, of 1 µs of work each, one stays."""
    names = (LERP, MUL, ADD, SQRT, UPDATE)
    export, at = Export(), 0
    for step in range(4):
        begin = at
        for number in range(32):
            for name in names:
                grid = 1 + number % sizes
                export.launch((at, at + 500), (at + 2_000, at + 3_000), name=name, gridX=grid)
                at += 4_000
        export.launch((at, at + 500), (at + 2_000, at + 102_000), name=GEMM)
        at += 110_000
        export.range(f"step_{step}", begin, at)

    findings = told(export, tmp_path)

    [finding] = findings
    assert finding.message.startswith("The optimizer updates its tensors one by one, 96 updates")
    assert finding.time_at_stake_ns == pytest.approx(3 * 159 * 4_000, rel=0.01)
    assert finding.severity == "high"
    others = ask(ANALYSIS, export, tmp_path).findings
    assert not [each for each in others if "chains" in each.message]
