"""Copies and products in flight: by hand, and against what num_stages means."""

import pytest

from traceview.kernels.ptx.accesses import async_waits
from traceview.kernels.ptx.instruction_mix import instruction_mix
from traceview.kernels.ptx.parser import parse_ptx
from traceview.kernels.ptx.ttgir.loop_loads import pipeline_buffers
from traceview.kernels.ptx.ttgir.parser import parse_ttgir

COPY = "cp.async.cg.shared.global [%r1], [%rd1], 16; cp.async.commit_group;"
MMA = "fma.rn.f32 %f1, %f2, %f3, %f1;"
LOOP = """.version 8.7
.target sm_90
.visible .entry k(.param .u64 p) {{
.loc 1 3 1
{before}
.loc 1 5 1
AGAIN: {body}
@%p1 bra AGAIN;
cp.async.wait_group 0;
ret;
}}
.file 1 "k.py"
"""


def waits(body, before=""):
    (function,) = parse_ptx(LOOP.format(body=body, before=before)).kernels()
    return async_waits(function, instruction_mix(function))


def test_two_in_flight_of_which_one_is_waited_for():
    (found,) = waits(f"cp.async.wait_group 1; {MMA} {COPY}", COPY * 2)
    assert (found.kind, found.in_flight, found.left) == ("cp.async", 2, 1)
    assert found.meanwhile == {"fp32": 1}
    assert not found.is_serial
    assert found.source.line == 5


@pytest.mark.parametrize(
    ("body", "meanwhile"),
    [
        (f"{COPY} cp.async.wait_group 0x0; {MMA}", {}),
        (f"{MMA} {COPY} cp.async.wait_all;", {}),
        # What is used is copied an iteration before, but after the arithmetic.
        (f"cp.async.wait_group 0; {MMA} {COPY}", {}),
        (f"cp.async.wait_group 0; {COPY} {MMA}", {"fp32": 1}),
    ],
)
def test_a_wait_for_all_is_serial_only_with_nothing_between(body, meanwhile):
    (found,) = waits(body, COPY)
    assert found.left == 0
    assert found.meanwhile == meanwhile
    assert found.is_serial == (not meanwhile)


def test_products_and_stores_have_groups_of_their_own():
    products = "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%f1}, %rd1, %rd2, 1, 1, 1;"
    found = waits(
        f"{products} wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 1;"
        "cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;"
    )
    assert [(w.kind, w.in_flight, w.left) for w in found] == [("wgmma", 2, 1), ("bulk store", 1, 0)]
    assert found[0].meanwhile == {"MMA": 1}


def test_a_tma_load_is_in_flight_until_its_barrier_is_waited_for():
    arrive = "mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 1024;"
    wait = "SPIN: mbarrier.try_wait.parity.shared.b64 %p2, [%r2], %r3; @!%p2 bra SPIN;"
    (found,) = waits(f"{wait} {MMA} {arrive}", arrive * 3)
    assert (found.kind, found.in_flight, found.left) == ("TMA", 3, 2)


def test_no_loop_no_waits():
    (function,) = parse_ptx(LOOP.format(body=MMA, before="").replace("@%p1 bra", "//")).kernels()
    assert async_waits(function, instruction_mix(function)) == ()


@pytest.mark.parametrize("stages", [2, 3, 4, 5])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_stages_are_tiles_in_flight(compile_triton, arch, stages):
    pytest.importorskip("torch", reason="the kernels' file imports it")
    from tests.ptx.kernels.tutorials import attention_kernel

    signature = "*fp16:16, *fp16:16, *fp16:16, *fp16:16, i32:16, fp32, 1024, 64, 64, 32"
    made = compile_triton(attention_kernel, signature, arch, num_stages=stages)
    (function,) = parse_ptx(made.ptx).kernels()
    copies = [
        wait for wait in async_waits(function, instruction_mix(function)) if wait.kind == "cp.async"
    ]
    buffers = pipeline_buffers(parse_ttgir(made.ttgir))
    assert [each.variable for each in buffers] == ["k", "v"]
    (count,) = {each.count for each in buffers}
    assert {each.size_bytes for each in buffers} == {count * 32 * 64 * 2}
    # Each stage but the one in use has its k and its v in flight when the first wait begins.
    assert max(wait.in_flight for wait in copies) == 2 * (stages - 1)
    assert count in (stages - 1, stages)
