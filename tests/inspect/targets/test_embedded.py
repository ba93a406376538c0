"""Kernels in libraries, objects and fatbins: which architecture, with which PTX."""

import pytest

from tests.inspect.rules.written_ptx import need
from tests.ptx.compiled_kernels import ptx_kernel
from tests.ptx.sass.fatbins import LZ4, ZSTD, entry, fatbin
from traceview.base.errors import InputError, TraceFormatError
from traceview.kernels.headless.compile_options import CompileOptions
from traceview.kernels.inspect.targets import kernels_of
from traceview.kernels.toolchain.listings import assemble

PTX = ptx_kernel("ld.global.f32 %r3, [%rd3];")


@pytest.fixture(scope="module")
def cubin():
    pytest.importorskip("elftools")
    need("ptxas")
    return assemble(PTX).cubin


def kernels(path, notes=None, **options):
    note = (lambda _: None) if notes is None else notes.append
    found = kernels_of(str(path), CompileOptions(**options), note=note)
    return [(k.name, k.arch, bool(k.ptx), bool(k.cubin)) for k in found]


def test_a_cubin_comes_with_its_ptx(cubin, tmp_path):
    path = tmp_path / "k.fatbin"
    ptx = entry(1, 90, PTX.encode(), ZSTD)
    path.write_bytes(fatbin(entry(2, 90, cubin, LZ4), ptx, entry(2, 80, cubin)))
    notes = []
    assert kernels(path, notes) == [("k", "sm_90", True, True)]
    assert notes == ["k.fatbin: 1 kernel for sm_90; it has sm_80, too (--arch)"]


def test_ptx_alone_is_read(tmp_path):
    path = tmp_path / "k.o.fatbin"
    path.write_bytes(fatbin(entry(1, 90, PTX.encode())))
    assert kernels(path, num_warps=4) == [("k", "sm_90", True, False)]


def test_the_newest_is_taken_where_sm_90_is_not_there(tmp_path):
    path, text = tmp_path / "k.fatbin", PTX.replace("sm_90", "sm_100")
    old = entry(1, 80, PTX.replace("sm_90", "sm_80").encode())
    path.write_bytes(fatbin(old, entry(1, 100, text.encode())))
    assert kernels(path) == [("k", "sm_100", True, False)]
    assert kernels(path, arch="sm_80") == [("k", "sm_80", True, False)]
    with pytest.raises(InputError, match="no code for sm_89; it has sm_80, sm_100"):
        kernels(path, arch="sm_89")


def test_what_holds_no_code_says_so(tmp_path):
    empty, short = tmp_path / "k.fatbin", tmp_path / "short.fatbin"
    empty.write_bytes(fatbin())
    with pytest.raises(InputError, match=r"k\.fatbin holds no GPU code"):
        kernels(empty)
    short.write_bytes(fatbin(entry(1, 90, PTX.encode()))[:80])
    with pytest.raises(TraceFormatError, match=r"short\.fatbin: .*truncated"):
        kernels(short)
