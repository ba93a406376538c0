"""Whether kernels are as expected: real PTX files, each figure against its report."""

import pytest

import traceview
from tests.places import DATA, PTX_FILES
from traceview.kernels.inspect.expectations import judge, parse_all, unmet

NVRTC = DATA / "gelu-nvrtc-12.9-sm90.ptx"


@pytest.fixture(scope="module")
def gelus():
    """Two kernels of CUDA C++, one that moves 32 bits and one that moves 128."""
    return traceview.inspect_ptx(NVRTC).kernels


def lines(kernels, *texts):
    return unmet(judge(parse_all(texts), kernels))


def test_what_is_met_says_nothing(gelus):
    assert lines(gelus, "gelu_vector: global load >= 128, global store = 128") == []
    assert lines(gelus, "gelu_*: spills = 0, shared memory = 0", "registers < 255") == []


def test_what_is_not_met_says_the_kernel_the_width_and_the_line(gelus):
    (line,) = lines(gelus, "global load >= 128")
    assert line.startswith("gelu_scalar: global load >= 128: 32 bits at ")
    assert "1 × ld.global" in line
    (verdict,) = (v for v in judge(parse_all(["global store > 32"]), gelus) if not v.met)
    assert (verdict.kernel, len(verdict.sources)) == ("gelu_scalar", 1)


def test_what_is_not_there_is_not_met(gelus):
    assert lines(gelus, "gelu_vector: shared load >= 32") == [
        "gelu_vector: shared load >= 32: it has no shared load"
    ]
    assert lines(gelus, "gelu_vector: global load in loops >= 32") == [
        "gelu_vector: global load in loops >= 32: it has no global load in loops that differs by "
        "thread"
    ]


def test_a_name_that_no_kernel_has_is_not_met(gelus):
    assert lines(gelus, "gelu: spills = 0") == [
        "gelu: spills = 0: no kernel has this name; the target has gelu_scalar, gelu_vector"
    ]


def test_a_figure_that_is_not_known_is_not_met(gelus):
    (line,) = lines(gelus, "gelu_vector: waves >= 1")
    assert line.startswith("gelu_vector: waves >= 1: waves not known")


def test_figures_are_those_of_the_report(gelus):
    vector = next(kernel for kernel in gelus if kernel.name == "gelu_vector")
    assert lines([vector], f"registers = {vector.registers}") == []
    assert lines([vector], f"registers != {vector.registers}") == [
        f"gelu_vector: registers != {vector.registers}: {vector.registers}"
    ]


def test_the_scalar_that_all_threads_load_is_left_out(gelus):
    report = traceview.inspect_ptx(PTX_FILES / "gelu-3.7.1-sm90.ptx")
    assert lines(report.kernels, "global load = 128") == []


def test_a_width_that_the_gpu_does_not_have_is_told(gelus):
    (line,) = lines(gelus, "gelu_vector: global load >= 256")
    assert line.endswith("; sm_90 moves at most 128 bits at once")
