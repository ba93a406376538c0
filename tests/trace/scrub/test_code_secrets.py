"""PrivateTexts texts leave PTX and cubins, and both stay what they are."""

import re
import struct

import pytest

from tests.build import Export
from tests.places import PTX_FILES
from traceview.kernels.ptx import cubin as cubin_file
from traceview.kernels.ptx.parser import parse_ptx
from traceview.kernels.toolchain.listings import assemble, disassemble
from traceview.traces.trace.load import load
from traceview.traces.trace.nsys.added_tables import unpacked
from traceview.traces.trace.scrub.scrubber import scrub
from traceview.traces.trace.scrub.secrets import PrivateTexts, clean_cubin, clean_ptx

FILES = sorted(path for path in PTX_FILES.glob("*.ptx") if "sm90" in path.name)
NOBODY = PrivateTexts.of([])
SOMEBODY = PrivateTexts.of([(b"HOME", b"/home/user"), (b"PROJECT", b"kernels.py")])


def spelt(ptx: bytes) -> bytes:
    """All bytes that the PTX spells as numbers."""
    return bytes(int(number) for number in re.findall(rb"^\.b8 (\d+)", ptx, re.MULTILINE))


def places(function):
    return [(i.opcode, i.operands, i.source and i.source.line) for i in function.instructions]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_ptx_tells_nothing_and_says_the_same(path):
    ptx = path.read_bytes()
    cleaned = clean_ptx(ptx, SOMEBODY)
    for private in (b"/home/user", b"kernels.py"):
        assert private not in cleaned
        assert private not in spelt(cleaned)
    assert len(spelt(cleaned)) == len(spelt(ptx))
    before, after = (parse_ptx(text.decode(), "x").functions for text in (ptx, cleaned))
    assert list(map(places, after)) == list(map(places, before))


def test_debug_information_is_taken_out_in_its_length():
    ptx = (PTX_FILES / "gelu-3.7.1-sm90.ptx").read_bytes()
    assert b"kernels.py\0" in spelt(ptx)
    assert b"/home/user/kernels\0" in spelt(ptx)
    assert b"__________\0" in spelt(clean_ptx(ptx, SOMEBODY))
    assert b"~/////////" + b"/kernels\0" in spelt(clean_ptx(ptx, SOMEBODY))


def test_an_array_that_spells_a_path():
    path = b"/home/alice/x.py"
    array = b".global .align 1 .b8 file_0[17] = {%s, 0};\n" % b", ".join(b"%d" % c for c in path)
    cleaned = clean_ptx(array, NOBODY)
    numbers = re.search(rb"\{(.*)\}", cleaned)[1].split(b", ")
    assert bytes(map(int, numbers)) == b"~//////////" + b"/x.py\0"
    assert cleaned.startswith(b".global .align 1 .b8 file_0[17] = {")


def test_code_is_left_alone_where_a_secret_looks_like_it():
    ptx = b".visible .entry fused_kernel_1(\n) { // of fused_kernel_1\n ret; }\n"
    assert clean_ptx(ptx, PrivateTexts.of([(b"K", b"fused_kernel_1")])) == (
        b".visible .entry fused_kernel_1(\n) { // of ______________\n ret; }\n"
    )


@pytest.fixture(scope="module")
def cubin():
    return assemble((PTX_FILES / "gelu-3.7.1-sm90.ptx").read_text()).cubin


def test_a_cubin_tells_nothing_and_stays_sound(cubin):
    cleaned = clean_cubin(cubin, SOMEBODY)
    assert b"/home/user" in cubin
    for private in (b"/home/user", b"kernels.py"):
        assert private not in cleaned
    assert len(cleaned) == len(cubin)
    assert cubin_file.resources(cleaned) == cubin_file.resources(cubin)
    before, after = (disassemble(code).functions[0] for code in (cubin, cleaned))
    assert places(after) == places(before)


def test_ptx_and_sass_name_the_same_files_afterwards(cubin):
    ptx = clean_ptx((PTX_FILES / "gelu-3.7.1-sm90.ptx").read_bytes(), SOMEBODY).decode()
    sass = disassemble(clean_cubin(cubin, SOMEBODY)).functions[0]
    named = {
        instruction.source.file
        for function in (parse_ptx(ptx, "x").functions[0], sass)
        for instruction in function.instructions
        if instruction.source
    }
    assert named == {"~/kernels/__________"}


@pytest.mark.parametrize("cut", [0, 3, 40, 63, 64])
def test_what_is_no_cubin_is_none(cubin, cut):
    assert clean_cubin(cubin[:cut], SOMEBODY) is None
    assert clean_cubin(b"/home/user" + cubin, SOMEBODY) is None


def test_sections_beyond_the_end(cubin):
    table = struct.unpack_from("<Q", cubin, 40)[0]
    assert clean_cubin(cubin[: table + 100], SOMEBODY) is None
    huge = bytearray(cubin)
    for index in range(struct.unpack_from("<H", cubin, 60)[0]):
        struct.pack_into("<Q", huge, table + 64 * index + 32, 1 << 62)
    assert clean_cubin(bytes(huge), SOMEBODY) is None


def test_scrubbing_a_trace_cleans_its_code(tmp_path, cubin):
    ptx = (PTX_FILES / "gelu-3.7.1-sm90.ptx").read_text()
    export = Export().code("gelu", ptx, cubin, source_file="/home/user/kernels/kernels.py")
    export.code("damaged", cubin=b"no ELF of /home/user")
    path = export.write(tmp_path / "t.sqlite")
    counts = scrub(path, tmp_path / "clean.sqlite").replaced
    table = load(tmp_path / "clean.sqlite").kernel_code
    assert table.cells("name") == ["gelu", "damaged"]
    assert table.cells("source_file") == ["…/kernels.py", None]
    assert b"/home/user" not in unpacked(table["ptx"][0])
    assert b"/home/user" not in unpacked(table["cubin"][0])
    assert table["cubin"][1] is None
    assert (counts["code"], counts["damaged code"]) == (2, 1)
    scrub(tmp_path / "clean.sqlite", tmp_path / "again.sqlite")
    assert list(load(tmp_path / "again.sqlite").kernel_code.rows()) == list(table.rows())
