"""Compiling CUDA C++ to PTX and a cubin, and the one-line form of compiler errors."""

import re
import sys
from pathlib import Path

import pytest

from tests.inspect.rules.written_ptx import need, need_compiler
from traceview.base.errors import InputError, ToolNotFoundError, TraceviewError
from traceview.kernels.ptx.accesses import accesses
from traceview.kernels.ptx.cubin import arch_of, resources
from traceview.kernels.ptx.model import SourceLine
from traceview.kernels.toolchain import cuda_cpp, missing_headers
from traceview.kernels.toolchain.cuda_cpp import compile_cuda
from traceview.kernels.toolchain.listings import disassemble
from traceview.kernels.toolchain.tools import find, release_of

pytest.importorskip("elftools", reason="pyelftools is not installed")

PROGRAM = """\
#include "step.h"
extern "C" __global__ void copy(const float4* from, float4* to) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  to[i] = step(from, i);
}
"""
# A kernel that uses what a missing header would declare.
NEEDING = PROGRAM.replace("to[i] =", "to[i] = of_header::FACTOR *")
HEADER = """\
__device__ __forceinline__ float4 step(const float4* from, int i) {
  float4 value = from[i];
  value.x *= 3.0f;
  return value;
}
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "step.h").write_text(HEADER)
    (tmp_path / "copy.cu").write_text(PROGRAM)
    return tmp_path / "copy.cu"


@pytest.fixture(params=["nvcc", "nvrtc"])
def compiler(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each compiler in turn; NVRTC is used only without nvcc."""
    need("ptxas")
    if request.param == "nvcc":
        need_compiler()
    elif cuda_cpp.find() is None:
        pytest.skip("no NVRTC here: it comes with a CUDA build of torch")
    else:
        monkeypatch.setenv("TRACEVIEW_NVCC", "/nowhere/nvcc")
    return request.param


@pytest.mark.usefixtures("compiler")
class TestCompile:
    def test_ptx_and_cubin(self, program):
        ptx, cubin = compile_cuda(program, "sm_90a")
        assert "ld.global" in ptx
        assert ".v4." in ptx
        assert (arch_of(cubin), list(resources(cubin))) == ("sm_90a", ["copy"])

    def test_the_outermost_line_of_an_inlined_load(self, program):
        need("nvdisasm")
        (function,) = disassemble(compile_cuda(program)[1]).functions
        (load,) = (access for access in accesses(function) if access.kind == "load")
        (scaled,) = (i for i in function.instructions if i.opcode == "FMUL")
        assert load.width_bits == 128
        assert load.source == scaled.source == SourceLine(str(program), 4)
        assert scaled.inlined == (SourceLine(str(program.with_name("step.h")), 3),)

    def test_the_first_error(self, program):
        program.write_text(PROGRAM.replace("= step(", "= stop("))
        with pytest.raises(TraceviewError, match=r"copy\.cu: copy\.cu\(4\): .*\"stop\"") as caught:
            compile_cuda(program)
        assert "\n" not in str(caught.value)

    def test_a_missing_header(self, program):
        program.with_name("step.h").unlink()
        with pytest.raises(TraceviewError, match=r"copy\.cu[:(]1\)?: .*step\.h"):
            compile_cuda(program)

    def test_an_unknown_gpu(self, program):
        with pytest.raises(TraceviewError, match=r"does not compile .*copy\.cu: .*arch"):
            compile_cuda(program, "sm_33")


def test_a_missing_file(tmp_path):
    with pytest.raises(InputError, match=r"cannot read .*gone\.cu: No such file"):
        compile_cuda(tmp_path / "gone.cu")


def test_no_compiler_at_all(program, monkeypatch):
    monkeypatch.setenv("TRACEVIEW_NVCC", "/nowhere/nvcc")
    monkeypatch.setattr(cuda_cpp, "find", lambda: None)
    with pytest.raises(
        ToolNotFoundError, match=r"needs nvcc or NVRTC, and neither .*; install the"
    ):
        compile_cuda(program)


@pytest.mark.parametrize(
    ("declared", "names"),
    [
        ("(const float *x, float *mean, int N, int C) {", ("x", "mean", "N", "C")),
        ("(float* __restrict__ x, int n = 4) {", ("x", "n")),
        ("(const float x[],  // of rows\n  int rows /* all */)\n{", ("x", "rows")),
        ("() {", ()),
    ],
)
def test_the_names_of_parameters(declared, names):
    text = f"void f(int a);\n__global__ void __launch_bounds__(128) k{declared}\n}}\n"
    assert cuda_cpp.parameter_names(text, "k") == names
    assert cuda_cpp.parameter_names(text, "other") == ()
    overloaded = f"__global__ void k(int* only, long, short b, char c, bool d);\n{text}"
    assert cuda_cpp.parameter_names(overloaded, "k", len(names)) == names


def test_a_header_and_a_macro_of_the_project(program):
    need_compiler()
    (program.parent / "CMakeLists.txt").touch()
    (program.parent / "include/parts").mkdir(parents=True)
    program.with_name("step.h").rename(program.parent / "include/parts/step.h")
    text = PROGRAM.replace("step.h", "parts/step.h").replace("to[i]", "to[i % _ROWS_]")
    (program.parent / "csrc").mkdir()
    source = program.parent / "csrc/copy.cu"
    source.write_text(text)
    with pytest.raises(TraceviewError, match=r"_ROWS_.*; define it, such as .*-D_ROWS_=<value>"):
        compile_cuda(source)
    flags = 'ROWS = 8\nROWS = 640\nload(extra_cuda_cflags=[f"-D_ROWS_={ROWS}"])\nROWS = 96\n'
    (program.parent / "build.py").write_text(flags)
    ptx, _ = compile_cuda(source)
    assert re.search(r"[, -]640;", ptx)


@pytest.mark.parametrize("place", ["vendor/step.h", "include/parts/step.h", "step.h"])
def test_a_header_below_the_current_folder(program, place, monkeypatch):
    """Where no file marks the project, it is the folder in which the user is."""
    need_compiler()
    root = program.parent
    (root / "src").mkdir()
    source = program.rename(root / "src/copy.cu")
    (root / place).parent.mkdir(parents=True, exist_ok=True)
    (root / "step.h").rename(root / place)
    missing = "copy.cu:1: step.h: No such file or directory"
    assert missing_headers.project_flags(missing, source) == []
    monkeypatch.chdir(root)
    assert missing_headers.project_flags(missing, source) == [f"-I{(root / place).parent}"]
    assert "copy" in compile_cuda(source)[0]


def test_folders_that_the_user_names_begin_at_the_current_one(program, monkeypatch):
    need_compiler()
    here = program.parent / "here"
    (program.parent / "src").mkdir()
    (here / "parts").mkdir(parents=True)
    program.with_name("step.h").rename(here / "parts/step.h")
    source = program.rename(program.parent / "src/copy.cu")
    monkeypatch.chdir(here)
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-Iparts")
    assert "copy" in compile_cuda(source)[0]


@pytest.mark.parametrize(
    ("folder", "header"),
    [
        ("nvidia/cu13/include", "cublas_v2.h"),
        ("nvidia/cublas/include", "cublas_v2.h"),
        ("nvidia/cu13/include/cccl", "cub/cub.cuh"),
        ("pybind11/include", "pybind11/pybind11.h"),
        ("cutlass_library/source/include", "cute/tensor.hpp"),
    ],
)
def test_headers_of_installed_packages(folder, header, tmp_path, monkeypatch):
    include = tmp_path / "site" / folder
    (include / header).parent.mkdir(parents=True)
    (include / header).write_text("constexpr int WIDTH = 4321;\n")
    (tmp_path / "site/other/include").mkdir(parents=True)
    (tmp_path / "site/other/include/common.h").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    source = tmp_path / "project/a.cu"
    source.parent.mkdir()
    missing = "a.cu:1: {}: No such file or directory"
    assert missing_headers.project_flags(missing.format("common.h"), source) == []
    assert missing_headers.project_flags(missing.format(header), source) == [
        f"-Xcompiler=-idirafter{include}"
    ]


def test_a_header_of_an_installed_package_is_compiled(program, monkeypatch):
    need_compiler()
    packages = program.parent / ".venv/lib/python3.13/site-packages"
    include = packages / "nvidia/cu13/include"
    include.mkdir(parents=True)
    (include / "of_a_wheel.h").write_text("constexpr int WIDTH = 4321;\n")
    # The toolkit has this one itself.
    (include / "cuda_fp16.h").write_text("#error of another release\n")
    monkeypatch.setattr(sys, "path", [str(packages), *sys.path])
    headers = "#include <of_a_wheel.h>\n#include <cuda_fp16.h>\n"
    program.write_text(headers + PROGRAM.replace("to[i]", "to[i % WIDTH]"))
    assert re.search(r"[, -]4321;", compile_cuda(program)[0])


@pytest.mark.parametrize(
    ("header", "package"),
    [
        ("cutlass/of_tomorrow.h", "nvidia-cutlass"),
        ("cuda/std/of_tomorrow", "nvidia-cuda-cccl"),
        ("of_nobody.h", ""),
    ],
)
def test_a_missing_header_is_named_with_its_package(header, package, program):
    need_compiler()
    program.write_text(f'#include "{header}"\n{NEEDING}')
    install = f"`pip install {package}\\d?`, or " if package else ""
    remedy = f"{install}name its folder with NVCC_APPEND_FLAGS=-I<folder of {header}>"
    with pytest.raises(TraceviewError, match=f"{header}: No such file or directory; {remedy}$"):
        compile_cuda(program)


@pytest.mark.parametrize("wait", ["", "cudaDeviceSynchronize();"])
def test_a_kernel_that_launches_kernels(wait, program):
    if not find("nvcc"):
        pytest.skip("NVRTC compiles one kernel as nvcc does")
    child = "__global__ void child(float* x) { x[threadIdx.x] *= 2; }\n"
    launch = f"child<<<1, 64>>>(x); {wait}"
    program.write_text(f"{child}__global__ void parent(float* x) {{ {launch} }}\n")
    if not wait:
        assert ".entry _Z6parentPf" in compile_cuda(program)[0]
        return
    with pytest.raises(TraceviewError, match="cudaDeviceSynchronize") as caught:
        compile_cuda(program)
    assert caught.value.remedy.startswith("CUDA 12 removed waiting for kernels inside a kernel")


@pytest.mark.parametrize(
    ("body", "remedy"),
    [
        ("x[0] = __shfl(x[1], 3);", "CUDA 9 replaced it"),
        ("x[0] = cudaDeviceProp().clockRate;", "CUDA 13 removed it"),
        ("x[0] = of_nobody(3);", ""),
    ],
)
def test_what_cuda_removed_is_said_with_what_takes_its_place(body, remedy, program):
    if not find("nvcc"):
        pytest.skip("the errors are those of nvcc")
    program.write_text(f"__global__ void k(float* x) {{ {body} }}\n")
    with pytest.raises(TraceviewError) as caught:
        compile_cuda(program)
    assert caught.value.remedy.startswith(remedy)
    assert bool(caught.value.remedy) == bool(remedy)


@pytest.mark.parametrize("blank", ["{{N}}", "{{ TILE_M }}"])
def test_a_template_of_a_file_says_so(blank, program):
    need_compiler()
    program.write_text(
        f"#define N {blank}\n__global__ void k(float* x) {{ x[threadIdx.x % N] = N; }}\n"
    )
    with pytest.raises(TraceviewError, match=r"it is a template whose \{\{.*are not filled in"):
        compile_cuda(program)


@pytest.mark.parametrize("second", ["cuda/std/of_tomorrow", "folder/of_nobody.h"])
def test_all_missing_headers_are_named_at_once(second, program):
    need_compiler()
    headers = "".join(f'#include "{each}"\n' for each in ("cutlass/a.h", second, "step.h"))
    program.write_text(headers + NEEDING)
    with pytest.raises(TraceviewError) as caught:
        compile_cuda(program)
    if find("nvcc"):
        packages = "nvidia-cutlass" + " nvidia-cuda-cccl" * second.startswith("cuda")
        assert (
            f"cutlass/a.h: No such file or directory; also missing: {second}" in caught.value.what
        )
        assert re.search(rf"`pip install {packages}[-cu1\d]*`", caught.value.remedy)
        assert caught.value.remedy.count("-I<folder of") == 2


@pytest.mark.parametrize("count", [2, 5])
@pytest.mark.parametrize("level", [0, 1])
def test_all_missing_headers_take_one_run_more(count, level, program, monkeypatch):
    """Also those that a header of the project includes."""
    need_compiler()
    if not find("nvcc"):
        pytest.skip("NVRTC compiles once")
    names = [f"of_nobody/{'abcde'[each]}.h" for each in range(count)]
    files = [program, program.with_name("step.h")]
    for number, name in enumerate(names):
        file = files[number % 2 * level]
        file.write_text(f"#include <{name}>\n{file.read_text()}")
    runs = list[bool]()
    run = cuda_cpp._run_nvcc

    def counted(nvcc, flags, *more):
        runs.append("-E" not in flags)
        return run(nvcc, flags, *more)

    monkeypatch.setattr(cuda_cpp, "_run_nvcc", counted)
    notes = list[str]()
    assert "copy" in compile_cuda(program, note=notes.append)[0]
    assert runs.count(True) == 2


def test_after_the_budget_nvcc_does_not_start_again(program, monkeypatch):
    need_compiler()
    if not find("nvcc"):
        pytest.skip("NVRTC compiles once")
    program.write_text(f"#include <of_nobody.h>\n{PROGRAM}")
    run = cuda_cpp._run_nvcc
    monkeypatch.setattr(cuda_cpp, "_run_nvcc", lambda nvcc, flags, *_: run(nvcc, flags))
    shown = r"of_nobody\.h: No such file or directory; not done within 0\.001 s; .*--budget 0\.003"
    with pytest.raises(TraceviewError, match=shown):
        compile_cuda(program, budget_s=0.001)


@pytest.mark.parametrize(
    ("kernels", "kernel", "remedy"),
    [
        (1, "", "allow more time with --budget 0.6"),
        (1, "copy", "allow more time with --budget 0.6"),
        (2, "", "name one of its kernels, as copy.cu:KERNEL, or allow more time with --budget 0.6"),
        (2, "copy", "allow more time with --budget 0.6"),
    ],
)
def test_a_compilation_that_takes_long_is_ended(kernels, kernel, remedy, program, monkeypatch):
    nvcc = program.with_name("nvcc")
    nvcc.write_text("#!/bin/sh\nexec sleep 60\n")
    nvcc.chmod(0o755)
    monkeypatch.setenv("TRACEVIEW_NVCC", str(nvcc))
    more = "__global__ void other(int* x) { *x = 1; }\n" * (kernels - 1)
    program.write_text(PROGRAM + more)
    with pytest.raises(TraceviewError) as raised:
        compile_cuda(program, kernel=kernel, budget_s=0.2)
    assert raised.value.what == "nvcc takes more than 0.6 s to compile copy.cu"
    assert raised.value.remedy == remedy


@pytest.mark.parametrize(
    "text",
    [
        "#include <concepts>\ntemplate <typename T> concept Real = std::same_as<T, float>;\n"
        "template <Real T> __device__ T of(T x) { return x; }\n",
        "template <typename T> requires (sizeof(T) == 4) __device__ T of(T x) { return x; }\n",
        "consteval int two() { return 2; }\n__device__ float of(float x) { return x * two(); }\n",
        "#include <bit>\n"
        "__device__ float of(float x) { return std::bit_cast<float>(std::bit_cast<int>(x)); }\n",
    ],
)
def test_code_of_a_newer_standard_than_nvcc_takes_by_itself(text, program):
    need_compiler()
    if not find("nvcc"):
        pytest.skip("NVRTC takes its standard from the headers")
    program.write_text(
        f"{text}__global__ void k(float* x) {{ x[threadIdx.x] = of(x[threadIdx.x]); }}\n"
    )
    assert ".entry" in compile_cuda(program)[0]


def test_functors_of_cuda_12_keep_their_bases(program):
    need_compiler()
    program.write_text(
        "#include <thrust/functional.h>\n"
        "struct Twice : public thrust::unary_function<float, float> {\n"
        "  __device__ float operator()(float x) const { return 2 * x; }\n};\n"
        "__global__ void k(float* x) { x[threadIdx.x] = Twice()(x[threadIdx.x]); }\n"
    )
    assert ".entry" in compile_cuda(program)[0]


@pytest.mark.parametrize(
    ("header", "package"),
    [
        *(
            (f"{name}{end}.h", f"nvidia-{name}")
            for name, ends in {
                "cublas": ("", "_v2", "Lt", "_api"),
                "curand": ("", "_kernel", "_mtgp32_host", "_uniform"),
                "cusparse": ("", "_v2"),
                "cusolver": ("Dn", "Sp", "_common"),
                "cufft": ("", "Xt", "w"),
                "npp": ("", "core", "i_filtering_functions"),
                "cudnn": ("", "_ops", "_adv_infer", "_version_v9"),
                "nccl": ("",),
            }.items()
            for end in ends
        ),
        ("cub/cub.cuh", "nvidia-cuda-cccl"),
        ("cuda/atomic", "nvidia-cuda-cccl"),
    ],
)
def test_only_headers_that_a_package_has(header, package):
    remedy = missing_headers.remedy(f"a.cu:1: {header}: No such file or directory", (13, 0))
    assert f"`pip install {package}" in remedy
    stem = header.rpartition(".")[0] or header
    for like in (f"{stem}_of_nobody.hpp", f"{stem}_nope.cuh", f"my_{header.replace('/', '_')}"):
        if not like.startswith("cub/"):
            text = missing_headers.remedy(f"a.cu:1: {like}: No such file or directory", (13, 0))
            assert "pip install" not in text
    for like in ("curand_nope.h", "cublas_helper.h", "cuda/helper.h", "nccl_wrapper.h"):
        text = missing_headers.remedy(f"a.cu:1: {like}: No such file or directory", (13, 0))
        assert text.startswith(f"name its folder with NVCC_APPEND_FLAGS=-I<folder of {like}>")


# Of PyTorch's headers, those that are light and the whole one, which has what the light ones lack.
TYPES = "#pragma once\nnamespace torch { constexpr int WIDTH = 4321; }\n"
WHOLE = (
    "#pragma once\n#include <torch/types.h>\nnamespace torch::nn { constexpr int MORE = 765; }\n"
)
BOUND = """
template <int N> __global__ void bound(float* x) {{ x[threadIdx.x] = N; }}
template <int N> void launch(float* x) {{ bound<N><<<1, 32>>>(x); }}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("launch", &launch<{value}>, "text"); }}
"""


@pytest.mark.parametrize("header", ["extension", "torch", "all"])
@pytest.mark.parametrize("value", ["torch::WIDTH", "torch::nn::MORE"])
def test_headers_of_torch_are_light_where_that_suffices(header, value, program, monkeypatch):
    need_compiler()
    include = program.parent / "site/torch/include/torch/csrc/api/include/torch"
    include.mkdir(parents=True)
    module = "#define PYBIND11_MODULE(name, m) template <class M> void module_of(M m)\n"
    texts = {
        "types": TYPES,
        header: WHOLE + module.replace("template <class M> void module_of(M m)", MODULE),
    }
    for name, text in texts.items():
        (include / f"{name}.h").write_text(text)
    monkeypatch.setattr(sys, "path", [str(program.parent / "site"), *sys.path])
    program.write_text(f"#include <torch/{header}.h>\n{BOUND.format(value=value)}")
    ptx, _ = compile_cuda(program)
    assert ptx.count(".entry") == 1
    number = 4321 if value == "torch::WIDTH" else 765
    assert f"boundILi{number}E" in ptx


MODULE = "struct M { template <class... A> void def(A&&...) {} }; void module_of(M m)"


def test_a_word_of_windows_and_a_function_of_another_file(program):
    need_compiler()
    program.write_text(
        '#define DLL __declspec(dllexport)\nextern "C" DLL int shown(int);\n'
        "__device__ float other(float);\n"
        "__global__ void k(float* x) { x[threadIdx.x] = other(x[threadIdx.x]); }\n"
    )
    ptx, cubin = compile_cuda(program)
    assert cuda_cpp.called_elsewhere(ptx) == ("_Z5otherf",)
    (function,) = disassemble(cubin).functions
    assert {i.source.line for i in function.instructions if i.source} == {4}


@pytest.mark.parametrize(
    "bounds", ["", "__launch_bounds__(THREADS) ", "__launch_bounds__(64, 2)\n"]
)
@pytest.mark.parametrize("parameters", ["typename T", "const int A,\n  const int THREADS"])
def test_the_names_of_templates(bounds, parameters):
    kernel = f"__global__ void {bounds}k(float* x) {{\n  x[0] = 1;\n}}\n"
    text = f"template <{parameters}>\n{kernel}template <typename U> U other(U x) {{ return x; }}\n"
    assert cuda_cpp.templates(f"{kernel}{text}// {text}") == {"k": " ".join(parameters.split())}
    assert cuda_cpp.templates(kernel) == {}


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("#include <__clang_of_tomorrow.h>", "remove this #include"),
        ("namespace cub {}\nint x = cub::Max;", "CUDA 13 removed names"),
    ],
)
def test_what_no_flag_can_mend(program, text, remedy):
    need_compiler()
    program.write_text(f"{text}\n{NEEDING}")
    with pytest.raises(TraceviewError) as raised:
        compile_cuda(program)
    major = (release_of(find("nvcc")[0]) or (13, 0))[0]
    assert (remedy in str(raised.value)) == ("CUDA 13" not in remedy or major >= 13)
