"""CUDA C++ in headers, and templates that nothing in their file launches, as targets."""

from dataclasses import replace

import pytest

from tests.inspect.rules.written_ptx import need, need_compiler
from traceview.base.errors import InputError
from traceview.kernels.headless.compile_options import CompileOptions
from traceview.kernels.inspect.targets import kernels_of, split_target

pytest.importorskip("elftools", reason="pyelftools is not installed")

TEMPLATE = """#pragma once
namespace ops {{
template <typename T, int N> __global__ void {bounds}fill(T* x) {{ x[threadIdx.x] = T(N); }}
template <typename T> void run(T* x) {{ fill<T, 4><<<1, 32>>>(x); }}
}}
{more}"""
PLAIN = "__global__ void plain(float* x) { x[0] = 1; }\n"


def compiled(target: str) -> list[str]:
    return [kernel.name for kernel in kernels_of(*split_target(target, CompileOptions()))]


@pytest.mark.parametrize("ending", ["cu", "cuh", "h", "hpp"])
def test_a_template_is_made_with_the_arguments_of_the_target(ending, tmp_path):
    need_compiler()
    need("ptxas")
    path = tmp_path / f"fill.{ending}"
    bounds = "__launch_bounds__(64) " * (ending == "h")
    path.write_text(TEMPLATE.format(bounds=bounds, more=PLAIN * (ending in ("cu", "hpp"))))
    assert compiled(f"{path}:ops::fill<float, 8>") == ["_ZN3ops4fillIfLi8EEEvPT_"]
    if ending in ("cu", "hpp"):
        assert compiled(str(path)) == ["_Z5plainPf"]
    shown = r"only defines the kernel template fill<typename T, int N>.*fill<float, 64>'"
    with pytest.raises(InputError, match=shown):
        compiled(f"{path}:fill")


@pytest.mark.parametrize("wrong", ["fill<of_nobody, 1>", "fill<float>", "ops::fill<4, float>"])
def test_arguments_that_nvcc_refuses(wrong, tmp_path):
    need_compiler()
    need("ptxas")
    (tmp_path / "fill.cuh").write_text(TEMPLATE.format(bounds="", more=PLAIN))
    options = replace(CompileOptions(), kernel=wrong)
    with pytest.raises(InputError, match="only defines the kernel template fill"):
        kernels_of(str(tmp_path / "fill.cuh"), options)


@pytest.mark.parametrize("how", ["fill<float, WIDTH><<<1, 32>>>(x)", "ops::run<float>(x)"])
@pytest.mark.parametrize("needs", ["", "#include <of_nobody.h>\nState shared;\n"])
@pytest.mark.parametrize("place", ["", "src/"])
def test_a_template_comes_with_the_file_of_the_project_that_uses_it(how, needs, place, tmp_path):
    need_compiler()
    need("ptxas")
    (tmp_path / "Makefile").touch()
    (tmp_path / place).mkdir(exist_ok=True)
    header = tmp_path / "fill.cuh"
    header.write_text(TEMPLATE.format(bounds="", more=""))
    state = "State s; " if needs else ""
    user = tmp_path / f"{place}use.cu"
    user.write_text(
        f'{needs}#include "fill.cuh"\n{PLAIN}constexpr int WIDTH = 4;\nusing namespace ops;\n'
        f"void go(float* x) {{ {state}{how}; }}\n"
    )
    (tmp_path / "other.cu").write_text("__global__ void refill(float* x) { x[0] = 2; }\n")
    (kernel,) = kernels_of(*split_target(f"{header}:fill", CompileOptions()))
    assert kernel.name == "_ZN3ops4fillIfLi4EEEvPT_"
    assert kernel.notes[0] == (
        "fill.cuh makes no kernel of its template; use.cu does, and is compiled"
    )
