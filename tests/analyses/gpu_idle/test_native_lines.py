"""The user's function in native stacks, or what Python called, and names of functions."""

import pytest

from tests.build import Export
from traceview.traces.facts.idle.stack_sites import function_name, native_lines

SIM, CUDA, LIBC = (
    "/home/ada/sim",
    "/usr/lib64/libcuda.so.580.1",
    "/usr/lib/x86_64-linux-gnu/libc.so.6",
)
ACC, MPI = "/hpc/21.5/compilers/lib/libacchost.so", "/sw/openmpi/mca_pml_ucx.so"
NUMPY = "/venv/lib/python3.12/site-packages/numpy/_core/_multiarray_umath.cpython-312-x86_64.so"
TORCH = "/venv/lib/python3.12/site-packages/torch/lib/libtorch_cpu.so"
PYTHON, LIBPYTHON = ("/usr/bin/python3.12", "run"), ("/conda/lib/libpython3.12.so.1.0", "run")


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("main", "main"),
        ("JacobiMethod(float const*, double const*, int)", "JacobiMethod"),
        ("bool testSort<unsigned int, false>(int, char**)", "testSort"),
        ("void sim::(anonymous namespace)::step<float>(std::vector<int> const&)", "sim::step"),
        ("sim::Grid::operator()(int) const", "sim::Grid::operator()"),
        ("std::vector<int, std::allocator<int> >::push_back(int const&)", "std::vector::push_back"),
        ("void work(int) [clone .cold]", "work"),
        ("_ZN3sim4workEi", "work"),
        ("(((", "((("),
        ("", ""),
    ],
)
def test_function_name(symbol, name):
    assert function_name(symbol) == name


def found(folder, *frames):
    export = Export().call("cudaMalloc", 0, 1).native_sample(5, *frames)
    lines = native_lines(export.load(folder))
    return lines.module[0], lines.function[0], lines.inner[0]


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        # The runtime is linked into the program, and is none of its functions.
        (
            ((CUDA, None), (SIM, "libcudart_static_1"), (SIM, "cudaMemcpy"), (SIM, "step(int)")),
            (SIM, "step(int)", "cudaMemcpy"),
        ),
        (((SIM, "work()"), (SIM, "main")), (SIM, "work()", None)),
        (
            ((SIM, "void std::__introsort_loop<int*>(int*, int*)"), (SIM, "reorder()")),
            (SIM, "reorder()", "std::__introsort_loop"),
        ),
        (((LIBC, None), (SIM, "work()"), (SIM, "main")), (SIM, "work()", "libc")),
        # What the interpreter called says something, unless it launches GPU work.
        (((NUMPY, "add"), PYTHON), (NUMPY, "add", None)),
        (((LIBC, "memcpy"), (NUMPY, "loop"), (NUMPY, "add"), PYTHON), (NUMPY, "add", "loop")),
        (((NUMPY, None), (NUMPY, "add"), LIBPYTHON), (NUMPY, "add", "_multiarray_umath")),
        (((TORCH, "f"), (TORCH, "at::add()"), PYTHON), (None, None, "libtorch_cpu: at::add")),
        # It runs Python again, or itself; nothing is known of who called.
        ((PYTHON, (NUMPY, "apply"), PYTHON), (None, None, "python3.12: run")),
        (((LIBC, "read"), PYTHON, (TORCH, "at::add()")), (None, None, "libc: read")),
        (((NUMPY, "add"),), (None, None, "_multiarray_umath: add")),
        (((CUDA, None), (CUDA, None)), (None, None, "libcuda")),
        (((SIM, None), (SIM, "_start")), (None, None, "sim: _start")),
        (((ACC, "__c_mcopy8"), (ACC, "dataoff"), (SIM, "push_")), (SIM, "push_", "dataoff")),
        (((MPI, "progress"), (SIM, "exchange_")), (SIM, "exchange_", "progress")),
    ],
)  # fmt: skip
def test_the_innermost_function_of_the_program(frames, expected, tmp_path):
    assert found(tmp_path, *frames) == expected
