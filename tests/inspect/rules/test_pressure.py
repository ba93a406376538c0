"""Spills, serialised wgmma and low occupancy, on kernels of Triton's.

Every remedy that is not called likely was recompiled, and its numbers are those of the cubin.
"""

from pathlib import Path

import pytest

from tests.inspect.retried import Retried, allow
from tests.inspect.rules import findings_by
from tests.ptx.compiled_kernels import a_compiled, a_line, an_access
from traceview.base import units
from traceview.base.errors import TraceviewError
from traceview.base.hardware import limits_of, occupancy
from traceview.kernels.headless.compile_options import Change
from traceview.kernels.inspect.kernel_context import KernelContext
from traceview.kernels.inspect.kernel_report import SmCount
from traceview.kernels.inspect.recompilations import MOST_TRIALS, Recompilations
from traceview.kernels.inspect.rules.global_memory import local_memory, spills
from traceview.kernels.inspect.rules.occupancy import low_occupancy, serialized_wgmma
from traceview.kernels.inspect.rules.remedies import fewer_stages, more_warps, smaller_tiles
from traceview.kernels.ptx.model import Argument, Function, Instruction, Resources
from traceview.kernels.toolchain.listings import Code

POINTERS = "*fp32:16, *fp32:16"
HALVES = "*fp16:16, *fp16:16, *fp32:16, i32:16, i32:16"
FLOATS = "*fp32:16, *fp32:16, *fp32:16, i32:16, i32:16"
SERIALISED = "(C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due "


@pytest.fixture
def kernels(triton_cache, monkeypatch):
    allow(triton_cache, monkeypatch)
    from tests.inspect.rules import kernels_under_pressure

    return kernels_under_pressure


def a_kernel(
    stack_bytes=0, spill_bytes=0, ptx=None, registers=32, resources=True, **changes
) -> KernelContext:
    """A kernel with such resources, without code unless told otherwise."""
    taken = Resources(registers, stack_bytes, spill_bytes, 0, 0) if resources else None
    code = Code(ptx, None, taken, (), ())
    return KernelContext(**({"compiled": a_compiled(), "code": code} | changes))


def does_not_compile(change, following):
    raise TraceviewError("does not compile")


@pytest.mark.programs
def test_more_warps_end_the_spills_and_the_bytes_are_measured(kernels):
    tried = Retried(kernels.softmax, f"{POINTERS}, i32:16, 16384", num_warps=2, sass=False)
    report = tried.report()
    (finding,) = (f for f in report.findings if "spills" in f.message)
    assert report.spill_bytes > 0
    assert finding.action == "Use num_warps=4"
    assert finding.evidence.basis.endswith(
        f"recompiled with num_warps=4: {report.spill_bytes:,} → 0 bytes spilled"
    )
    followed = Retried(kernels.softmax, tried.signature, num_warps=4, sass=False).alone()
    assert followed.spill_bytes == 0


@pytest.mark.programs
def test_wgmma_that_is_serialised_for_want_of_registers(kernels):
    unpipelined = {"num_stages": 1, "sass": False}
    tried = Retried(kernels.matmul, f"{HALVES}, 128, 256, 32", **unpipelined)
    finding = tried.only("serializes")
    assert (finding.severity, finding.action) == ("high", "Use num_warps=8")
    assert "insufficient register resources" in finding.evidence.basis
    assert finding.evidence.basis.endswith("recompiled with num_warps=8: no such remark")
    followed = Retried(kernels.matmul, tried.signature, num_warps=8, **unpipelined).alone()
    assert followed.compiled.notes == ()


@pytest.mark.programs
def test_two_changes_together_where_none_alone_does(kernels):
    tried = Retried(kernels.matmul, f"{HALVES}, 256, 256, 16", num_stages=1, sass=False)
    finding = tried.only("serializes")
    assert finding.action.startswith("Use num_warps=8 and a smaller tile (BM=128)")
    assert "recompiled with BM=128, num_warps=8: no such remark" in finding.evidence.basis


@pytest.mark.programs
def test_low_occupancy_by_shared_memory(kernels):
    signature = f"{HALVES}, 128, 128, 64"
    tried = Retried(kernels.matmul, signature, "sm_80", num_stages=3, sass=False)
    report = tried.report()
    (finding,) = (f for f in report.findings if "occupancy" in f.message)
    assert f"limited by {' and '.join(report.occupancy.limiters)}" in finding.message
    pct = report.occupancy.theoretical_occupancy_pct
    assert f"{pct:.1f} → " in finding.evidence.basis
    assert finding.action.endswith("and measure it")
    assert len(tried.changes) == len(set(tried.changes)) <= MOST_TRIALS


def test_low_occupancy_by_registers_is_tried_with_fewer_of_them(kernels):
    tried = Retried(kernels.softmax, f"{POINTERS}, i32:16, 16384", num_warps=4, sass=False)
    report = tried.report()
    asked = [change.max_registers for change in tried.changes if change.max_registers]
    (limit,) = asked
    (finding,) = (f for f in report.findings if "occupancy" in f.message)
    # Each block loads a row of 64 KiB at once: memory has enough to do.
    in_flight = units.quantity("bytes", report.occupancy.blocks_per_sm * 2**16)
    assert finding.severity == "info"
    assert f"; {in_flight} of loads in flight per SM" in finding.evidence.basis
    before = report.occupancy.blocks_per_sm
    assert report.occupancy.limiters == ("registers",)
    assert occupancy(limits_of("9.0"), 128, limit).blocks_per_sm == before + 1
    assert occupancy(limits_of("9.0"), 128, limit + 8).blocks_per_sm == before


def test_a_remedy_that_brings_spills_is_not_recommended():
    low = occupancy(limits_of("sm_90"), 128, 255)
    lean = a_compiled(num_warps=4)

    class Spilling:
        occupancy = occupancy(limits_of("sm_90"), 128, 64)
        spill_bytes = 96

    trials = Recompilations(does_not_compile)
    trials._outcomes = {Change(max_registers=168): Spilling()}
    kernel = a_kernel(compiled=lean, occupancy=low, trials=trials, registers=255)
    (finding,) = findings_by(low_occupancy, kernel)
    assert "likely" in finding.action
    assert "occupancy 12.5 → 50.0 %, 0 → 96 bytes spilled" in finding.evidence.basis


def test_a_kernel_without_recompiling_is_told_what_is_likely():
    (spilled,) = findings_by(spills, a_kernel(512, 512))
    assert (spilled.severity, "spills 512 bytes" in spilled.message) == ("high", True)
    assert spilled.evidence.values == {"spill_bytes": 512, "proven": False}
    assert "likely" in spilled.action
    assert "recompil" not in spilled.evidence.basis
    (mild,) = findings_by(spills, a_kernel(8, 8))
    assert mild.severity == "low"
    (array,) = findings_by(local_memory, a_kernel(64))
    assert "likely an array" in array.message
    assert (
        list(findings_by(local_memory, a_kernel())) == list(findings_by(spills, a_kernel())) == []
    )
    assert list(findings_by(local_memory, a_kernel(512, 512))) == []


@pytest.mark.parametrize(
    ("kernel", "line", "holds", "remedy", "shown"),
    [
        ("waves", "sin(x)", "a sine, cosine or tangent", "fast_tanf in fp32", "trig_reduction"),
        (
            "told",
            "device_print",
            "arguments of tl.device_print",
            "Remove tl.device_print",
            "vprintf",
        ),
    ],
)
def test_what_lies_in_local_memory(kernels, kernel, line, holds, remedy, shown):
    tried = Retried(getattr(kernels, kernel), "*fp64:16, *fp64:16, 1024", sass=False)
    finding = tried.only("though nothing spills")
    text = Path(kernels.__file__).read_text().splitlines()
    assert line in text[finding.subject.line - 1]
    assert holds in finding.message
    assert f"under_pressure.py:{finding.subject.line}" in finding.message
    assert remedy in finding.action
    assert shown in finding.evidence.basis


@pytest.mark.parametrize(
    ("file", "holds", "remedy"),
    [
        ("a.py", "likely an array of a library function at a.py:2", "Use a less precise function"),
        ("a.cu", "likely an array indexed at run time at a.cu:2", "Unroll the loop"),
    ],
)
def test_only_cuda_has_arrays_of_its_own(file, holds, remedy):
    store = Instruction("st.local.b32", "[%r1], %r2", None, 1, a_line(2, f"/x/{file}"))
    (finding,) = findings_by(local_memory, a_kernel(64, ptx=Function("k", "ptx", True, (store,))))
    assert holds in finding.message
    assert finding.action.startswith(remedy)


def test_the_sine_of_few_digits_needs_no_local_memory(kernels):
    exact, fast = (
        Retried(kernel, f"{POINTERS}, 1024", sass=False).alone()
        for kernel in (kernels.waves, kernels.fast_waves)
    )
    # Triton 3.9 unrolls the loop of the sine, so that ptxas keeps all in registers.
    told = [f for f in exact.findings if "reduces large angles there" in f.message]
    assert len(told) == bool(exact.stack_bytes)
    assert all("use libdevice.fast_sinf, fast_cosf or fast_tanf, which" in f.action for f in told)
    assert all("__cudart_i2opi_f in its PTX" in f.evidence.basis for f in told)
    assert fast.stack_bytes == 0


def test_trials_that_do_not_compile_prove_nothing():
    (spilled,) = findings_by(spills, a_kernel(512, 512, trials=Recompilations(does_not_compile)))
    assert "likely" in spilled.action
    assert "recompil" not in spilled.evidence.basis


@pytest.mark.parametrize(
    ("reason", "action"),
    [
        ("to insufficient register resources for the function 'k'", "Try a smaller tile"),
        ("to non wgmma instructions defining accumulator registers", "Leave the accumulator"),
        ("to the presence of Extern calls in the function 'k'", "Remove the call"),
        ("to wgmma pipeline crossing function boundary", "Inline the function"),
    ],
)
def test_serialized_wgmma_quotes_ptxas(reason, action):
    notes = ("something else", SERIALISED + reason)
    (finding,) = findings_by(serialized_wgmma, a_kernel(compiled=a_compiled(notes=notes)))
    assert (finding.severity, finding.evidence.basis) == ("high", SERIALISED + reason)
    assert finding.action.startswith(action)
    assert "likely" in finding.action


def on_occupancy(known, tensor=None, accesses=()):
    ops = (Instruction(tensor, "", None, 1),) if tensor else ()
    kernel = a_kernel(occupancy=known, ptx=Function("k", "ptx", True, ops), accesses=accesses)
    return list(findings_by(low_occupancy, kernel))


def test_low_occupancy_names_its_limiter_and_is_milder_with_tensor_cores():
    low = occupancy(limits_of("sm_90"), 128, 255)
    (finding,) = on_occupancy(low)
    assert finding.severity == "medium"
    assert f"{low.theoretical_occupancy_pct:.1f} %, limited by registers" in finding.message
    assert (
        on_occupancy(low, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")[0].severity == "low"
    )
    assert on_occupancy(occupancy(limits_of("sm_90"), 128, 32)) == on_occupancy(None) == []


@pytest.mark.parametrize(
    "asynchronous", ["wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16", "tcgen05.mma.cta_group"]
)
@pytest.mark.parametrize("shared", [0, 120_000])
def test_few_warps_keep_asynchronous_tensor_cores_busy(asynchronous, shared):
    """A smaller tile would reuse less of what it loads, for warps that only wait."""
    assert not on_occupancy(occupancy(limits_of("sm_90"), 128, 255, shared), asynchronous)
    (finding,) = on_occupancy(occupancy(limits_of("sm_90"), 128, 32, 300_000), asynchronous)
    assert finding.message.startswith("A block does not fit")


def test_a_bulk_copy_has_an_unknown_number_of_bytes_in_flight():
    bulk = an_access(None, opcode="cp.async.bulk.tensor.2d", kind="async-copy")
    (finding,) = on_occupancy(occupancy(limits_of("sm_90"), 128, 255), accesses=(bulk,))
    assert (finding.severity, "in flight" in finding.evidence.basis) == ("info", False)


def test_a_block_that_fits_nowhere_fails_to_launch():
    (finding,) = on_occupancy(occupancy(limits_of("sm_90"), 128, 32, 300_000))
    assert (finding.severity, "the launch fails" in finding.message) == ("high", True)


def test_what_is_tried():
    arguments = tuple(
        Argument(name, "constexpr", value=value)
        for name, value in (("BM", 128), ("HEAD_DIM", 128), ("BLOCK_N", 48), ("TILE", 16))
    )
    compiled = a_compiled(num_warps=4, num_stages=4, arguments=arguments)
    assert [r.change for r in more_warps(compiled)] == [Change(num_warps=8), Change(num_warps=16)]
    assert [r.change.num_stages for r in fewer_stages(compiled)] == [3, 2]
    # What is no tile by its name, no power of two, or small already stays as it is.
    assert [r.change.constexprs for r in smaller_tiles(compiled)] == [(("BM", 64),)]
    assert list(more_warps(a_compiled(num_warps=None))) == []
    assert list(fewer_stages(a_compiled(num_stages=2))) == []


@pytest.mark.parametrize(
    ("how", "configuration", "severity", "end"),
    [
        ("launched", None, "high", "the launch fails"),
        # The types, which decide the size, are guessed.
        ("called", None, "medium", "the launch fails"),
        ("launched", {"BLOCK": 64}, "info", "the autotuner leaves this configuration out"),
    ],
)
def test_a_block_that_does_not_fit(how, configuration, severity, end):
    compiled = a_compiled(how=how, configuration=configuration)
    too_large = occupancy(limits_of("sm_90"), 128, 32, 0, 300_000)
    (finding,) = findings_by(low_occupancy, a_kernel(compiled=compiled, occupancy=too_large))
    assert (finding.severity, finding.message.partition(": ")[2]) == (severity, end)


@pytest.mark.parametrize("blocks", [1, 132, 133, 2 * 132, 2 * 132 + 1])
def test_low_occupancy_is_no_fault_where_the_grid_has_no_more_blocks(blocks):
    """128 threads of 224 registers: 2 blocks an SM, which a grid of 2 × 132 blocks fills."""
    few = occupancy(limits_of("9.0"), 128, 224)
    kernel = a_kernel(compiled=a_compiled(grid=(blocks, 1, 1)), occupancy=few, sms=SmCount(132))
    assert bool(list(findings_by(low_occupancy, kernel))) == (
        blocks > 132 * (few.blocks_per_sm - 1)
    )
