"""Code that the user gives: cubins, PTX, and what nvcc puts into programs and libraries."""

import shutil
import subprocess
import sys

import pytest

from tests.ptx.compiled_kernels import ptx_kernel
from traceview.base.errors import InputError, PtxSyntaxError, TraceFormatError, TraceviewError
from traceview.kernels.inspect.targets import binary_kernels
from traceview.kernels.toolchain import tools
from traceview.kernels.toolchain.listings import assemble

pytestmark = pytest.mark.programs

PTX = ptx_kernel("ld.global.f32 %r3, [%rd3];")
HOST = """
template <class T> __global__ void twice(const T* x, T* y) { y[threadIdx.x] = 2 * x[threadIdx.x]; }
void go(float* x, float* y) { twice<float><<<1, 1>>>(x, y); }
"""
BOTH = [f"-gencode=arch=compute_{n},code=sm_{n}" for n in (80, 90)]


def names(*paths):
    return [(k.name, k.arch, bool(k.ptx), bool(k.cubin)) for k in binary_kernels(paths)]


@pytest.fixture
def files(tmp_path):
    pytest.importorskip("elftools")
    (tmp_path / "k.ptx").write_text(PTX)
    try:
        (tmp_path / "k.cubin").write_bytes(assemble(PTX).cubin)
    except tools.ToolNotFoundError as error:
        pytest.skip(str(error))
    return tmp_path


def test_a_cubin_and_ptx_and_both_of_one_kernel(files):
    assert names(files / "k.cubin") == [("k", "sm_90", False, True)]
    assert names(files / "k.ptx") == [("k", "sm_90", True, False)]
    assert names(files / "k.ptx", files / "k.cubin") == [("k", "sm_90", True, True)]


def test_a_cubin_of_any_name(files):
    shutil.copy(files / "k.cubin", files / "tmpxft.o")
    assert names(files / "tmpxft.o") == [("k", "sm_90", False, True)]


@pytest.mark.parametrize("made", [("--shared", "-Xcompiler", "-fPIC"), ("-fatbin",), ("-c",)])
def test_what_nvcc_made_is_searched(tmp_path, made):
    nvcc = shutil.which("nvcc")
    if not nvcc:
        pytest.skip("no nvcc here")
    (tmp_path / "host.cu").write_text(HOST)
    command = [nvcc, *made, *BOTH, "-o", "made.so", "host.cu"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"nvcc does not work here: {done.stderr[:200]}")
    mangled = "_Z5twiceIfEvPKT_PS0_"
    assert names(tmp_path / "made.so") == [
        (mangled, "sm_80", False, True),
        (mangled, "sm_90", False, True),
    ]


def test_what_holds_no_code(files):
    (files / "host.so").write_bytes(b"\x7fELF" + bytes(200))
    with pytest.raises(TraceFormatError, match=r"host\.so: the ELF file is damaged"):
        binary_kernels([files / "host.so"])
    with pytest.raises(InputError, match="holds no GPU code"):
        binary_kernels([sys.executable])
    with pytest.raises(InputError, match=r"cannot read .*: No such file"):
        binary_kernels([files / "none"])
    with pytest.raises(InputError, match="cannot read"):
        binary_kernels([files])
    (files / "bad.ptx").write_text("no")
    with pytest.raises((PtxSyntaxError, TraceviewError)):
        binary_kernels([files / "bad.ptx"])
    (files / "empty.ptx").write_text(".version 8.0\n.target sm_90\n.address_size 64\n")
    with pytest.raises(InputError, match="holds no kernel"):
        binary_kernels([files / "empty.ptx"])


def test_a_damaged_cubin_is_told_by_its_name(files):
    raw = (files / "k.cubin").read_bytes()
    (files / "cut.cubin").write_bytes(raw[: len(raw) // 2])
    with pytest.raises(TraceFormatError, match=r"cut\.cubin: the cubin is damaged"):
        binary_kernels([files / "cut.cubin"])
