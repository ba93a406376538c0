"""Counts in PTX: straight code is counted, everything else is left out."""

import numpy as np
import pytest

from tests.build import Export
from tests.places import DATA
from traceview.kernels.ptx.parser import parse_ptx
from traceview.traces.facts.work.from_code import ThreadWork, from_code, thread_work

KERNEL = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p)
{{
    .reg .b64 %rd<9>;
    .reg .f32 %f<9>;
    .reg .pred %p<9>;
    ld.param.u64 %rd1, [p];
{body}
    ret;
}}
"""
LOAD = "    ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1];\n"
STORE = "    @%p1 st.global.f32 [%rd1], %f1;\n"


def work_of(body):
    return thread_work(parse_ptx(KERNEL.format(body=body)).functions[0])


def test_bytes_and_flop_of_a_thread():
    body = "    mul.f32 %f1, %f1, %f2;\n    fma.rn.f32 %f1, %f1, %f2, %f3;\n"

    assert work_of(LOAD + body + STORE) == ThreadWork(20.0, 3, "fp32")


def test_a_guard_at_the_end_of_the_data_is_no_branch():
    assert work_of("    @%p1 bra $done;\n" + LOAD + "$done:") == ThreadWork(16.0, 0, None)


@pytest.mark.parametrize(
    "body",
    [
        "$again:\n" + LOAD + "    @%p1 bra $again;",
        "    @%p1 bra $a;\n" + LOAD + "    bra $b;\n$a:\n" + STORE + "$b:",
        "    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%rd1], [%rd2], 16,"
        " [%rd3];",
        "    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1}, {%f2}, {%f3}, {%f4};",
    ],
    ids=["loop", "choice", "bulk", "tensor"],
)
def test_what_is_left_out(body):
    assert work_of(body) is None


def test_threads_of_the_launch(tmp_path):
    ptx = KERNEL.format(body=LOAD + STORE)
    export = Export().code("k", ptx).launch((0, 1), (2, 9), name="k", gridX=6, blockX=64)
    export.launch((10, 11), (12, 19), name="other")

    part = from_code(export.load(tmp_path))
    assert part.bytes[0] == 20 * 6 * 64
    assert part.flop[0] == 0
    assert np.isnan(part.bytes[1])


def test_variants_that_differ_are_not_told_apart(tmp_path):
    export = Export()
    for body in (LOAD, LOAD + STORE):
        export.code("k", KERNEL.format(body=body))
    trace = export.launch((0, 1), (2, 9), name="k").load(tmp_path)

    assert np.isnan(from_code(trace).bytes).all()


def test_damaged_code_is_left_out(tmp_path):
    trace = Export().code("k", "no PTX at all {").launch((0, 1), (2, 9), name="k").load(tmp_path)

    assert np.isnan(from_code(trace).bytes).all()


@pytest.mark.parametrize(
    ("file", "kernel", "moved"),
    [("softmax-3.7.1-sm90", "softmax", 64.0), ("gelu-3.7.1-sm90", "gelu", None)],
)
def test_real_code(file, kernel, moved):
    """The softmax goes straight through; this gelu's tanh chooses between branches."""
    text = (DATA.parent / "ptx" / "data" / f"{file}.ptx").read_text()

    [found] = [thread_work(f) for f in parse_ptx(text).functions if f.name == kernel]
    assert (found and found.bytes) == moved


def test_textures_and_generic_addresses_are_not_counted():
    assert work_of("    ld.f32 %f1, [%rd1];") is None
    assert work_of("    tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [tex_a, {%f1}];") is None
    assert work_of("    ld.shared.f32 %f1, [%rd1];") == ThreadWork(0.0, 0, None)
