"""Occupancy at other warps, stages and tiles: which are compiled, and each figure anew."""

import re
import subprocess

import pytest

import traceview
from tests.inspect.rules.written_ptx import need
from tests.places import DATA, REPOSITORY
from tests.ptx.compiled_kernels import a_compiled
from traceview.base.errors import TraceviewError
from traceview.kernels.inspect.kernel_report import limited_by
from traceview.kernels.inspect.what_if import MOST_CONFIGURATIONS, neighbours, what_if
from traceview.kernels.ptx.model import Argument
from traceview.kernels.toolchain import tools

LOOP = {"ttgir": "%1:2 = scf.for %i = %c0 to %n step %c1"}


def tiles(**sizes):
    return tuple(Argument(name, "constexpr", value=size) for name, size in sizes.items())


def described(**fields):
    return [change.description for change in neighbours(a_compiled(**fields))]


def test_warps_stages_and_tiles_change_alone_and_in_pairs():
    found = described(
        num_warps=4, num_stages=2, stages=LOOP, arguments=tiles(BLOCK=64, HEAD_DIM=64, EVEN=True)
    )
    alone = ["num_warps=2", "num_warps=8", "num_stages=1", "num_stages=3", "BLOCK=32", "BLOCK=128"]
    assert found[:6] == alone
    assert found[6:10] == [f"num_warps={w}, num_stages={s}" for w in (2, 8) for s in (1, 3)]
    assert len(found) == len(set(found)) == 6 + 3 * 4


def test_stages_matter_only_in_a_loop_and_limits_hold():
    assert described(num_warps=1, num_stages=3) == ["num_warps=2"]
    assert described(num_warps=32, num_stages=1, stages=LOOP)[:2] == [
        "num_warps=16",
        "num_stages=2",
    ]
    assert described(num_warps=None, arguments=tiles(BLOCK=16)) == ["BLOCK=32"]
    assert described(num_warps=None, arguments=tiles(BLOCK=100)) == []
    many = described(num_stages=3, stages=LOOP, arguments=tiles(BLOCK_M=64, BLOCK_N=64, BLOCK_K=64))
    assert len(many) == MOST_CONFIGURATIONS


def test_time_ends_it_and_what_does_not_compile_says_why():
    def refuse(change, following):
        raise TraceviewError(f"k does not compile with {change.description}: tl.dot needs K >= 16")

    times = iter([0.0, 1.0, 2.0, 31.0, 32.0])
    compiled = a_compiled(num_warps=4, arguments=tiles(BLOCK=64))
    rows, notes = what_if(compiled, refuse, None, time_s=30.0, clock=lambda: next(times))
    assert notes == ("what-if: 6 configurations not compiled within 30 s",)
    failures = [row for row in rows if not row.current]
    assert [(row.num_warps, row.tile) for row in failures] == [
        (2, (("BLOCK", 64),)),
        (8, (("BLOCK", 64),)),
    ]
    assert {limited_by(row) for row in failures} == {"does not compile: tl.dot needs K >= 16"}


@pytest.fixture(scope="module")
def gelu():
    pytest.importorskip("triton", reason="compiles with Triton")
    need("ptxas", "cuobjdump")
    report = traceview.inspect_ptx(REPOSITORY / "examples" / "gelu.py", what_if=True, sm_count=132)
    return report.kernels[0]


@pytest.mark.programs
def test_each_row_is_what_triton_compiles(gelu, compile_triton, tmp_path):
    """Registers from cuobjdump; blocks by the formulas for sm_90 of the programming guide."""
    from examples.gelu import gelu_kernel

    assert {(row.num_warps, dict(row.tile)["BLOCK"]) for row in gelu.what_if} == {
        (warps, block) for warps in (2, 4, 8) for block in (512, 1024, 2048)
    }
    for row in gelu.what_if:
        block = dict(row.tile)["BLOCK"]
        signature = f"*fp32:16, *fp32:16, i32, {block}"
        made = compile_triton(gelu_kernel, signature, "sm_90", num_warps=row.num_warps)
        (tmp_path / "k.cubin").write_bytes(made.cubin)
        tool = tools.find_newest("cuobjdump")[0]
        usage = subprocess.run(
            [tool, "-res-usage", tmp_path / "k.cubin"], capture_output=True, text=True
        ).stdout
        registers = int(re.search(r"REG:(\d+)", usage)[1])
        per_warp = -(-32 * registers // 256) * 256
        by_registers = 4 * (16_384 // per_warp) // row.num_warps
        blocks = min(64 // row.num_warps, 32, by_registers)
        assert (row.registers, row.occupancy.blocks_per_sm) == (registers, blocks)
        # The program passes a fixed grid, which is that of another tile.
        waves = pytest.approx(-(-1_000_003 // block) / (132 * blocks))
        assert row.waves == (waves if block == 1024 else None)
        assert row.occupancy.theoretical_occupancy_pct == 100 * blocks * row.num_warps / 64


def test_the_kernel_as_it_is_is_one_of_them(gelu):
    (now,) = (row for row in gelu.what_if if row.current)
    assert (now.registers, now.num_warps) == (gelu.registers, gelu.compiled.num_warps)
    assert now.occupancy == gelu.occupancy
    assert now.waves == gelu.waves


def test_a_file_that_is_no_source_says_so():
    notes = []
    report = traceview.inspect_ptx(
        DATA / "gelu-nvrtc-12.9-sm90.ptx", what_if=True, note=notes.append
    )
    assert report.kernels[0].what_if == ()
    assert notes == [
        f"{DATA / 'gelu-nvrtc-12.9-sm90.ptx'} is not a Triton source, so it does not use --what-if"
    ]


def test_options_that_a_target_does_not_take_are_told(tmp_path):
    notes, ptx = [], DATA / "gelu-nvrtc-12.9-sm90.ptx"
    given = {"signature": "*fp32", "constexprs": {"N": 1}, "guess": True, "arguments": ["1"]}
    traceview.inspect_ptx(ptx, num_warps=4, **given, note=notes.append)
    assert notes == [
        f"{ptx} is not a Triton source, so it does not use --signature, --constexpr, --guess, "
        "arguments after --"
    ]
    with pytest.raises(traceview.TraceviewError, match="holds no CUDA kernel"):
        traceview.inspect_ptx(tmp_path, num_warps=4, note=notes.append)
    assert notes[1:] == [f"{tmp_path} is not a Triton source, so it does not use --num-warps"]
