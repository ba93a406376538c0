"""Attention that is not fused: softmaxes between two GEMMs."""

import pytest

from tests.analyses.single_answer import ask
from tests.build import Export
from traceview.analyses.kernel_share.analysis import ANALYSIS

GEMM = "nvjet_sm90_tst_192x192_64x4_2x1_v_bz_coopB_TNN"
SCALE = "void at::native::vectorized_elementwise_kernel<4, at::native::AUnaryFunctor<float>>"
SOFTMAX = "void at::native::(anonymous namespace)::softmax_warp_forward<float, float, float, 6>"
BACKWARD = "void at::native::(anonymous namespace)::softmax_warp_backward<float, float, float, 6>"
LOG_SOFTMAX = "void at::native::cunn_SoftMaxForward<4, at::native::LogSoftMaxForwardEpilogue>"
TOP_K = "void at::native::sbtopk::gatherTopK<float, unsigned int>"
NORM = "void at::native::vectorized_layer_norm_kernel<float, float>"


def layers_of(*names, layers=4):
    """Kernels of 100 µs, one at once after the other."""
    export, at = Export(), 0
    for name in names * layers:
        export.launch((at, at + 1), (at + 2, at + 100_002), name=name)
        at += 100_000
    return export


def told(export, folder):
    findings = ask(ANALYSIS, export, folder).findings
    return [each for each in findings if "Attention" in each.message]


def test_what_stands_between_the_gemms_could_be_saved(tmp_path):
    [finding] = told(layers_of(GEMM, SCALE, SOFTMAX, GEMM, NORM), tmp_path)

    assert finding.message == (
        "Attention is not fused: 4 softmax kernels between two GEMMs each, with what scales, masks "
        "or casts the scores, take 800 µs."
    )
    assert finding.time_at_stake_ns == 800_000
    assert finding.severity != "info"
    assert "scaled_dot_product_attention" in finding.action


def test_its_kernels_are_no_chain_to_fuse(tmp_path):
    findings = ask(ANALYSIS, layers_of(GEMM, SCALE, SOFTMAX, GEMM), tmp_path).findings
    assert not [each for each in findings if "chain" in each.message]


@pytest.mark.parametrize(
    "names",
    [
        (GEMM, SCALE, BACKWARD, GEMM),
        # The loss behind the head of a model.
        (GEMM, LOG_SOFTMAX, GEMM),
        # The router of a mixture of experts.
        (GEMM, SOFTMAX, TOP_K, GEMM),
        (GEMM, NORM, SOFTMAX, GEMM),
        (SCALE, SOFTMAX, NORM, GEMM),
    ],
)
def test_other_softmaxes_are_no_attention(names, tmp_path):
    assert not told(layers_of(*names), tmp_path)


def test_one_softmax_is_no_attention(tmp_path):
    assert not told(layers_of(GEMM, SOFTMAX, GEMM, layers=1), tmp_path)
