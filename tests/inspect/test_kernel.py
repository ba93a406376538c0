"""One kernel's report: put together from PTX, SASS and the cubin, and whole without any of them."""

import pytest

from tests.inspect.rules.written_ptx import SERIALISED, need
from tests.places import PTX_FILES
from tests.ptx.compiled_kernels import HEADER, a_compiled, ptx_kernel
from traceview.base.errors import InputError, PtxSyntaxError, TraceviewError
from traceview.kernels.inspect.kernel_report import SmCount
from traceview.kernels.inspect.target_report import inspect
from traceview.kernels.ptx.parser import parse_ptx
from traceview.kernels.toolchain import listings as code
from traceview.kernels.toolchain.listings import assemble

GELU = PTX_FILES / "gelu-3.7.1-sm90.ptx"
COPY = ptx_kernel(
    ".loc 1 31 0\n ld.global.v4.b32 {%r4,%r5,%r6,%r7}, [%rd3];\n"
    ".loc 1 32 0\n st.global.v4.b32 [%rd4], {%r4,%r5,%r6,%r7};"
)


@pytest.fixture
def without_tools(monkeypatch):
    for tool in ("PTXAS", "NVDISASM", "CUOBJDUMP"):
        monkeypatch.setenv(f"TRACEVIEW_{tool}", "/nowhere/tool")


def named(text: str) -> str:
    return parse_ptx(text).kernels()[0].name


def test_a_vectorised_kernel_has_both_levels_and_no_findings():
    need("ptxas", "nvdisasm")
    text = GELU.read_text()
    report = inspect(a_compiled(text, name=named(text)))
    moved = [(a.level, a.kind, a.width_bits) for a in report.accesses]
    assert {("ptx", "load", 128), ("sass", "load", 128), ("ptx", "store", 128)} <= set(moved)
    assert report.differences == ()
    assert report.findings == ()
    assert report.registers
    assert report.spill_bytes == 0
    assert report.occupancy.blocks_per_sm > 0


def test_waves_need_a_grid_and_the_number_of_sms():
    need("ptxas", "nvdisasm")
    report = inspect(a_compiled(COPY, grid=(264, 2, 1)), sm_count=132)
    assert report.waves == 264 * 2 / (132 * report.occupancy.blocks_per_sm)
    assert report.sms == SmCount(132)
    assert inspect(a_compiled(COPY), sm_count=132).waves is None
    assert inspect(a_compiled(COPY), sm_count=132).sms is None


def test_waves_on_a_gpu_that_nobody_named_say_which_was_assumed():
    need("ptxas", "nvdisasm")
    report = inspect(a_compiled(COPY, grid=(264, 1, 1)))
    assert report.sms == SmCount(132, "H100 SXM and H200")
    assert report.waves == 264 / (132 * report.occupancy.blocks_per_sm)


def test_without_tools_the_ptx_still_tells_and_the_rest_says_how_to_get_it(without_tools):
    # Another text than that of the other tests, which is known to have been assembled.
    report = inspect(a_compiled(COPY + "// alone"))
    assert [(a.width_bits, a.level) for a in report.accesses] == [(128, "ptx"), (128, "ptx")]
    assert (report.registers, report.spill_bytes, report.occupancy, report.sass) == (None,) * 4
    assert report.elements_per_thread == 4
    assert any("TRACEVIEW_PTXAS" in note for note in report.notes)


def test_a_cubin_alone_is_told_by_its_sass():
    need("ptxas", "nvdisasm")
    cubin = assemble(COPY, "sm_90").cubin
    report = inspect(a_compiled(None, cubin=cubin))
    assert {access.level for access in report.accesses} == {"sass"}
    assert report.elements_per_thread == 4
    assert report.instruction_mix["LDG"] == 1


def test_narrow_accesses_of_a_cubin_are_told_without_a_cause():
    need("ptxas", "nvdisasm")
    narrow = ptx_kernel("ld.global.b32 %r4, [%rd3]; st.global.b32 [%rd4], %r4;")
    report = inspect(a_compiled(None, cubin=assemble(narrow, "sm_90").cubin))
    (finding,) = report.findings
    assert finding.message.startswith("2 of 2 global accesses move less than 128 bits")
    assert "does not show the cause" in finding.evidence.basis


def test_without_sass_only_the_ptx_is_looked_at():
    report = inspect(a_compiled(COPY), sass=False)
    assert report.sass is None
    assert {access.level for access in report.accesses} == {"ptx"}


def test_an_unknown_block_size_leaves_the_occupancy_out():
    need("ptxas", "nvdisasm")
    report = inspect(a_compiled(COPY, num_warps=None))
    assert report.occupancy is None
    assert any("--num-warps" in note for note in report.notes)


def test_ptx_that_cannot_be_assembled_is_still_read():
    need("ptxas")
    report = inspect(a_compiled(ptx_kernel("made.up.b32 %r1, %r1;")))
    assert report.registers is None
    assert any("not assembled" in note for note in report.notes)


def test_damaged_ptx_and_a_kernel_that_is_not_there():
    with pytest.raises(PtxSyntaxError):
        inspect(a_compiled(HEADER + ".visible .entry k( {"))
    with pytest.raises(InputError, match="no kernel 'other'"):
        inspect(a_compiled(COPY, name="other"))


def test_a_remark_on_one_kernel_is_not_told_of_another():
    need("ptxas")
    other = SERIALISED[SERIALISED.index(".visible") :].replace("serial(", "other(")
    lean = COPY[COPY.index(".visible") :].partition(".file")[0]
    text = SERIALISED + other + lean.replace(".loc 1", "// .loc 1")
    said = {
        name: inspect(a_compiled(text, name=name, arch="sm_90a")).compiled.notes
        for name in ("serial", "other", "k")
    }
    assert {name: len(notes) for name, notes in said.items()} == {"serial": 1, "other": 1, "k": 0}
    assert "'other'" in said["other"][0]


def test_ptx_that_ptxas_refuses_is_given_to_it_once(monkeypatch):
    need("ptxas")
    asked = []

    def refuse(ptx, arch):
        asked.append(arch)
        raise TraceviewError("ptxas does not accept it")

    monkeypatch.setattr(code, "assemble", refuse)
    text = COPY + "// refused"
    for _ in range(3):
        assert any("not assembled" in note for note in inspect(a_compiled(text)).notes)
    assert len(asked) == 1
