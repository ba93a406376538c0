"""Widths of code as it ran: at both levels, with what tools and files are there."""

import pytest

from tests.ptx.compiled_kernels import HEADER, ptx_kernel
from traceview.kernels.inspect import launched_widths as module
from traceview.kernels.inspect.launched_widths import LEFT_OUT, main_width, running_widths
from traceview.kernels.ptx.model import Compiled
from traceview.kernels.toolchain import tools as programs
from traceview.kernels.toolchain.listings import assemble

pytestmark = pytest.mark.programs

LOAD, STORE = "ld.global.f32 %r3, [%rd3];", "st.global.f32 [%rd4], %r3;"
NARROW = ptx_kernel(LOAD + STORE)


def compiled(ptx=NARROW, cubin=None, **changes):
    return Compiled(
        **({"name": "k", "arch": "sm_90", "how": "launched"} | changes), ptx=ptx, cubin=cubin
    )


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch):
    monkeypatch.setattr(module, "_kept", {})


@pytest.fixture
def assembled():
    pytest.importorskip("elftools")
    try:
        programs.find("ptxas"), programs.find("nvdisasm")
    except programs.ToolNotFoundError as error:
        pytest.skip(str(error))
    return lambda ptx: assemble(ptx).cubin


def levels(widths):
    return sorted({(a.level, a.width_bits) for a in widths.accesses if a.space == "global"})


def test_ptx_and_sass_side_by_side(assembled):
    (found,) = running_widths([compiled(cubin=assembled(NARROW))])
    assert levels(found) == [("ptx", 32), ("sass", 32)]
    assert (found.level, found.loads.bits, found.stores.bits) == ("sass", 32, 32)
    assert found.traffic.bytes_moved == 8
    (values,) = [finding.evidence.values for finding in found.narrow]
    assert (values["cause"], values["proven"]) == ("each thread moves only 32 bits there", False)
    assert (values["width_bits"], values["instructions"], values["traffic_pct"]) == (32, 2, 100.0)
    assert found.notes == ()


def test_ptx_without_cubin_is_not_assembled(monkeypatch):
    monkeypatch.setattr(
        "traceview.kernels.toolchain.listings.assemble", lambda *_: pytest.fail("assembled")
    )
    (found,) = running_widths([compiled()])
    assert (found.level, levels(found), found.notes) == ("ptx", [("ptx", 32)], ())


def test_a_cubin_without_ptx(assembled):
    (found,) = running_widths([compiled(None, assembled(NARROW))])
    assert (found.level, levels(found), found.narrow) == ("sass", [("sass", 32)], ())
    assert found.traffic.bytes_moved == 8


def test_without_nvdisasm_ptx_alone_and_a_note(assembled, monkeypatch):
    # Code of its own: texts that nvdisasm wrote are kept.
    ptx = ptx_kernel(LOAD + "add.f32 %r3, %r3, %r3;" + STORE)
    cubin = assembled(ptx)
    monkeypatch.setenv("TRACEVIEW_NVDISASM", "/no/such/tool")
    (found,) = running_widths([compiled(ptx, cubin)])
    assert (found.level, levels(found)) == ("ptx", [("ptx", 32)])
    assert "no SASS: $TRACEVIEW_NVDISASM is /no/such/tool" in found.notes[0]
    monkeypatch.delenv("TRACEVIEW_NVDISASM")
    (again,) = running_widths([compiled(ptx, cubin)])
    assert again.level == "sass"


@pytest.mark.parametrize(
    ("ptx", "cubin", "said"),
    [
        ("no ptx at all", None, "begins with .version"),
        (HEADER, None, "the PTX has no kernel 'k'"),
        (None, b"\x7fELF no cubin", "no SASS"),
        (None, b"", ""),
    ],
)
def test_what_cannot_be_read_has_a_note_and_no_accesses(ptx, cubin, said):
    (found,) = running_widths([compiled(ptx, cubin)])
    assert (found.accesses, found.loads, found.traffic.bytes_moved) == ((), None, None)
    assert said in " ".join(found.notes)


def test_each_code_is_looked_at_once(monkeypatch):
    asked = []
    real = module.listings.code_of
    monkeypatch.setattr(module.listings, "code_of", lambda c, **k: asked.append(c) or real(c, **k))
    one, other = compiled(launches=1), compiled(launches=2, grid=(5, 1, 1))
    first = running_widths([one, other, compiled(name="no")])
    assert running_widths([other]) == first[:1]
    assert len(asked) == 2


def test_a_hundred_kernels_are_all_there_in_order_and_the_first_are_disassembled(assembled):
    cubin = assembled(NARROW)
    many = [compiled(cubin=cubin, source_file=str(n)) for n in range(101)]
    found = running_widths(many, 3)
    assert [f.level for f in found] == ["sass"] * 3 + ["ptx"] * 98
    assert [f.loads.bits for f in found] == [32] * 101
    assert [f.notes for f in found] == [()] * 3 + [(LEFT_OUT,)] * 98
    (alone,) = running_widths([compiled(None, cubin)], 0)
    assert (alone.level, alone.notes) == ("sass", ())


def test_the_main_width_is_that_of_the_innermost_loop():
    body = f"ld.global.v4.b32 {{%r3,%r4,%r5,%r6}}, [%rd3]; L: {LOAD} {LOAD} @%p1 bra L; {STORE}"
    (found,) = running_widths([compiled(ptx_kernel(body))])
    assert (found.loads.bits, found.stores.bits) == (32, 32)
    (straight,) = running_widths([compiled(ptx_kernel(body.replace("@%p1 bra L;", "")))])
    assert straight.loads.bits == 128
    assert main_width((), ("load",)) is None
