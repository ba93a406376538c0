"""Kernels of PyTorch's extensions: the headers that take nvcc long are left out, and no code is."""

import math
import re
import sys
from pathlib import Path

import pytest

from tests.inspect.rules.written_ptx import need_compiler
from traceview.kernels.toolchain import cuda_cpp, missing_headers, torch_headers
from traceview.kernels.toolchain.tools import find

# PyTorch's headers in little: a heavy one, which includes many others, and light ones.
LIGHT = {
    "torch/version.h": "#define TORCH_VERSION_MAJOR 2\n",
    "ATen/Dispatch.h": (
        "#define AT_DISPATCH_FLOATING_TYPES(type, name, ...) \\\n"
        "  { using scalar_t = float; (__VA_ARGS__)(); } \\\n"
        "  { using scalar_t = double; (__VA_ARGS__)(); }\n"
    ),
    "ATen/core/TensorAccessor.h": (
        "#include <cstdint>\nnamespace at {\ntemplate <class T, int N> struct Accessor {\n"
        "  T* data; const int* strides;\n"
        "  __device__ auto& operator[](int i) { return data[i * strides[0]]; }\n};\n"
        "template <class T, int N> struct PackedTensorAccessor32 {\n  T* data; int strides[N];\n"
        "  __device__ auto operator[](int i) {\n"
        "    return Accessor<T, N - 1>{data + i * strides[0], strides + 1};\n  }\n};\n}\n"
    ),
    "c10/cuda/CUDAException.h": "#include <cuda.h>\n#include <c10/util/Half.h>\n",
    "c10/util/Half.h": (
        "#include <cuda_fp16.h>\nnamespace c10 { struct alignas(2) Half { __half value;\n"
        "  __device__ operator float() const { return __half2float(value); }\n"
        "  __device__ operator __half() const { return value; } }; }\n"
        "namespace at { using namespace c10; }\n"
    ),
}
HEAVY = """
#include <vector>
namespace at {
constexpr int OF_TENSORS = 4321;
struct Tensor {
  template <class T> T* data_ptr() const { return nullptr; }
  int type() const { return 0; }
};
inline Tensor empty(int) { return {}; }
}
namespace torch { using namespace at; }
#define PYBIND11_MODULE(name, m) \\
  struct M { template <class F> void def(const char*, F) {} }; void module_of(M m)
"""
LAUNCH = (
    "torch::Tensor run(torch::Tensor x) {{\n  auto y = torch::empty(4);\n  {}\n  return y;\n}}\n"
)
BOUND = 'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("run", {}); }}\n'
ONE = "__global__ void k(float* x) {{ x[threadIdx.x] {}; }}\n"
OF_TYPE = "template <typename T> __global__ void k(T* x) { x[threadIdx.x] *= T(3); }\n"
OF_SIZE = "template <typename T, int N> __global__ void k(T* x) { x[threadIdx.x * N] = T(N); }\n"
CALL = LAUNCH.format("k<<<1, 32>>>(x.data_ptr<float>());")
KINDS = {
    "pointers": ONE.format("*= 2") + CALL,
    "a version": f"#if TORCH_VERSION_MAJOR > 1\n{ONE.format('*= 2')}#endif\n{CALL}",
    "an accessor": (
        "__global__ void k(torch::PackedTensorAccessor32<float, 2> x) { x[1][threadIdx.x] *= 2; }\n"
    ),
    "a class with host members": (
        "class Rows {\npublic:\n  Rows(const torch::Tensor& x) : data(x.data_ptr<float>()) {}\n"
        "  __device__ float* at(int row) { return data + row; }\nprivate:\n  float* data;\n};\n"
        "__global__ void k(Rows x) { *x.at(threadIdx.x) *= 2; }\n"
        + LAUNCH.format("Rows rows(x); k<<<1, 32>>>(rows);")
    ),
    "a half": "__global__ void k(at::Half* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }\n",
    "a dispatch": OF_TYPE
    + LAUNCH.format(
        'AT_DISPATCH_FLOATING_TYPES(x.type(), "k", [&] {\n'
        "    k<scalar_t><<<1, 32>>>(x.data_ptr<scalar_t>()); });"
    )
    + BOUND.format("run"),
    "a launcher": OF_SIZE + "template <typename U, int M = 2> void launch(torch::Tensor x) {\n"
    "  constexpr int TWICE = 2 * M;\n  k<U, TWICE><<<1, 32>>>(x.data_ptr<U>());\n}\n"
    + LAUNCH.format("launch<float, 8>(x); launch<double, 16>(x);"),
    "a binding": OF_SIZE
    + "template <typename U, int M> void launch(U* x) { k<U, M><<<1, 32>>>(x); }\n"
    + BOUND.format("&launch<float, 4>"),
}
# What the light headers do not tell.
WHOLE = {
    "a constant": ONE.format("*= at::OF_TENSORS") + CALL,
    "a deduced type": OF_TYPE + CALL,
    "a macro's launch": OF_SIZE
    + "#define LAUNCH(N) k<float, N><<<1, 32>>>(x.data_ptr<float>())\n"
    + LAUNCH.format("LAUNCH(4);"),
}
HEADERS = ("<torch/extension.h>", "<torch/types.h>", '"ops.h"')


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A source beside a header of its project, with PyTorch's headers installed."""
    need_compiler()
    include = tmp_path / "site/torch/include"
    many = {f"ATen/ops/of_{n}.h": f"constexpr int of_{n} = {n};\n" for n in range(80)}
    names = [*many, *(name for name in LIGHT if name.startswith(("ATen", "torch")))]
    heavy = "".join(f"#include <{name}>\n" for name in [*names, "c10/cuda/CUDAException.h"])
    texts = {name: f"#pragma once\n{text}" for name, text in (LIGHT | many).items()}
    texts |= {f"torch/{name}.h": "#include <ATen/ATen.h>\n" for name in ("extension", "types")}
    texts["ATen/ATen.h"] = f"#pragma once\n{heavy}{HEAVY}"
    for name, text in texts.items():
        (include / name).parent.mkdir(parents=True, exist_ok=True)
        (include / name).write_text(text)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    source = tmp_path / "csrc/program.cu"
    source.parent.mkdir()
    ops = "#pragma once\n#include <torch/extension.h>\ntorch::Tensor run(torch::Tensor x);\n"
    (source.parent / "ops.h").write_text(ops)
    return source


def bodies(ptx: str) -> dict[str, str]:
    """The code of each kernel, without what names lines and files."""
    found = dict[str, str]()
    for entry in re.finditer(r"\.entry\s+(\S+?)\(.*?\n\}", ptx, re.DOTALL):
        text = re.sub(r"//.*|^\s*\.loc\s.*|\$L__BB\d+|\$L__tmp\d+:?", "", entry[0], flags=re.M)
        found[entry[1]] = "\n".join(filter(None, map(str.strip, text.splitlines())))
    return found


def whole(source: Path, folder: Path) -> dict[str, str]:
    asked = cuda_cpp._Asked("sm_90", find("nvcc")[0], folder, "", 300.0, math.inf)
    attempt = cuda_cpp._Attempt(source, asked, "all", is_light=False)
    ptx = attempt.ptx()
    assert ptx is not None
    assert not list(attempt.notes())
    return bodies(ptx)


@pytest.mark.parametrize("kind", KINDS)
def test_light_headers_give_the_code_of_all(kind, program, tmp_path):
    header = HEADERS[len(kind) % 3]
    program.write_text(f"#include {header}\n{KINDS[kind]}")
    notes = list[str]()
    light = bodies(cuda_cpp.compile_cuda(program, note=notes.append, kernel="k")[0])
    every = whole(program, tmp_path / "all")
    assert light
    assert light == {name: every[name] for name in light}
    assert [each for each in every if each not in light] == [
        each for each in every if "k" in each and kind == "a dispatch" and "kId" in each
    ]
    why = "host code of program.cu is left out: PyTorch's headers take nvcc long"
    is_left_out = "torch::Tensor" in KINDS[kind] or "PYBIND" in KINDS[kind]
    taken = ["`scalar_t` is taken as float"] * (kind == "a dispatch")
    assert notes == [why] * is_left_out + taken


@pytest.mark.parametrize("kind", WHOLE)
def test_all_headers_are_used_where_light_ones_do_not_suffice(kind, program, tmp_path):
    program.write_text(f"#include <torch/extension.h>\n{WHOLE[kind]}")
    notes = list[str]()
    ptx, _ = cuda_cpp.compile_cuda(program, note=notes.append, kernel="k")
    assert bodies(ptx) == whole(program, tmp_path / "all")
    assert not notes


@pytest.mark.parametrize("header", ["../of_nobody.h", "of/nobody.h", "Eigen/Sparse"])
def test_headers_of_libraries_that_are_missing_too(header, program):
    program.write_text(f'#include "{header}"\n#include <torch/extension.h>\n{KINDS["a dispatch"]}')
    notes = list[str]()
    ptx, _ = cuda_cpp.compile_cuda(program, note=notes.append, kernel="k")
    assert list(bodies(ptx)) == ["_Z1kIfEvPT_"]
    assert notes[0].endswith(f"{header} missing, and PyTorch's headers take nvcc long")


@pytest.mark.parametrize(
    ("step", "types"),
    [("*= T(3)", "float"), ("= x[0] < x[1] ? x[0] : x[1]", "float and c10::Half")],
)
def test_a_type_is_half_where_the_kernel_can_have_it(step, types, program):
    """Macros with HALF choose it, too, and builds of extensions have no operators of __half."""
    text = KINDS["a dispatch"].replace("*= T(3)", step).replace("_TYPES(", "_TYPES_AND_HALF(")
    program.write_text(f"#include <torch/extension.h>\n{text}")
    notes = list[str]()
    ptx, _ = cuda_cpp.compile_cuda(program, note=notes.append, kernel="k")
    assert len(bodies(ptx)) == 1 + ("Half" in types)
    assert notes[1:] == [f"`scalar_t` is taken as {types}"]


@pytest.mark.parametrize("header", ["torch/extension.h", "ATen/ATen.h"])
def test_without_pytorch(header, program, monkeypatch):
    monkeypatch.setattr(torch_headers, "folders", list)
    monkeypatch.setattr(missing_headers, "in_wheels", lambda _: iter(()))
    program.write_text(f"#include <{header}>\n{KINDS['a dispatch']}")
    notes = list[str]()
    ptx, _ = cuda_cpp.compile_cuda(program, note=notes.append, kernel="k")
    assert list(bodies(ptx)) == ["_Z1kIfEvPT_"]
    assert f"{header} missing" in notes[0]


def test_of_the_installed_pytorch(tmp_path):
    need_compiler()
    pytest.importorskip("torch", reason="PyTorch is not installed")
    program = tmp_path / "program.cu"
    accessor = KINDS["an accessor"].replace("void k", "void a")
    program.write_text(f"#include <torch/extension.h>\n{accessor}{KINDS['a dispatch']}")
    notes = list[str]()
    found = bodies(cuda_cpp.compile_cuda(program, note=notes.append)[0])
    assert "_Z1kIfEvPT_" in found
    assert len(found) == 2
    assert "PyTorch's headers take nvcc long" in notes[0]
