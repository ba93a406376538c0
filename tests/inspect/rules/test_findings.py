"""Why an access is narrow and what to do: shown by recompiling, or called likely."""

import pytest

from tests.inspect.retried import Retried, allow
from tests.ptx.compiled_kernels import a_compiled, a_finding, a_line, ptx_kernel
from traceview.base.errors import TraceviewError
from traceview.kernels.headless.compile_options import Change
from traceview.kernels.headless.recompile import changed_arguments
from traceview.kernels.inspect.kernel_report import line_name
from traceview.kernels.inspect.recompilations import MOST_TRIALS, Equivalence, Recompilations
from traceview.kernels.inspect.rules import ranked
from traceview.kernels.inspect.target_report import inspect
from traceview.kernels.ptx.model import Argument, SourceLine

pytestmark = pytest.mark.programs

POINTERS = "*fp32:16, *fp32:16"


@pytest.fixture
def findings(triton_cache, monkeypatch):
    """The findings on a kernel of narrow_kernels.py with these arguments, by its PTX."""
    allow(triton_cache, monkeypatch)
    from tests.inspect.rules import narrow_kernels

    def found(kernel, signature, sass=False, **options):
        return Retried(getattr(narrow_kernels, kernel), signature, sass=sass).findings(**options)

    return found


@pytest.mark.parametrize(
    ("kernel", "signature", "cause", "action", "evidence"),
    [
        (
            "gelu",
            f"{POINTERS}, i32, 1024",
            "n is not known to be divisible by 16",
            "Pad n to a multiple of 16",
            "recompiled with n divisible by 16: 128 bits instead of 32",
        ),
        (
            "gelu",
            "*fp32, *fp32:16, i32:16, 1024",
            "x_ptr is not known to be aligned to 16 bytes",
            "Align x_ptr to 16 bytes",
            "recompiled with x_ptr divisible by 16: 128 bits instead of 32",
        ),
        (
            "gelu",
            f"{POINTERS}, i32:16, 128",
            "each thread has too few adjacent elements",
            "If BLOCK only sets the tile, use BLOCK=512. Or use num_warps=1 alone, which gains "
            "less",
            "recompiled with BLOCK=512 or num_warps=1: 128 bits instead of 32",
        ),
        (
            "gelu",
            "*fp16:16, *fp16:16, i32:16, 128",
            "each thread has too few adjacent elements",
            "If BLOCK only sets the tile, use BLOCK=1024",
            "recompiled with BLOCK=1024: 128 bits instead of 16",
        ),
        (
            "gelu",
            f"{POINTERS}, i32, 128",
            "too few adjacent elements and n is not known to be divisible by 16",
            "Pad or align n to a multiple of 16, and use num_warps=1",
            "recompiled with n divisible by 16, num_warps=1: 128 bits instead of 32",
        ),
        (
            "gelu",
            "*fp16:16, *fp16:16, i32, 1024",
            "n is not known to be divisible by 16",
            "Pad n to a multiple of 16",
            "recompiled with n divisible by 16: 128 bits instead of 16",
        ),
        (
            "row_sums",
            f"{POINTERS}, i32, i32, 1024",
            "neither stride nor columns is known to be divisible by 16",
            "Make stride and columns multiples of 16",
            "recompiled with stride and columns divisible by 16: 128 bits instead of 32",
        ),
        (
            "strided",
            f"{POINTERS}, i32:16, 1024",
            "a thread's elements are stride apart, which is known only at run time",
            "Pass stride=1",
            "recompiled with stride=1: 128 bits instead of 32",
        ),
        (
            "every_second",
            f"{POINTERS}, 2, 1024",
            "a thread's elements are STEP=2 apart",
            "Lay the data out so that STEP is 1",
            "recompiled with STEP=1: 128 bits instead of 32",
        ),
        (
            "gather",
            "*fp32:16, *i32:16, *fp32:16, 1024",
            "likely because this is a gather",
            "Sort or group the indices from index_ptr, or move a whole row at each index",
            "the address is computed from loaded values",
        ),
    ],
    ids=lambda text: text[:24],
)
def test_each_cause_is_found(findings, kernel, signature, cause, action, evidence):
    (finding,) = findings(kernel, signature)
    assert cause in finding.message
    assert action in finding.action
    assert evidence in finding.evidence.basis
    assert ("likely" in finding.message) == ("recompiled with" not in finding.evidence.basis)


@pytest.mark.parametrize(("block", "severity"), [(512, "high"), (1024, "medium")])
def test_narrow_loads_that_keep_memory_busy_are_not_high(findings, block, severity):
    """Full SMs have 32 or 64 KiB of these loads in flight."""
    (finding,) = findings("row_sums", f"{POINTERS}, i32, i32, {block}")
    assert finding.severity == severity


@pytest.mark.parametrize(("blocks", "enough"), [(8192, False), (16384, True)])
def test_more_work_per_block_needs_enough_blocks(findings, blocks, enough):
    """A quarter of the blocks is to fill half of 132 SMs, with 32 blocks each."""
    grid = (blocks, 1, 1)
    (finding,) = findings("row_sums", f"{POINTERS}, i32:16, i32:16, 128", grid=grid, sm_count=132)
    assert ("the grid is too small for more work per block" in finding.action) != enough
    assert finding.severity == ("high" if enough else "medium")


def test_one_tile_serves_loads_and_stores(findings):
    signature = "*fp16:16, *i32:16, *fp16:16, 1024, 64"

    def compare(_):
        return Equivalence("same", "bit for bit")

    (finding,) = findings("rows_at", signature, compare=compare)
    assert "Global loads at" in finding.message
    assert "and stores at" in finding.message
    assert finding.action.startswith("Use BLOCK=512")


@pytest.mark.parametrize(
    ("kernel", "signature"),
    [
        ("gelu", f"{POINTERS}, i32:16, 1024"),
        # Its store has one value for the whole block: there is nothing to widen.
        ("row_sums", f"{POINTERS}, i32:16, i32:16, 1024"),
    ],
)
def test_a_wide_kernel_has_no_findings(findings, kernel, signature):
    assert findings(kernel, signature, sass=True) == ()


def test_a_scalar_is_not_narrow_wherever_it_comes_from(triton_cache, monkeypatch):
    """From where a reduction says, and a scalar of which ptxas loads half."""
    allow(triton_cache, monkeypatch)
    from tests.inspect.rules.narrow_kernels import sampled

    signature = "*fp32:16, *i64:16, *i32:16, *i32:16, 512"
    assert Retried(sampled, signature, with_ttgir=True).findings() == ()


def test_what_a_store_repeats_is_to_be_stored_once(findings):
    (finding,) = findings("repeated", f"{POINTERS}, i32:16, 512")
    assert "stores at" in finding.message
    assert "because a thread accesses the same element repeatedly" in finding.message
    assert finding.action.startswith("Store each value once")


def test_an_address_that_a_loop_advances(triton_cache, monkeypatch):
    allow(triton_cache, monkeypatch)
    from tests.inspect.rules.narrow_kernels import shifted

    tried = Retried(shifted, f"{POINTERS}, i32:16, 512", with_ttgir=True, sass=False)
    (finding,) = tried.findings()
    assert "the address depends on a value advanced by the loop at narrow_" in finding.message


def test_a_stride_of_1_that_the_compiler_does_not_see():
    """Of a launch with `stride: int`, which Triton does not specialize."""
    stride = Argument("stride", "i32", value=1)
    arguments = (Argument("x", "*fp32", True), Argument("y", "*fp32", True), stride)
    body = "mul.lo.s32 %r3, %r1, %r2; mad.wide.s32 %rd5, %r3, 4, %rd1; ld.global.b32 %r9, [%rd5];"
    (finding,) = inspect(a_compiled(ptx_kernel(body), arguments=arguments), sass=False).findings
    assert "because stride is 1, but the compiler does not know that" in finding.message
    assert finding.action.startswith("Declare stride as tl.constexpr")


@pytest.mark.parametrize(
    ("block", "cause", "change"),
    [
        (1024, "", "n divisible by 16, stride=1: 128 bits instead of 32"),
        (
            128,
            ", and each thread has too few adjacent elements",
            "n divisible by 16, stride=1, num_warps=1: 128 bits instead of 32",
        ),
    ],
)
def test_causes_that_a_stride_hides(findings, block, cause, change):
    """What alone would widen nothing is not the whole remedy."""
    found = findings("masked_strided", f"{POINTERS}, i32, i64, {block}")
    (finding,) = (f for f in found if "Global loads" in f.message)
    assert f"and n is not known to be divisible by 16{cause}" in finding.message
    assert "and pad or align n to a multiple of 16" in finding.action
    assert f"recompiled with {change}" in finding.evidence.basis


def test_a_long_file_name_keeps_its_line():
    line = SourceLine(f"/home/user/{'best_kernel_' * 9}.py", 98)
    assert line_name(line) == "best_kernel_best_ker…rnel_best_kernel_.py:98"


@pytest.fixture
def untried(triton_cache, monkeypatch):
    """The findings on a kernel of narrow_kernels.py with TTGIR, without recompiling it."""
    allow(triton_cache, monkeypatch)
    from tests.inspect.rules import narrow_kernels

    def found(kernel, signature, **options):
        kernel = getattr(narrow_kernels, kernel)
        tried = Retried(kernel, signature, with_ttgir=True, sass=False, **options)
        return tried.alone().findings

    return found


def test_blocks_that_start_anywhere(untried):
    (finding,) = untried("every_third", f"{POINTERS}, 512")
    assert "because 3, a constant in the offsets, is not a multiple of 4" in finding.message
    assert finding.action == "Pad the data so that it is, such as 4"


def test_a_value_to_declare_is_named(untried):
    findings = untried("from_a_list", "*fp32:16, *i32:16, *fp32:16, 512")
    (finding,) = (each for each in findings if "loads" in each.message)
    assert "the address depends on a loaded value (start, narrow_kernels.py" in finding.message
    assert finding.action == (
        "Only if every start is a multiple of 4 (with one that is not, the kernel fails or its "
        "results are wrong), declare it: tl.multiple_of(start, 4)"
    )
    assert finding.severity == "medium"


def test_a_mask_that_limits_as_much_as_the_address_is_named(untried):
    """Only both together widen the load."""
    runs = [
        untried("listed_run", f"*fp32:16, *i32:16, *i32:16, *fp32:16, {n}, 512") for n in range(3)
    ]
    loads = [[f for f in found if "Global loads" in f.message] for found in runs]
    assert list(map(len, loads)) == [1, 1, 0]
    assert ". Then a loaded value (end, narrow_kernels.py:" in loads[0][0].action
    assert loads[0][0].action.endswith(") limits the width")


def test_runs_of_an_odd_length_are_not_to_be_declared(untried):
    (finding,) = untried("taps", f"{POINTERS}, 11, 1024")
    assert "the offset is a remainder (k % 11" in finding.message
    assert finding.action.endswith("runs end after 11 elements")


def test_one_warp_cannot_be_fewer(untried):
    def narrow(**options):
        listed = untried("gelu", f"{POINTERS}, i32:16, {options.pop('block')}", **options)
        return [each for each in listed if "per thread per instruction" in each.message]

    one, four = (narrow(block=64, num_warps=n) for n in (1, 4))
    assert {each.action.partition(",")[0] for each in one} == {"Use a larger block"}
    assert {each.action.partition(" (")[0] for each in four} == {"Use fewer warps"}
    small = narrow(block=32)
    assert {each.action.partition(",")[0] for each in small} == {"Use a larger block"}


def test_elements_apart_along_which_a_loop_walks(findings):
    found = findings("scaled_groups", f"{POINTERS}, *fp32:16, 16, 512")
    (finding,) = (f for f in found if "apart" in f.message)
    assert finding.severity == "medium"
    assert "a thread's elements are 16 apart: the loop walks along" in finding.message
    assert finding.action.startswith("Store scale_ptr transposed")
    assert "4 from one iteration to the next: a sector serves 8 iteration" in finding.evidence.basis


def test_a_load_that_becomes_a_copy_once_it_is_wide(findings):
    found = findings("products", "*fp16:16, *fp16:16, *fp32:16, i32:16, i32, 64")
    (finding,) = (f for f in found if "Global loads" in f.message)
    assert "stride is not known to be divisible by 16" in finding.message
    assert "recompiled with stride divisible by 16: 128 bits" in finding.evidence.basis


def test_the_size_of_a_group_is_no_free_choice(triton_cache, monkeypatch):
    """The scale of a group is stored: a larger block has fewer scales."""
    allow(triton_cache, monkeypatch)
    from tests.ptx.kernels.reaches import quantize_groups

    tried = Retried(quantize_groups, f"{POINTERS}, *fp32:16, 128", with_ttgir=True, sass=False)
    for finding in tried.findings():
        assert finding.action.startswith("Use num_warps=1 with more work per block")


def test_loads_and_stores_with_one_cause_are_one_finding(findings):
    (finding,) = findings("gelu", f"{POINTERS}, i32, 1024", sass=True)
    assert "loads at narrow_kernels.py:12 and stores at narrow_kernels.py:13" in finding.message
    assert "(16 × 32 bits)" in finding.message


def test_lanes_that_nobody_reads_are_not_loaded(triton_cache, monkeypatch):
    """Of four neighbours two are kept: v4.b32 in PTX is LDG.E.64 in SASS."""
    allow(triton_cache, monkeypatch)
    from tests.inspect.rules.kernels_under_pressure import front_half

    report = Retried(front_half, f"{POINTERS}, i32:16, 1024").report()
    loads = {(a.level, a.opcode, a.predicated) for a in report.accesses if a.kind == "load"}
    assert {("ptx", "ld.global.v4.b32", True), ("sass", "LDG.E.64", True)} <= loads
    (difference,) = report.differences
    assert (difference.change, difference.source.line) == ("narrowed", 34)


def test_without_recompiling_a_cause_is_only_likely():
    narrow = ptx_kernel("ld.global.b32 %r4, [%rd3]; st.global.b32 [%rd4], %r4;")
    arguments = (Argument("x", "*fp32", True), Argument("y", "*fp32", True), Argument("n", "i32"))
    (finding,) = inspect(a_compiled(narrow, arguments=arguments), sass=False).findings
    assert "likely because each thread moves only 32 bits there" in finding.message


def test_a_cause_that_no_trial_shows_is_not_claimed():
    loads = " ".join(f"ld.global.b32 %r{at + 4}, [%rd3+{4 * at}];" for at in range(4))
    narrow = ptx_kernel(loads)
    compiled = a_compiled(narrow, arguments=(Argument("x", "*fp32"),))
    (finding,) = inspect(compiled, recompile=lambda *_: compiled, sass=False).findings
    assert "The cause is not known" in finding.message
    assert "no recompilation widened it" in finding.evidence.basis


def test_what_widens_one_array_of_a_line_is_no_remedy_for_another(findings):
    strided, padded = findings("two_arrays", f"{POINTERS}, *fp32:16, i32, 3, 1024")
    assert "(16 × 32 bits), because n is not known to be divisible by 16" in padded.message
    assert "(8 × 32 bits), because a thread's elements are STEP=3 apart" in strided.message


def test_each_array_of_a_line_has_its_own_cause(findings):
    both = findings("two_arrays", "*fp32, *fp32, *fp32:16, i32:16, 1, 1024")
    assert [finding.action for finding in both] == [
        "Align x_ptr to 16 bytes",
        "Align y_ptr to 16 bytes",
    ]


def test_an_operand_that_wgmma_cannot_transpose(findings):
    found = findings("tf32", f"{POINTERS}, *fp32:16, i32:16, 64")
    (finding,) = (f for f in found if "asynchronous copies" in f.message)
    assert finding.severity == "medium"
    assert finding.action.startswith("Lay b_ptr out so that the axis that tl.dot sums over (K)")


def test_a_trial_is_made_once_and_not_too_many_of_them():
    made = []

    def recompile(change, _):
        made.append(change)
        raise TraceviewError("does not compile")

    trials = Recompilations(recompile)
    stream = ((a_line(), "load", "global"), frozenset({"x"}), 1.0)
    for warps in [*range(1, 40), *range(1, 40)]:
        assert trials.width(Change(num_warps=warps), *stream) is None
    assert len(made) == len(set(made)) == MOST_TRIALS


def test_a_change_is_put_into_the_arguments():
    arguments = (Argument("x", "*fp32"), Argument("n", "i32", value=3), Argument("B", "constexpr"))
    change = Change(divisible=("x",), constexprs=(("n", 1),))
    assert changed_arguments(arguments, change) == (
        Argument("x", "*fp32", True),
        Argument("n", "constexpr", value=1),
        Argument("B", "constexpr"),
    )


def test_the_worst_comes_first():
    low, high = a_finding("low", "a", "b"), a_finding("high", "d", "e")
    assert ranked([low, high]) == (high, low)
