"""Attention that is not fused: a softmax between two GEMMs."""

import pytest

from tests.analyses.kernel_share.test_fusion import ADD, CAST, GEMM, NORM, steps_of
from tests.analyses.single_answer import ask
from tests.build import Export
from traceview.traces.analyses.kernel_share.analysis import ANALYSIS

SOFTMAX = (
    "void <unnamed>::softmax_warp_forward<float, float, float, (int)11, (bool)0, (bool)0>(T2 *)"
)
LOG_SOFTMAX = (
    "void <unnamed>::softmax_warp_forward<float, float, float, (int)11, (bool)1, (bool)0>(T2 *)"
)
BACKWARD = (
    "void <unnamed>::softmax_warp_backward<float, float, float, (int)11, (bool)0, (bool)0>(T2 *)"
)
TOP_K = "void at::native::sbtopk::gatherTopK<float, unsigned int>"
NLL = "void at::native::<unnamed>::nll_loss_forward_reduce_cuda_kernel_2d<float>(int)"


def attention(export, tmp_path):
    findings = ask(ANALYSIS, export, tmp_path).findings
    return [each for each in findings if each.message.startswith("Attention")]


def test_what_runs_between_the_products_is_saved(tmp_path):
    forward = ((GEMM, 500), (CAST, 50), (SOFTMAX, 100), (CAST, 60), (GEMM, 500), (NORM, 30))
    backward = ((GEMM, 500), (CAST, 20), (BACKWARD, 100), (GEMM, 500), (ADD, 10))

    [finding] = attention(steps_of(*forward, *backward), tmp_path)

    assert finding.time_at_stake_ns == 4 * (50 + 100 + 60 + 20 + 100)
    assert finding.saving == "at-least"
    assert finding.message == (
        "Attention is not fused. 8 softmaxes run between two GEMMs each, and the 20 kernels "
        "between these take 1.32 µs (13.9 % of kernel time). A fused kernel needs "
        "none of them."
    )
    assert finding.action.startswith("Use torch.nn.functional.scaled_dot_product_attention")


def test_fused_kernels_multiply_fp32_more_slowly(tmp_path):
    product = "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_warpgroupsize1x1x1"

    export = steps_of((product, 500), (SOFTMAX, 300), (ADD, 10), (product, 500))
    [finding] = attention(export, tmp_path)

    assert finding.saving == "at-most"
    assert finding.action.endswith("In bf16 or fp16 that saves more than in fp32.")


def test_a_gpu_that_waits_for_the_cpu_gains_the_launches(tmp_path):
    """Of four launches of 5 µs, and the 15 µs of CPU time between them, one stays."""
    export, at = Export(), 0
    for name in (GEMM, SOFTMAX, CAST, GEMM) * 20:
        export.launch((at, at + 5_000), (at + 6_000, at + 10_000), name=name)
        at += 20_000

    [finding] = attention(export, tmp_path)

    # The last product of the recording takes 4 µs more: it is both.
    assert finding.time_at_stake_ns == 20 * 60_000 - 4_000


def test_what_attention_saves_is_no_chain_as_well(tmp_path):
    launches = (GEMM, 500), (CAST, 50), (SOFTMAX, 100), (CAST, 60), (GEMM, 500)

    findings = ask(ANALYSIS, steps_of(*launches), tmp_path).findings

    assert not [each for each in findings if "chain" in each.message]


@pytest.mark.parametrize(
    "launches",
    [
        # A loss, with its derivative, a norm, other work of a loss, a choice of experts.
        [(GEMM, 500), (LOG_SOFTMAX, 300), (NLL, 10), (GEMM, 500)],
        [(GEMM, 500), (SOFTMAX, 300), (BACKWARD, 300), (GEMM, 500)],
        [(GEMM, 500), (SOFTMAX, 300), (NORM, 90), (GEMM, 500)],
        [(GEMM, 500), (LOG_SOFTMAX, 300), (ADD, 90), (GEMM, 500)],
        [(GEMM, 500), (SOFTMAX, 300), (TOP_K, 90), (GEMM, 500)],
    ],
)
def test_other_softmaxes(launches, tmp_path):
    assert not attention(steps_of(*launches), tmp_path)


@pytest.mark.parametrize("direction", ["H2D", "D2D"])
def test_copies_between_host_and_gpu_divide_passes(direction, tmp_path):
    launches = (GEMM, 500), (GEMM, 500), (SOFTMAX, 300)
    export = steps_of(*launches)
    for number in range(1, 4):
        at = number * 1300
        export.copy((at - 20, at - 10), (at - 2, at - 1), kind=direction)

    assert bool(attention(export, tmp_path)) == (direction == "D2D")


@pytest.mark.parametrize(
    ("frame", "remedy"),
    [
        (("/lib/torch/nn/functional.py", 6400, "multi_head_attention_forward"), "need_weights"),
        (("/lib/transformers/models/x.py", 40, "eager_attention_forward"), "Load the model"),
        (("/home/me/model.py", 40, "forward"), "Use torch.nn.functional"),
    ],
)
def test_the_remedy_is_for_what_the_samples_show(frame, remedy, tmp_path):
    export = steps_of((GEMM, 500), (SOFTMAX, 300), (ADD, 10), (GEMM, 500))
    export.python_sample(10, frame)

    [finding] = attention(export, tmp_path)

    assert remedy in finding.action


def test_backward_four_products_are_one_launch(tmp_path):
    """Of five launches, 20 µs apart, one stays; a product of a layer behind others is none."""
    export, at = Export(), 0
    for name in (GEMM, GEMM, BACKWARD, GEMM, GEMM, NORM, GEMM, NORM) * 20:
        export.launch((at, at + 5_000), (at + 6_000, at + 7_000), name=name)
        at += 20_000

    [finding] = attention(export, tmp_path)

    assert finding.time_at_stake_ns == 20 * 4 * 20_000
    assert finding.severity == "high"


def test_attention_is_told_at_the_line_of_its_softmax(tmp_path):
    lines = {GEMM: 30, CAST: 31, SOFTMAX: 32, ADD: 33, BACKWARD: 50}
    export, at = Export(), 0
    for name in (GEMM, CAST, SOFTMAX, ADD, GEMM, GEMM, BACKWARD, CAST, GEMM) * 20:
        export.python_sample(at - 10_000, ("model.py", lines[name], "forward"))
        export.launch((at, at + 5_000), (at + 6_000, at + 10_000), name=name)
        at += 20_000

    [finding] = attention(export, tmp_path)

    assert " Most are launched at model.py:32 in forward." in finding.message
