"""Copies within the memory of a GPU."""

import pytest

from tests.analyses.single_answer import ask
from tests.build import Export
from traceview.traces.analyses.memory_copies import ANALYSIS

MS = 1_000_000
ADD = "void at::native::vectorized_elementwise_kernel<(int)4, at::native::CUDAFunctor_add<float>>()"


def program(kernel="add", *, beside=False):
    """A kernel of 3 ms, then a copy of 1 ms, launched ahead of the GPU."""
    export, at = Export(), 0
    ends = {"kind": "D2D", "source": "device", "destination": "device"}
    for number in range(10):
        call = 20 * number
        export.launch((call, call + 10), (at + 20, at + 3 * MS), name=kernel)
        start = at + (MS if beside else 3 * MS)
        export.copy((call + 11, call + 19), (start, start + MS), bytes=1 << 30, **ends)
        at += 4 * MS
    return export


def test_copies_that_take_turns_with_kernels(tmp_path):
    [finding] = ask(ANALYSIS, program(), tmp_path).findings
    assert finding.message == (
        "10 copies within the memory of the GPU (D2D, 1.07 GB each) take 10.0 ms (1,074 GB/s). "
        "No kernel runs in that time."
    )
    assert finding.time_at_stake_ns == 10 * MS
    assert (finding.severity, finding.saving) == ("high", "about")
    assert finding.action.startswith("Swap buffers")


def test_copies_beside_kernels_take_no_time(tmp_path):
    assert not ask(ANALYSIS, program(beside=True), tmp_path).findings


@pytest.mark.parametrize("ranks", [False, True])
def test_torch_copies_gradients_into_buckets(tmp_path, ranks):
    export = program(ADD)
    if ranks:
        name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
        export.launch((50 * MS, 50 * MS + 5), (50 * MS + 9, 50 * MS + 99), name=name)
    [finding] = ask(ANALYSIS, export, tmp_path).findings
    assert finding.action.startswith("Write results where they are read")
    assert ("gradient_as_bucket_view=True" in finding.action) == ranks


@pytest.mark.parametrize("packed", [False, True])
def test_recurrent_layers_copy_packed_sequences(tmp_path, packed):
    export = program(ADD)
    if packed:
        name = "void elemWiseRNNcell<float, float, float, (cudnnRNNMode_t)2>(int, int)"
        export.launch((50 * MS, 50 * MS + 5), (50 * MS + 9, 50 * MS + 99), name=name)
    [finding] = ask(ANALYSIS, export, tmp_path).findings
    assert ("pack_padded_sequence" in finding.action) == packed


def in_a_loop(name: str, *, condition=False):
    """A scan of XLA whose iterations each copy what they carry."""
    export = program("loop_add_fusion")
    export.range("XlaModule:#hlo_module=jit_step,program_id=7#", 0, 40 * MS)
    export.range(f"Thunk:#name=jit(step)/{name}#", 0, 40 * MS)
    if condition:
        ends = {"kind": "D2H", "source": "device", "destination": "pinned"}
        export.copy((50, 60), (50 * MS, 50 * MS + 9), bytes=1, **ends)
    return export


@pytest.mark.parametrize(
    ("export", "unroll"),
    [
        (in_a_loop("while,hlo_op=while.4,unique_hlo_op_id=12"), True),
        (in_a_loop("jvp(Net)/RNN_0/while/body,hlo_op=copy.5"), True),
        (in_a_loop("add,hlo_op=loop_add_fusion.3"), False),
        # Nobody knows beforehand how often it goes round.
        (in_a_loop("while,hlo_op=while.4,unique_hlo_op_id=12", condition=True), False),
    ],
    ids=["loop", "body", "no loop", "condition"],
)
def test_copies_in_loops_of_xla(export, unroll, tmp_path):
    finding = ask(ANALYSIS, export, tmp_path).findings[0]
    assert ("unroll=8" in finding.action) == unroll
    assert finding.saving == ("at-least" if unroll else "about")
