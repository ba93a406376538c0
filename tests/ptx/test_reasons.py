"""Why an access is narrow and what to do: shown by recompiling, or called likely."""

from functools import partial
from pathlib import Path

import pytest

from tests.ptx.made import a_compiled, a_line, an_access, ptx_kernel
from traceview.errors import TraceviewError
from traceview.hardware import limits_of, occupancy
from traceview.ptx.declared import argument
from traceview.ptx.inspect import inspect
from traceview.ptx.model import Argument
from traceview.ptx.reasons import access_findings, ranked, resource_findings
from traceview.ptx.recompiling import Recompiler, changed_arguments
from traceview.ptx.trials import MOST_TRIALS, Change, Trials

KERNELS = Path(__file__).with_name("why_narrow.py")
POINTERS = "*fp32:16, *fp32:16"
NAMES = {
    "gelu": ("x_ptr", "y_ptr", "n", "BLOCK"),
    "strided": ("x_ptr", "y_ptr", "stride", "BLOCK"),
    "every_second": ("x_ptr", "y_ptr", "STEP", "BLOCK"),
    "gather": ("x_ptr", "index_ptr", "y_ptr", "BLOCK"),
    "products": ("a_ptr", "b_ptr", "c_ptr", "size", "stride", "BLOCK"),
    "row_sums": ("x_ptr", "y_ptr", "stride", "columns", "BLOCK"),
}


@pytest.fixture(scope="module")
def recompiler():
    pytest.importorskip("triton", reason="Triton compiles these kernels", exc_type=ImportError)
    with Recompiler(str(KERNELS)) as held:
        yield held


@pytest.fixture
def findings(recompiler):
    """The findings on a kernel of why_narrow.py with these arguments."""

    def found(kernel, signature):
        entries = zip(NAMES[kernel], signature.split(", "), strict=True)
        arguments = tuple(argument(name, entry) for name, entry in entries)
        bare = a_compiled(name=kernel, arguments=arguments, how="declared", arch="sm_90")
        compiled = recompiler.compile(bare, Change())
        return inspect(compiled, recompile=partial(recompiler.compile, compiled)).findings

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
            "Let x_ptr start at a multiple of 16 bytes",
            "recompiled with x_ptr divisible by 16: 128 bits instead of 32",
        ),
        (
            "gelu",
            f"{POINTERS}, i32:16, 128",
            "each thread has too few neighbouring elements",
            "Use num_warps=1 or use BLOCK=512",
            "recompiled with num_warps=1 or BLOCK=512: 128 bits instead of 32",
        ),
        (
            "gelu",
            "*fp16:16, *fp16:16, i32:16, 128",
            "each thread has too few neighbouring elements",
            "Use BLOCK=1024",
            "recompiled with BLOCK=1024: 128 bits instead of 16",
        ),
        (
            "gelu",
            f"{POINTERS}, i32, 128",
            "too few neighbouring elements, and n may not be divisible by 16",
            "Pad or align n to a multiple of 16, and use num_warps=1",
            "recompiled with n divisible by 16, num_warps=1: 128 bits instead of 32",
        ),
        (
            "row_sums",
            f"{POINTERS}, i32, i32, 1024",
            "neither of stride and columns is known to be divisible by 16",
            "Make stride and columns multiples of 16",
            "recompiled with stride and columns divisible by 16: 128 bits instead of 32",
        ),
        (
            "strided",
            f"{POINTERS}, i32:16, 1024",
            "the elements of a thread lie stride apart, which only the run tells",
            "Pass stride=1",
            "recompiled with stride=1: 128 bits instead of 32",
        ),
        (
            "every_second",
            f"{POINTERS}, 2, 1024",
            "the elements of a thread lie STEP=2 apart",
            "Lay the data out so that STEP is 1",
            "recompiled with STEP=1: 128 bits instead of 32",
        ),
        (
            "gather",
            "*fp32:16, *i32:16, *fp32:16, 1024",
            "likely a gather",
            "tl.max_contiguous(tl.multiple_of(index, 4), 4)",
            "the address is computed from values that are loaded",
        ),
    ],
    ids=lambda text: text[:24],
)
def test_each_cause_is_found(findings, kernel, signature, cause, action, evidence):
    (finding,) = findings(kernel, signature)
    assert cause in finding.message
    assert action in finding.action
    assert evidence in finding.evidence
    assert ("likely" in finding.message) == ("recompiled with" not in finding.evidence)


@pytest.mark.parametrize(
    ("kernel", "signature"),
    [
        ("gelu", f"{POINTERS}, i32:16, 1024"),
        # Its store has one value for the whole block: there is nothing to widen.
        ("row_sums", f"{POINTERS}, i32:16, i32:16, 1024"),
    ],
)
def test_a_wide_kernel_has_no_findings(findings, kernel, signature):
    assert findings(kernel, signature) == ()


def test_a_load_that_becomes_a_copy_once_it_is_wide(findings):
    found = findings("products", "*fp16:16, *fp16:16, *fp32:16, i32:16, i32, 64")
    (finding,) = (f for f in found if "global loads" in f.message)
    assert "stride is not known to be divisible by 16" in finding.message
    assert "recompiled with stride divisible by 16: 128 bits" in finding.evidence


def test_loads_and_stores_with_one_cause_are_one_finding(findings):
    (finding,) = findings("gelu", f"{POINTERS}, i32, 1024")
    assert "loads at why_narrow.py:12 and stores at why_narrow.py:13" in finding.message
    assert "(16 × 32 bits)" in finding.message


def test_without_recompiling_a_cause_is_only_likely():
    narrow = ptx_kernel("ld.global.b32 %r4, [%rd3]; st.global.b32 [%rd4], %r4;")
    arguments = (Argument("x", "*fp32", True), Argument("y", "*fp32", True), Argument("n", "i32"))
    (finding,) = inspect(a_compiled(narrow, arguments=arguments)).findings
    assert "likely because each thread moves only 32 bits there" in finding.message


def test_a_cause_that_no_trial_shows_is_not_claimed():
    narrow = ptx_kernel("ld.global.b32 %r4, [%rd3]; st.global.b32 [%rd4], %r4;")
    compiled = a_compiled(narrow, arguments=(Argument("x", "*fp32"),))
    (finding,) = inspect(compiled, recompile=lambda _: compiled).findings
    assert "the cause was not found" in finding.message
    assert "no recompilation with one assumption changed widened it" in finding.evidence


def test_a_trial_is_made_once_and_not_too_many_of_them():
    made = []

    def recompile(change):
        made.append(change)
        raise TraceviewError("does not compile")

    trials = Trials(recompile)
    for warps in [*range(1, 40), *range(1, 40)]:
        assert trials.widest(Change(num_warps=warps), (a_line(), "load", "global")) is None
    assert len(made) == len(set(made)) == MOST_TRIALS


def test_a_change_is_put_into_the_arguments():
    arguments = (Argument("x", "*fp32"), Argument("n", "i32", value=3), Argument("B", "constexpr"))
    change = Change(divisible=("x",), constexprs=(("n", 1),))
    assert changed_arguments(arguments, change) == (
        Argument("x", "*fp32", True),
        Argument("n", "constexpr", value=1),
        Argument("B", "constexpr"),
    )


def resource(**changes):
    known = {"spill_bytes": 0, "stack_bytes": 0, "occupancy": None, "uses_tensor_cores": False}
    notes = changes.pop("notes", ())
    return list(resource_findings(a_compiled(notes=notes), **(known | changes)))


def test_spills_and_arrays_in_local_memory():
    assert resource() == []
    (spilled,) = resource(spill_bytes=512, stack_bytes=512)
    assert (spilled.severity, "512 bytes" in spilled.message) == ("high", True)
    (array,) = resource(stack_bytes=64)
    assert "likely an array" in array.message


def test_serialised_wgmma_is_told_with_the_words_of_ptxas():
    note = "(C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized"
    (finding,) = resource(notes=("something else", note))
    assert (finding.severity, finding.evidence) == ("high", note)


def test_low_occupancy_names_its_limiter_and_is_milder_with_tensor_cores():
    low = occupancy(limits_of("sm_90"), 128, 255)
    (finding,) = resource(occupancy=low)
    assert finding.severity == "medium"
    assert f"{low.theoretical_occupancy_pct:.1f} %, limited by registers" in finding.message
    (milder,) = resource(occupancy=low, uses_tensor_cores=True)
    assert milder.severity == "low"
    assert resource(occupancy=occupancy(limits_of("sm_90"), 128, 32)) == []


def test_a_block_that_fits_nowhere_fails_to_launch():
    (finding,) = resource(occupancy=occupancy(limits_of("sm_90"), 128, 32, 300_000))
    assert (finding.severity, "its launch fails" in finding.message) == ("high", True)


@pytest.mark.parametrize(("count", "depth", "found"), [(8, 1, 1), (7, 1, 0), (8, 0, 0)])
def test_many_narrow_shared_accesses_in_a_loop(count, depth, found):
    access = an_access(32, count, space="shared", opcode="ld.shared.b32", loop_depth=depth)
    assert len(list(access_findings(a_compiled(), [access], [], None, None))) == found


def test_the_worst_comes_first():
    low, high = resource(stack_bytes=64)[0], resource(spill_bytes=512)[0]
    assert ranked([low, high]) == (high, low)
