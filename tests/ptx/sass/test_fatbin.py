"""GPU code in fatbins, compressed or not, written by hand and by nvcc; damaged ones."""

import re
import shutil
import struct
import subprocess
from collections import Counter

import pytest

from tests.inspect.rules.written_ptx import need
from tests.ptx.sass.fatbins import LZ4, ZSTD, entry, fatbin
from traceview.base.errors import InputError, TraceFormatError
from traceview.kernels.ptx import cubin as cubin_file
from traceview.kernels.ptx.cubin import entries
from traceview.kernels.toolchain import tools

SOURCE = """template <int N> __global__ void k(float* x) { x[N] = N; }
template __global__ void k<1>(float*);
template __global__ void k<2>(float*);
"""
CODE = bytes(range(256)) * 9 + b"x" * 5000 + b"the end"


@pytest.fixture
def written(tmp_path):
    def write(data, name="k.fatbin"):
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return write


@pytest.mark.parametrize("compressed", [0, LZ4, ZSTD])
@pytest.mark.parametrize("code", [CODE, b"short", b"ab" * 40, b"\0" * 70_000])
def test_code_is_what_was_stored(written, code, compressed):
    path = written(fatbin(entry(2, 90, code, compressed), entry(1, 120, b"ptx")))
    first, second = entries(path)
    assert (first.kind, first.arch, second.kind, second.arch) == ("cubin", "sm_90", "ptx", "sm_120")
    assert first.code()[: len(code)] == code
    assert second.code().rstrip(b"\0") == b"ptx"


def test_several_fatbins_follow_one_another_after_padding(written):
    one = fatbin(entry(2, 80, CODE))
    path = written(one + bytes(-len(one) % 8 + 16) + fatbin(entry(2, 90, CODE, LZ4)))
    assert [each.arch for each in entries(path)] == ["sm_80", "sm_90"]


def test_nothing_is_no_code(written):
    assert entries(written(b"")) == []


@pytest.mark.parametrize("kept", [30, 70, 100])
def test_a_truncated_file_says_so(written, kept):
    with pytest.raises(TraceFormatError, match="ends early"):
        entries(written(fatbin(entry(2, 90, CODE))[:kept]))


@pytest.mark.parametrize("compressed", [LZ4, ZSTD])
def test_damaged_code_says_so(written, compressed):
    data = bytearray(fatbin(entry(2, 90, CODE, compressed)))
    data[-12:] = b"\xff" * 12
    data[90:110] = b"\xff" * 20
    (found,) = entries(written(bytes(data)))
    with pytest.raises(TraceFormatError, match=r"damaged|ends early"):
        found.code()


def test_a_size_that_is_a_lie_fills_no_memory(written):
    data = bytearray(fatbin(entry(2, 90, CODE, LZ4)))
    data[16 + 56 : 16 + 64] = (1 << 50).to_bytes(8, "little")
    with pytest.raises(TraceFormatError, match="1,125,899,906,842,624 bytes"):
        entries(written(bytes(data)))[0].code()


def test_an_elf_file_that_is_damaged_says_so(written):
    pytest.importorskip("elftools")
    with pytest.raises((TraceFormatError, InputError), match="damaged"):
        entries(written(b"\x7fELF" + bytes(60)))


def test_what_nvcc_made_is_what_cuobjdump_lists(tmp_path):
    pytest.importorskip("elftools")
    need("cuobjdump")
    if not shutil.which("nvcc"):
        pytest.skip("no nvcc here")
    (tmp_path / "k.cu").write_text(SOURCE)
    kinds = ((80, "sm"), (90, "sm"), (90, "compute"))
    targets = [f"-gencode=arch=compute_{n},code={kind}_{n}" for n, kind in kinds]
    for name, how in (("k.fatbin", ["-fatbin"]), ("k.so", ["-shared", "-Xcompiler", "-fPIC"])):
        made = subprocess.run(
            ["nvcc", *how, *targets, "-o", name, "k.cu"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        if made.returncode:
            pytest.skip(f"nvcc does not work here: {made.stderr[:200]}")
        found = entries(tmp_path / name)
        listed = subprocess.run(
            [tools.find_newest("cuobjdump")[0], "-lelf", "-lptx", tmp_path / name],
            capture_output=True,
            text=True,
        ).stdout
        expected = Counter(re.findall(r"\.(sm_\d+)\.(cubin|ptx)", listed))
        assert Counter((each.arch, each.kind) for each in found) == expected
        cubins = [each.code() for each in found if each.kind == "cubin"]
        kernels = Counter(name for cubin in cubins for name in cubin_file.kernels(cubin))
        assert kernels == {"_Z1kILi1EEvPf": 2, "_Z1kILi2EEvPf": 2}
        assert all(b".visible .entry _Z1kILi1EEvPf" in e.code() for e in found if e.kind == "ptx")


@pytest.mark.parametrize(("start", "size"), [(100, 1 << 20), (1 << 62, 1 << 62)])
def test_a_section_beyond_the_end_of_its_file_says_so(written, start, size):
    pytest.importorskip("elftools")
    names = b"\0.nv_fatbin\0.shstrtab\0"
    header = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    header += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, 64 + len(names), 0, 64, 0, 0, 64, 3, 2)
    sections = ((0, 0, 0, 0), (1, 1, start, size), (12, 3, 64, len(names)))
    table = b"".join(
        struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, at, length, 0, 0, 1, 0)
        for name, kind, at, length in sections
    )
    with pytest.raises(TraceFormatError, match="ends early"):
        entries(written(header + names + table, "k.so"))
