"""What to do about a grid depends on who launches the kernel."""

import pytest

from tests.analyses.single_answer import ask
from tests.build import Export
from traceview.traces.analyses.wave_quantization.analysis import ANALYSIS

MS = 1_000_000
NORM = "void at::native::<unnamed>::GammaBetaBackwardCUDAKernelTemplate<float, float>(long)"
OPTIMIZER = (
    "void at::native::multi_tensor_apply_kernel<at::native::FusedOptimizerTensorListMetadata<4>, "
    "at::native::FusedAdamMathFunctor<float>>(T1)"
)
GEMM = "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_64x64_32x6_nn_align4>(T1)"
INDUCTOR = "triton_per_fused_native_layer_norm_2"


def findings(name, blocks, folder, threads=1024):
    """The findings on a kernel of so many blocks, before a short kernel of the whole GPU."""
    export = Export().gpu(0, smCount=132, computeMajor=9, computeMinor=0)
    export.launch((0, 5), (10, 9 * MS), name=name, gridX=blocks, blockX=threads)
    export.launch((6, 9), (9 * MS, 9 * MS + 10), name="short", gridX=1320)
    return ask(ANALYSIS, export, folder).findings


@pytest.mark.parametrize(
    ("name", "blocks", "remedy"),
    [
        ("mine", 12, "Make the blocks smaller, or split the work along another dimension"),
        ("mine", 1, "Spread the work over more blocks: 132 give each SM one, 528 are better"),
        ("mine", 265, "Launch whole waves: 264 blocks that loop over the tiles"),
        (GEMM, 12, "Use a larger batch, or put several of these operations into one batched call"),
        (GEMM, 265, "Try nearby shapes that give 264 or 528 blocks instead of 265: another batch"),
        ("cupy_sum", 1, "Write it as a matrix product, with a vector of ones"),
    ],
)
def test_the_remedy_fits_who_owns_the_kernel(name, blocks, remedy, tmp_path):
    [finding] = findings(name, blocks, tmp_path)

    assert finding.action.startswith(remedy)
    assert finding.severity != "info"


def test_a_block_of_one_thread_cannot_be_smaller(tmp_path):
    finding = findings("mine", 1, tmp_path, threads=1)[0]

    assert finding.message.startswith("mine launches 1 block of 1 thread for 132 SMs")
    assert finding.action.startswith("Spread the work over more threads and blocks")


def test_a_grid_of_torch_is_for_information(tmp_path):
    [finding] = findings(NORM, 12, tmp_path)

    assert finding.severity == "info"
    assert finding.action.startswith("Try torch.compile, which replaces it")


@pytest.mark.parametrize(
    "name", [OPTIMIZER, INDUCTOR, "cudnn::bn_bw_1C11_kernel_new", "cupy_argmin"]
)
@pytest.mark.parametrize("blocks", [12, 265])
def test_nothing_is_said_of_grids_that_nobody_can_change(name, blocks, tmp_path):
    assert not findings(name, blocks, tmp_path)


@pytest.mark.parametrize("copied", [0.2, 0.8])
@pytest.mark.parametrize("kernels", [False, True])
@pytest.mark.parametrize("threads", [1, 32, 256])
@pytest.mark.parametrize("name", ["mine", "delay(long)", "spinKernel<int>(long)", "clock_block"])
def test_a_warp_that_may_only_wait_is_promised_nothing(name, threads, copied, kernels, tmp_path):
    """A delay is known by its name, or by the copies or kernels that run beside it."""
    export = Export().gpu(0, smCount=132, computeMajor=9, computeMinor=0)
    for number in range(4):
        at = 10 * MS * number
        export.launch((at, at + 5), (at + 10, at + 9 * MS), name=name, gridX=1, blockX=threads)
        times = (at + 6, at + 9), (at + 20, at + 20 + int(9 * MS * copied))
        if kernels:
            export.launch(*times, name="work", stream=9, gridX=132, blockX=256)
        else:
            export.copy(*times, bytes=1 << 20, source="pinned", stream=9)
        export.launch((at + 9, at + 9), (at + 9 * MS, at + 9 * MS + 10), name="short", gridX=1320)
    found = ask(ANALYSIS, export, tmp_path).findings
    waits = threads <= 32 and (name != "mine" or copied > 0.5)
    assert waits is any(each.action.startswith("If it only waits") for each in found)
    for each in found:
        assert not waits or (each.severity == "info" and each.time_at_stake_ns == 0)
        assert ("Other work runs beside it" in each.message) is (waits and copied > 0.5)
        assert ("can be saved" in each.message) is not waits
