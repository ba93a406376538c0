"""Kernels of files whose host code does not compile here, in the forms that programs have."""

import itertools
import re

import pytest

from tests.inspect.rules.written_ptx import need_compiler
from traceview.base.errors import TraceviewError
from traceview.kernels.toolchain.cuda_cpp import compile_cuda
from traceview.kernels.toolchain.device_code import DeviceCode

KERNELS = """
template <typename T, int N>
__global__ void tiled(const T* x, T* y) {
  // A brace { in a comment, and one in a text.
  const char* text = "}{";
  y[threadIdx.x + N] = text[0] ? x[threadIdx.x] : T(0);
}
__constant__ float factors[4] = {1, 2, 3, 4};
__global__ void plain(float* x) { x[threadIdx.x] *= factors[0]; }
"""
HOST = {
    "a function": "void run(Handle_t h, float* x) {\n  tiled<float, 8><<<1, 32>>>(x, x);\n}\n",
    "constants": (
        "static int run(Comm_t c, float* x) {\n  const int N = 4, M = 2;\n"
        "  constexpr int K = 2 * 4;\n  using T = float;\n  tiled<T, K><<<1, 32>>>(x, x);\n"
        "  return 0;\n}\n"
    ),
    "a class": (
        "class Runner {\n  Handle_t handle;\n public:\n  Runner() : handle(0) {}\n"
        "  void go(float* x) { tiled<float, 8><<<dim3(1), 32, 0>>>(x, x); }\n};\n"
    ),
    "a macro's": (
        "#define CHECK(x) if ((x) != OK_STATUS) {{ \\\n  throw 1; }}\n"
        "int main() {\n#ifdef CPU\n  return 1;\n#endif\n  CHECK(init(1));\n"
        "  auto f = tiled<float, 8>;\n}\n"
    ),
    "a template": (
        "template <class H> void go(H h, float* x) { tiled<float, 8><<<1, 32>>>(x, x); }\n"
        "static Handle_t shared_handle;\nvoid run(float* x) { go(shared_handle, x); }\n"
    ),
    "PyTorch's": (
        "torch::Tensor run(torch::Tensor x) {\n  AT_DISPATCH(x.type(), [&] {\n"
        "    tiled<scalar_t, 8><<<1, 32>>>(x.data<scalar_t>(), x.data<scalar_t>()); });\n"
        '  return x;\n}\nPYBIND11_MODULE(NAME, m) { m.def("run", &run); }\n'
    ),
}
HEADERS = ("<of_nobody.h>", '"of/tomorrow.hpp"', "<boost_of_nobody/all.hpp>")


@pytest.mark.parametrize("kind", HOST)
def test_kernels_compile_without_the_host_code_that_does_not(kind, tmp_path):
    need_compiler()
    names = itertools.cycle(HEADERS)
    includes = "".join(f"#include {next(names)}\n" for _ in range(1 + len(kind) % 3))
    program = tmp_path / "program.cu"
    text = f"{includes}namespace ops {{\n{KERNELS}{HOST[kind]}}}  // ops\n"
    program.write_text(text)
    notes = list[str]()
    ptx, _ = compile_cuda(program, note=notes.append)
    assert len(re.findall(r"\.entry \w*tiled", ptx)) == 1
    assert len(re.findall(r"\.entry \w*plain", ptx)) == 1
    assert notes[0].startswith("host code of program.cu is left out: ")
    assert notes[1:] == ["`scalar_t` is taken as float"] * (kind == "PyTorch's")
    # Lines are those of the source.
    line = 1 + text[: text.index("y[threadIdx.x + N]")].count("\n")
    file = re.search(rf'\.file\s+(\d+) "{program}"', ptx)
    assert file
    assert re.search(rf"\.loc\s+{file[1]} {line} ", ptx)


def test_a_header_of_the_project_loses_its_host_code_too(tmp_path):
    need_compiler()
    (tmp_path / "handles.h").write_text(
        "#pragma once\n#include <of_nobody.h>\nextern Handle_t shared_handle;\n"
        "#define WIDTH 4321\ninline void check(Status_t s) { if (s) throw 1; }\n"
    )
    program = tmp_path / "program.cu"
    run = "void run(float* x) { check(start()); tiled<float, WIDTH><<<1, 32>>>(x, x); }\n"
    program.write_text(f'#include "handles.h"\n{KERNELS}{run}')
    assert "4321" in compile_cuda(program)[0]


@pytest.mark.parametrize("name", ["time.h", "string.h", "limits.h", "math.h"])
def test_a_header_that_is_named_as_one_of_the_system(name, tmp_path):
    need_compiler()
    (tmp_path / name).write_text("#pragma once\n#define WIDTH 4321\n")
    program = tmp_path / "program.cu"
    run = "void run(float* x) { check(start()); tiled<float, WIDTH><<<1, 32>>>(x, x); }\n"
    program.write_text(f'#include <chrono>\n#include "{name}"\n{KERNELS}{run}')
    assert "4321" in compile_cuda(program)[0]


@pytest.mark.parametrize("use", ["", "template void go<float>(Handle_t, float*);\n"])
def test_templates_alone_are_not_left_without_the_host_code(use, tmp_path):
    need_compiler()
    program = tmp_path / "program.cu"
    text = KERNELS[: KERNELS.index("__constant__")]
    program.write_text(
        f"#include <of_nobody.h>\n{text}\ntemplate <class U> void go(Handle_t h, U* x) {{\n"
        f"  tiled<U, 8><<<1, 32>>>(x, x);\n}}\n{use}"
    )
    if use:
        assert len(re.findall(r"\.entry \w*tiledIfLi8E", compile_cuda(program)[0])) == 1
        return
    with pytest.raises(TraceviewError, match=r"of_nobody\.h: No such file.*NVCC_APPEND_FLAGS"):
        compile_cuda(program)


@pytest.mark.parametrize(
    "text",
    [
        "__device__ float twice(Handle_t x) { return x * 2; }",
        "struct Both { Handle_t a; __device__ float get() { return a; } };",
        "__constant__ Handle_t table[4];",
    ],
)
def test_code_for_the_gpu_is_never_left_out(text, tmp_path):
    need_compiler()
    program = tmp_path / "program.cu"
    program.write_text(f"#include <of_nobody.h>\n{KERNELS}{text}\n")
    with pytest.raises(TraceviewError, match=r"of_nobody\.h: No such file"):
        compile_cuda(program)


def test_what_is_written_keeps_lines_and_directives():
    text = "#define A 1\nint f() {\n#if A\n  return 1;\n#pragma unroll\n#endif\n}\nint g;\n"
    code = DeviceCode("a.cu", text).without([("a.cu", 4)])
    assert code is not None
    written = code.written().splitlines()
    assert written[0] == '#line 1 "a.cu"'
    assert [line.strip() for line in written[1:]] == [
        "#define A 1", "", "#if A", "", "", "#endif", "", "int g;",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("macro", "types"),
    [
        ("AT_DISPATCH_FLOATING_TYPES", ["float"]),
        ("AT_DISPATCH_FLOATING_TYPES_AND_HALF", ["float", "c10::Half"]),
        ("AT_DISPATCH_REDUCED_FLOATING_TYPES", ["c10::Half"]),
        ("OWN_DISPATCH_HALF", ["c10::Half"]),
        ("AT_DISPATCH_INTEGRAL_TYPES", ["int"]),
        ("AT_DISPATCH_CASE", []),
    ],
)
def test_types_are_those_that_the_macro_chooses(macro, types):
    host = HOST["PyTorch's"].replace("AT_DISPATCH", macro)
    written = DeviceCode("a.cu", f"{KERNELS}{host}").without_tensors().written()
    assert re.findall(r"using scalar_t = ([\w:]+);", written) == types
