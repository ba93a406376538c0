"""Layout conversions: their way against the PTX of real kernels, their bytes against its stores."""

import re

import pytest

from traceview.kernels.ptx.parser import parse_ptx
from traceview.kernels.ptx.ttgir.operations import (
    described,
    layout_conversions,
    reach_of,
    size_bytes,
)
from traceview.kernels.ptx.ttgir.parser import parse_ttgir

ROWS = (
    "#ttg.blocked<{sizePerThread = [1, 4], threadsPerWarp = [2, 16], warpsPerCTA = [4, 1], "
    "order = [1, 0]}>"
)
NARROW = ROWS.replace("[1, 4]", "[1, 1]")
COLUMNS = (
    "#ttg.blocked<{sizePerThread = [4, 1], threadsPerWarp = [16, 2], warpsPerCTA = [1, 4], "
    "order = [0, 1]}>"
)
MMA = "#ttg.nvidia_mma<{versionMajor = 2, warpsPerCTA = [4, 1], instrShape = [16, 8]}>"
OPERAND = f"#ttg.dot_op<{{opIdx = 0, parent = {MMA}, kWidth = 2}}>"


def test_how_far_elements_go():
    assert reach_of(ROWS, ROWS, (64, 64)) == "thread"
    assert reach_of(ROWS, NARROW, (64, 64)) == "warp"
    assert reach_of(ROWS, COLUMNS, (64, 64)) == "block"
    # An accumulator is the next product's operand as it is, where warps are below each other.
    assert reach_of(MMA, OPERAND, (64, 64)) == "thread"
    assert reach_of(ROWS, "#ttg.swizzled_shared<{}>", (64, 64)) is None


def test_sizes_and_names():
    assert size_bytes("tensor<64x32xf16, #mma>") == 4096
    assert size_bytes("tensor<64xi1, #b>") == 64
    assert size_bytes("tensor<64x!tt.ptr<f16>, #b>") == 512
    assert size_bytes("tensor<16x16xf8E4M3FN, #b>") == 256
    assert described(ROWS) == "blocked 1×4"
    assert described(f"#ttg.slice<{{dim = 1, parent = {MMA}}}>") == "slice 1 of MMA v2"
    assert described(OPERAND) == "dot operand 0"


@pytest.fixture
def tutorials():
    pytest.importorskip("torch", reason="the kernels' file imports it")
    from tests.ptx.kernels import tutorials

    return tutorials


def conversions(made):
    (function,) = parse_ptx(made.ptx).kernels()
    return layout_conversions(parse_ttgir(made.ttgir), function), function


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_a_transposition_stores_its_bytes_in_shared_memory(compile_triton, tutorials, arch):
    kernel = tutorials.transpose_kernel
    made = compile_triton(kernel, "*fp32:16, *fp32:16, i32:16, i32:16, 64", arch)
    (found,), function = conversions(made)
    assert (found.path, found.loop_depth, found.feeds_mma) == ("shared memory", 0, False)
    widths = [
        32 * int((re.search(r"\.v(\d)", i.opcode) or [0, 1])[1])
        for i in function.instructions
        if i.opcode.startswith("st.shared")
    ]
    threads = 128
    assert found.size_bytes == threads * sum(widths) // 8 == 64 * 64 * 4


def test_a_product_of_a_product_keeps_its_registers(compile_triton, tutorials):
    signature = "*fp16:16, *fp16:16, *fp16:16, *fp16:16, i32:16, fp32, 256, 64, 64, 64"
    made = compile_triton(tutorials.attention_kernel, signature, "sm_90")
    found, function = conversions(made)
    inside = [each for each in found if each.loop_depth]
    assert [(each.path, each.to_layout, each.feeds_mma) for each in inside] == [
        ("registers", "dot operand 0", True)
    ]
    at_line = [i.opcode for i in function.instructions if i.source == inside[0].source]
    assert not any(re.match(r"(st|stmatrix)\..*shared|shfl", opcode) for opcode in at_line)
