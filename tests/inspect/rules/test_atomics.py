"""Atomics: their width, their order, and the blocks that queue for one address."""

import re
from pathlib import Path

import pytest

from tests.inspect.retried import Retried, allow
from tests.inspect.rules.test_divisions_and_tables import kernels as kernels_of_bodies
from tests.inspect.rules.written_ptx import need
from tests.ptx.compiled_kernels import a_compiled, an_access, ptx_kernel
from traceview.kernels.inspect.rules.atomics import has_wider_form
from traceview.kernels.inspect.target_report import inspect
from traceview.kernels.toolchain.listings import assemble

pytestmark = pytest.mark.programs

POINTERS = "*fp32:16, *fp32:16"
HALVES = "*fp16:16, *fp16:16"


@pytest.fixture
def kernels(triton_cache, monkeypatch):
    allow(triton_cache, monkeypatch)
    from tests.inspect.rules import kernels_under_pressure

    return kernels_under_pressure


def about_atomics(findings):
    return [f.message for f in findings if "atomic" in f.message]


@pytest.mark.parametrize(("pointers", "width"), [(POINTERS, 32), (HALVES, 16)])
def test_narrow_atomics_are_widened_by_a_recompilation(kernels, pointers, width):
    tried = Retried(kernels.scatter_add, f"{pointers}, i32, 1024", sass=False)
    finding = tried.only("bits per thread per instruction")
    assert finding.severity == "high"
    assert f"move {width} bits per thread per instruction instead of 128" in finding.message
    assert "n is not known to be divisible by 16" in finding.message
    assert f"n divisible by 16: 128 bits instead of {width}" in finding.evidence.basis
    assert finding.evidence.basis.endswith("vector atomics need PTX ISA 8.1 and sm_90 or newer")


def test_before_sm_90_there_is_nothing_to_widen(kernels):
    signature = f"{POINTERS}, i32:16, 1024"
    tried = Retried(kernels.relaxed_add, signature, arch="sm_80", sass=False)
    assert about_atomics(tried.findings()) == []


def test_a_sum_after_a_loop_orders_memory_once(kernels):
    tried = Retried(kernels.column_totals, f"{POINTERS}, i32, i32:16, 1024", sass=False)
    assert tried.only("memory order").severity == "low"


def test_a_sum_that_orders_all_memory(kernels):
    finding = Retried(kernels.scatter_add, f"{POINTERS}, i32:16, 1024").only("memory order")
    assert finding.severity == "medium"
    assert "sem='relaxed'" in finding.action
    assert (
        "4 fences and cache invalidations (MEMBAR, CCTL) in SASS, 0 when assembled"
        in finding.evidence.basis
    )
    relaxed = Retried(kernels.relaxed_add, f"{POINTERS}, i32:16, 1024").report()
    assert about_atomics(relaxed.findings) == []
    assert not any(i.opcode.startswith("MEMBAR") for i in relaxed.sass.instructions)


def test_a_lock_is_no_sum_and_every_line_of_a_sum_is_named(kernels):
    signature = "*fp32:16, *fp32:16, *i32:16, i32:16, 1024"
    report = Retried(kernels.locked_total, signature, sass=False).report(grid=(300, 1, 1))
    finding, *same_address = (f for f in report.findings if "atomic" in f.message)
    text = Path(kernels.__file__).read_text().splitlines()
    added, most = (
        next(number for number, line in enumerate(text, 1) if f"tl.atomic_{call}" in line)
        for call in ("add(y_ptr + 1", "max(y_ptr + 2")
    )
    assert (
        f"at kernels_under_pressure.py:{added} and kernels_under_pressure.py:{most} impose "
        "acq_rel memory order" in finding.message
    )
    assert "exch" not in finding.evidence.basis
    assert {f.subject.line for f in same_address} <= set(range(added, most + 1))
    assert len(same_address) >= 2


def test_the_fences_of_a_lock_stay_where_sums_are_relaxed(kernels):
    tried = Retried(kernels.locked_total, "*fp32:16, *fp32:16, *i32:16, i32:16, 1024")
    (before, after) = re.search(
        r"; (\d+) fences .*, (\d+) when", tried.only("memory order").evidence.basis
    ).groups()
    assert 0 < int(after) < int(before)


def test_a_flag_that_others_wait_for_is_no_sum(kernels):
    tried = Retried(kernels.waited_for, "*fp32:16, *i32:16, i32:16, 1024", sass=False)
    assert about_atomics(tried.report(grid=(99, 1, 1)).findings) == []


def test_all_blocks_at_one_address(kernels):
    tried = Retried(kernels.total, f"{POINTERS}, i32:16, 1024", sass=False)
    (finding,) = (f for f in tried.report(grid=(300, 1, 1)).findings if "one address" in f.message)
    assert "All 300 blocks update one address" in finding.message
    alone = tried.report(grid=(1, 1, 1)).findings
    assert about_atomics(alone) == []


def test_a_ticket_is_ordered_on_purpose_and_cannot_be_split(kernels):
    tried = Retried(kernels.ticket, "*i32:16, *i32:16, i32:16, 1024", sass=False)
    assert about_atomics(tried.findings()) == []


def reduction(operation: str, address: str = "%rd3") -> str:
    return ptx_kernel(f".loc 1 31 0\n red.global.{operation} [{address}], %r4;")


def test_what_depends_on_the_block_or_on_data_does_not_queue():
    per_block = "mov.u32 %r3, %ctaid.x; mad.wide.u32 %rd5, %r3, 4, %rd1;"
    by_data = "ld.global.b32 %r3, [%rd3]; mad.wide.u32 %rd5, %r3, 4, %rd1;"
    for made in (per_block, by_data):
        text = ptx_kernel(f"{made} red.global.add.u32 [%rd5], %r4;")
        assert about_atomics(inspect(a_compiled(text), sass=False).findings) == []
    alike = inspect(a_compiled(reduction("add.u32", "%rd1")), sass=False).findings
    assert len(about_atomics(alike)) == 1


@pytest.mark.parametrize("in_loop", [False, True])
def test_one_address_in_each_iteration_of_a_loop(in_loop):
    add = "red.global.add.u32 [%rd1], %r4;"
    loop = f"$L: {add} setp.lt.s32 %p1, %r6, %r2; @%p1 bra $L;" if in_loop else add
    (finding,) = inspect(a_compiled(ptx_kernel(loop)), sass=False).findings
    assert finding.severity == ("medium" if in_loop else "low")
    assert finding.action.startswith("Sum in a register" if in_loop else "Let each block write")


@pytest.mark.parametrize(
    ("type_", "operation", "wide"),
    [
        ("f32", "add", True),
        ("f16", "add.noftz", True),
        ("bf16x2", "max.noftz", True),
        ("u32", "add", False),
        ("f64", "add", False),
        ("b32", "exch", False),
    ],
)
def test_which_atomics_have_a_vector(type_, operation, wide):
    access = an_access(32, kind="atomic", opcode=f"atom.global.gpu.relaxed.{operation}.{type_}")
    assert has_wider_form(access, "sm_90") == wide
    assert has_wider_form(access, "sm_100a") == wide
    assert not has_wider_form(access, "sm_89")


@pytest.mark.parametrize(
    "text",
    [
        "red.global.v4.f32.add [%rd3], {%f1, %f2, %f3, %f4};",
        "red.global.v2.f32.add [%rd3], {%f1, %f2};",
        "red.global.v4.bf16x2.add.noftz [%rd3], {%r4, %r5, %r6, %r7};",
    ],
)
def test_ptxas_takes_these_vectors_on_sm_90_from_ptx_8_1_on(text):
    need("ptxas")
    body = ptx_kernel(".reg .f32 %f<9>;\n" + text).replace(".version 8.0", ".version 8.1")
    assert assemble(body, "sm_90").cubin
    for refused in (body.replace(".version 8.1", ".version 8.0"), body.replace("sm_90", "sm_89")):
        with pytest.raises(Exception, match="ptxas rejects"):
            assemble(refused)


# An address and a guard, and whether the threads of one quotient all add to the address.
ADDED = {
    ("i / 32", ""): True,
    ("i / w", ""): True,
    ("(i >> 3) * w", ""): True,
    ("threadIdx.x / 64 + blockIdx.x", "if (s > 0)"): True,
    ("i / w", "if (i / w != d)"): True,
    ("i / 32", "if ((threadIdx.x & 31) == 0)"): False,
    ("i / w", "if (i % w == 0)"): False,
    ("i", ""): False,
    ("i / 32 * 32 + i % 32 * 2", ""): False,
    ("mask[i] / 32", ""): False,
}


def test_threads_of_one_quotient_that_add_to_one_address(tmp_path):
    loop = "float s = 0; for (int j = i; j < h; j += 99) s += x[j * w];"
    bodies = [f"{loop} {guard} atomicAdd(out + {at}, s)" for at, guard in ADDED]
    shuffled = "s += __shfl_down_sync(-1u, s, 16); atomicAdd(out + i / 32, s)"
    *found, combined = kernels_of_bodies(tmp_path, [*bodies, f"{loop} {shuffled}"])
    for findings, is_said in zip(found, ADDED.values(), strict=True):
        said = [f for f in findings if "contains only a quotient" in f.message]
        assert [f.severity for f in said] == ["medium"] * is_said, findings
    assert not any("quotient" in f.message for f in combined)


# What a block counts, and how many elements of each thread if that is few.
COUNTS = {
    "if (i < d) atomicAdd(bins + q[i], 1);": 1,
    "atomicAdd(bins + q[i], 1); atomicAdd(bins + q[i + 9], 1);": None,
    "for (int j = i; j < d; j += gridDim.x * 256) atomicAdd(bins + q[j], 1);": None,
}


@pytest.mark.parametrize("flush", ["atomicAdd(to + t, bins[t])", "to[i] = bins[t]"])
def test_bins_that_are_added_for_each_element_that_is_counted(tmp_path, flush):
    start = "__shared__ int bins[256]; int t = threadIdx.x; int* to = (int*)out; bins[t] = 0"
    bodies = [f"{start}; __syncthreads(); {count} __syncthreads(); {flush}" for count in COUNTS]
    for findings, counted in zip(kernels_of_bodies(tmp_path, bodies), COUNTS.values(), strict=True):
        said = [f.evidence.values["counted"] for f in findings if "adds its bins" in f.message]
        assert said == [counted] * (counted is not None and "atomic" in flush)
