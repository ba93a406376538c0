"""CUDA C++ that torch compiles at run time is gathered, under a torch and an NVRTC made up here,
and under the real ones where they are."""

import base64
import importlib.util
import json
import os
import subprocess
import sys

import pytest

from tests.recorders.recorded_programs import environment, gathered, notes
from traceview.kernels.toolchain import cuda_cpp
from traceview.traces.recorders.written_tables import kernel_row as row_of

TORCH = """
import ctypes
LIBRARY = None

def _get_gpu_rtc_library():
    return LIBRARY

def _nvrtc_compile(source, name, capability="90", nvcc_options=()):
    library = _get_gpu_rtc_library()
    options = [f"--gpu-architecture=sm_{capability}".encode(), *(o.encode() for o in nvcc_options)]
    program = ctypes.c_void_p()
    text, file = source.encode(), f"{name}.cu".encode()
    library.nvrtcCreateProgram(ctypes.byref(program), text, file, 0, None, None)
    array = (ctypes.c_char_p * len(options))(*options)
    if library.nvrtcCompileProgram(program, len(options), array):
        raise RuntimeError("Kernel compilation failed")
    code = library.CODE
    library.nvrtcDestroyProgram(ctypes.byref(program))
    return code, "_Z" + name
"""
LIBRARY = """
import ctypes, sys
import torch.cuda._utils as utils

class Library:
    CODE = b"\\x7fELF cubin"
    PTX = b'.version 8.0\\n.file 1 "/home/me/k.cu"\\n\\0'
    calls = []
    def nvrtcCreateProgram(self, program, *rest): program._obj.value = 7
    def nvrtcCompileProgram(self, program, count, options):
        self.calls.append([options[at].decode() for at in range(count)])
        return b"bad" in b"".join(options[at] for at in range(count))
    def nvrtcDestroyProgram(self, program): self.calls.append("destroyed")
    def nvrtcGetPTXSize(self, program, size):
        assert program.value == 7
        size._obj.value = len(self.PTX)
        return 0
    def nvrtcGetPTX(self, program, buffer):
        buffer.raw = self.PTX
        return 0

utils.LIBRARY = Library()
"""


@pytest.fixture
def run(tmp_path):
    """Run a program with a made-up torch; what it printed and what was gathered."""
    package = tmp_path / "torch" / "cuda"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").touch()
    (package / "_utils.py").write_text(TORCH)
    folder = tmp_path / "gathered"

    def ran(program, library=LIBRARY):
        (tmp_path / "program.py").write_text(library + program)
        done = subprocess.run(
            [sys.executable, "program.py"],
            env=environment(folder),
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        return done, gathered(folder), notes(folder)

    return ran


def test_a_kernel_with_ptx_cubin_source_and_lines(run):
    done, found, said = run("print(utils._nvrtc_compile('a kernel', 'k'), utils.LIBRARY.calls)")
    options = "['--gpu-architecture=sm_90', '--generate-line-info']"
    assert done.stdout == f"(b'\\x7fELF cubin', '_Zk') [{options}, 'destroyed']\n", done.stderr
    assert said == ""
    (kernel,) = found
    assert kernel.pop("hash").startswith("nvrtc-")
    assert base64.b64decode(kernel.pop("cubin")) == b"\x7fELF cubin"
    assert kernel == {
        "name": "_Zk",
        "arch": 90,
        "ptx": '.version 8.0\n.file 1 "/home/me/k.cu"\n',
        "arguments": [],
        "options": {"nvrtc": ["--gpu-architecture=sm_90"]},
        "source_file": "/home/me/k.cu",
        "source_line": 1,
        "source_text": "a kernel",
    }


def test_where_torch_loads_ptx_there_is_no_cubin(run):
    library = LIBRARY.replace('CODE = b"\\x7fELF cubin"', "CODE = b'.version 8.1'")
    _, (kernel,), _ = run("utils._nvrtc_compile('a kernel', 'k')", library)
    assert kernel["cubin"] is None
    assert kernel["ptx"].startswith(".version 8.0")


def test_it_is_a_row_of_the_table(run, tmp_path):
    run("utils._nvrtc_compile('a kernel', 'k', '90a')")
    (path,) = (tmp_path / "gathered").glob("*.json")
    row = row_of(path)
    assert (row["name"], row["arch"], row["source_line"]) == ("_Zk", "sm_90", 1)
    assert json.loads(row["options"]) == {"nvrtc": ["--gpu-architecture=sm_90a"]}


@pytest.mark.parametrize("option", ["-lineinfo", "-G", "-dlto"])
def test_options_of_the_users_stay(run, option):
    done, _, _ = run(
        f"utils._nvrtc_compile('x', 'k', nvcc_options=['{option}']); print(utils.LIBRARY.calls)"
    )
    assert f"['--gpu-architecture=sm_90', '{option}']" in done.stdout


def test_what_fails_for_torch_fails_as_before(run):
    done, found, said = run("utils._nvrtc_compile('x', 'k', nvcc_options=['bad'])")
    assert "RuntimeError: Kernel compilation failed" in done.stderr
    assert (found, said) == ([], "")


def test_what_fails_for_us_is_a_note_and_no_failure(run):
    library = LIBRARY.replace("return 0", "raise ValueError('odd')")
    done, (kernel,), said = run("print(utils._nvrtc_compile('x', 'k')[1])", library)
    assert (done.stdout, kernel["ptx"], said) == ("_Zk\n", None, "")
    library = LIBRARY.replace('b"\\x7fELF cubin"', "7.5")
    done, _, _ = run("utils.LIBRARY.CODE = object; print(utils._nvrtc_compile('x', 'k')[1])")
    assert done.stdout == "_Zk\n"


def test_a_torch_that_is_different_leaves_a_note(run, tmp_path):
    (tmp_path / "torch" / "cuda" / "_utils.py").write_text("value = 1")
    done, found, said = run("import torch.cuda._utils as u; print(u.value)", "")
    assert (done.stdout, found) == ("1\n", [])
    assert "_nvrtc_compile" in said


REAL = """
import torch, torch.cuda._utils as utils, torch.utils.cpp_extension as extension
torch.version.cuda = "{major}.0"
extension.include_paths = lambda *_: []
source = "template <class T> __global__ void k(T* x) {{ x[threadIdx.x] += 1; }}"
print(utils._nvrtc_compile(source, "k<float>", "90")[1])
"""


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
def test_under_the_real_torch_and_nvrtc(tmp_path):
    library = cuda_cpp.find()
    if library is None:
        pytest.skip("no NVRTC here")
    folder, major = tmp_path / "gathered", library.name.rpartition(".")[2]
    (tmp_path / "program.py").write_text(REAL.format(major=major))
    path = os.pathsep.join([str(library.parent), os.environ.get("LD_LIBRARY_PATH", "")])
    done = subprocess.run(
        [sys.executable, "program.py"],
        env=environment(folder, LD_LIBRARY_PATH=path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "_Z1kIfEvPT_\n", done.stderr
    (kernel,) = gathered(folder)
    assert ".entry _Z1kIfEvPT_" in kernel["ptx"]
    assert kernel["source_file"].endswith("/k<float>.cu")
    assert ".loc" in kernel["ptx"]
