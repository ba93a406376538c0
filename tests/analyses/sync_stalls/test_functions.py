"""Waits by the function of a compiled program that makes them."""

import pytest

from tests.analyses.single_answer import ask
from tests.build import Export
from traceview.traces.analyses.sync_stalls import ANALYSIS

APP, CUDA = "/home/me/solver", "/usr/lib/x86_64-linux-gnu/libcuda.so.580"


def waiting(*functions, module=APP, chained=True, sampled=0, number=40):
    """Steps that each end in a wait, made by the functions in turn."""
    export = Export()
    for index, function in enumerate(functions):
        frames = ("0x7f12", "cudaDeviceSynchronize", function, "main")
        export.chain(1 + index, *frames, module=module)
    for step in range(number):
        at, turn = step * 130_000, step % len(functions)
        export.launch((at, at + 5_000), (at + 8_000, at + 110_000))
        chain = 1 + turn if chained else None
        export.sync("cudaDeviceSynchronize_v3020", at + 6_000, at + 112_000, callchain=chain)
        for sample in range(sampled):
            frames = [(CUDA, "cuCtxSynchronize"), (module, "cudaDeviceSynchronize")]
            own = [(module, functions[turn]), (module, "main")]
            export.native_sample(at + 10_000 + sample * 1_000, *frames, *own)
    return export


def place(tmp_path, export):
    return ask(ANALYSIS, export, tmp_path).findings[0].message.split(" leaves ")[0]


@pytest.mark.parametrize(
    ("function", "name"),
    [
        ("void relax<float>(float*, int)", "relax"),
        ("Solver::advance(double)", "Solver::advance"),
        ("(anonymous namespace)::sum(float const*)", "sum"),
        ("_Z7advanced", "advance"),
    ],
)
@pytest.mark.parametrize(("chained", "sampled"), [(True, 0), (True, 2), (False, 1)])
def test_the_function_that_waits_is_named(tmp_path, function, name, chained, sampled):
    said = place(tmp_path, waiting(function, chained=chained, sampled=sampled))
    assert said.startswith(f"cudaDeviceSynchronize in {name} (solver)")


@pytest.mark.parametrize(
    "export",
    [
        waiting("advance(int)", chained=False),
        waiting("advance(int)", chained=False, sampled=1, number=4),
        waiting("advance(int)", "check(int)"),
        waiting("_PyEval_EvalFrameDefault", module="/usr/bin/python3.12"),
        waiting("__libc_start_main", module="libc.so.6"),
        waiting("run(int)", module="/usr/lib/python3/dist-packages/numpy/core.so"),
    ],
)
def test_no_function_is_named_that_is_not_known_to_make_most_waits(tmp_path, export):
    assert "(" not in place(tmp_path, export)
