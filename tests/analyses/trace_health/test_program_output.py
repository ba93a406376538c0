"""What a program printed, where it says that it failed, and words that only look like it."""

import random

import pytest

from tests.build import Export
from traceview import analyze

FATAL = {
    "Accelerator Fatal Error: Failed to find device function 'k_1'! File was compiled with: "
    "-gpu=cc80\nRebuild this file with -gpu=cc75 to use GPU 0\n File: /home/u/heat.cpp\n"
    " Function: main:10\n Line: 62\n": "-gpu=cc75 to use GPU 0 File: heat.cpp",
    "Failing in Thread:1\ncall to cuStreamSynchronize returned error 700: Illegal address during "
    "kernel execution\n": "call to cuStreamSynchronize returned error 700: Illegal address",
    "Fortran runtime error: Index '5' of dimension 1 above upper bound of 4\n": "Index '5' of",
    "forrtl: severe (174): SIGSEGV, segmentation fault occurred\n": "SIGSEGV, segmentation fault",
    "terminate called without an active exception\n": "terminate called without an active",
    "terminate called after throwing an instance of 'int'\n": "throwing an instance of 'int'",
    "a.out: /src/main.cu:30: int main(): Assertion `n > 0' failed.\n": "main.cu:30: int main():",
    "Libomptarget fatal error 1: failure of target construct\n": "failure of target construct",
    "libgomp: cuCtxSynchronize error: an illegal memory access\n": "an illegal memory access",
    "-----\nMPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD\nwith errorcode 7.\n\n"
    "NOTE: invoking MPI_ABORT causes Open MPI to kill all MPI processes.\nYou may or may not see\n"
    "exactly when Open MPI kills them.\n-----\n": "MPI_ABORT was invoked on rank 1",
    "Abort(1) on node 0: application called MPI_Abort(COMM, 1) - process 0\n": "MPI_Abort(",
    "./run.sh: line 3: 71 Segmentation fault (core dumped) ./a.out\n": "Segmentation fault",
    "Error: no kernel image is available for execution on the device\n": "no kernel image",
}
WRONG = [
    "ERROR: NaN/Inf detected!",
    "NaN detected at step 40",
    "3 NaNs found in rho",
    "Loss is nan, stopping training",
    "Epoch 3: loss: nan",
    "step 90 residual = NaN",
    "Result = FAIL",
    "Test FAILED",
    "TEST FAILED!",
    "Verification failed",
    "Validation: FAILED",
    "Result verification failed at element 0!",
    "Results are incorrect",
    "mismatch at index 5: 3.0 vs 4.0",
    "Mismatch [17]: 1 != 2",
    "GPU and CPU results do not match",
    "Max error: 1000",
    "max abs error = 1.5e+03",
    "The error between CPU and GPU: 1.7090e+03",
    "\x1b[31mTest FAILED\x1b[0m",
]
HARMLESS = [
    "0 errors",
    "error: 1e-7",
    "no NaN",
    "No NaN detected",
    "NaN detected: 0",
    "NaN found: False",
    "0 NaNs found",
    "checking for NaN: none detected",
    "warning: abort if NaN detected",
    "NaN detected, skipping this step",
    "column 3 contains NaN, replaced by 0",
    "Max error: 0",
    "max error: 9.5e-07",
    "Error (L2norm): 4.262137E-11",
    "error: 29.9804",
    "residual: 5321.0",
    "loss: 1523.2",
    "max diff in time: 1523.4 ms",
    "CPU-GPU time difference: 2000",
    "maximum error tolerance: 1000",
    "10 tests passed, 0 failed",
    "tests failed: 0",
    "no tests failed",
    "0 mismatches at index 0",
    "0 mismatch at any index",
    "version mismatch at index file",
    "size mismatch at row 5",
    "Failed to open display",
    "Test failed to find a display",
    "certificate verification failed",
    "***WARNING*** Library was built as DEBUG. Timings may be affected.",
    "make: Nothing to be done for 'all'.",
    "usage: run [--check]  test failed exits with 1",
    "Result = PASS",
]
AFTERWARDS = ["Test PASSED", "Results match", "Verification: OK", "all checks passed"]


def told(export, tmp_path):
    report = analyze(export.load(tmp_path))
    return [
        each.finding
        for each in report.findings
        if "printed" in each.finding.message or "ended with" in each.finding.message
    ], report


@pytest.mark.parametrize("ran", [False, True])
@pytest.mark.parametrize("ended", FATAL)
def test_an_error_that_ended_the_program_comes_first(ended, ran, tmp_path):
    export = Export().printed("step 1\n").printed(f"reading\n{ended}")
    export = export.launch((0, 10), (20, 30)) if ran else export.call("cudaMalloc", 0, 10)

    found, report = told(export, tmp_path)

    assert [each.severity for each in found] == ["high"]
    assert report.findings[0].finding == found[0]
    assert FATAL[ended] in found[0].message
    assert "/home" not in found[0].message
    builds = "-gpu=cc75" in ended or "kernel image" in ended
    assert found[0].action.startswith("Build for this GPU") is builds


@pytest.mark.parametrize("text", WRONG)
@pytest.mark.parametrize("stream", [0, 1])
def test_a_wrong_result_comes_first(text, stream, tmp_path):
    around = random.Random(text)
    before, after = (around.sample(["", "Grid: 5 x 5", "Done in 3 ms", "step 4"], 2) for _ in "ab")
    export = Export().printed("") if stream else Export()
    export.printed("\n".join([*before, text, *after])).launch((0, 10), (20, 30))

    found, report = told(export, tmp_path)

    assert [each.severity for each in found] == ["high"]
    assert report.findings[0].finding == found[0]
    assert found[0].message == f"The program printed: {text[5:-4] if text[0] < ' ' else text}"


@pytest.mark.parametrize("text", HARMLESS)
def test_words_that_only_look_like_a_failure(text, tmp_path):
    export = Export().printed(f"step 1\n{text}\ndone\n").launch((0, 10), (20, 30))
    assert not told(export, tmp_path)[0]


@pytest.mark.parametrize("text", WRONG)
@pytest.mark.parametrize("right", AFTERWARDS)
@pytest.mark.parametrize("streams", [1, 2])
def test_a_program_that_says_that_all_is_well_is_believed(text, right, streams, tmp_path):
    printed = [f"{text}\n", f"{right}\n"]
    export = Export()
    for each in ["".join(printed)] if streams == 1 else printed:
        export.printed(each)
    assert not told(export.launch((0, 10), (20, 30)), tmp_path)[0]


@pytest.mark.parametrize(("first", "last"), [("nan", "0.5"), ("0.5", "nan")])
@pytest.mark.parametrize("apart", ["\n", "\r"])
def test_the_last_loss_counts(first, last, apart, tmp_path):
    text = apart.join(f"Epoch {at}: loss={each}" for at, each in enumerate((first, last)))
    found, _ = told(Export().printed(text).launch((0, 10), (20, 30)), tmp_path)
    assert bool(found) == (last == "nan")


def test_a_long_and_hostile_line_is_shortened(tmp_path):
    text = "Test FAILED \x1b]0;owned\x07 <b>{lost}</b> " + "x" * 190
    found, _ = told(Export().printed(text).launch((0, 10), (20, 30)), tmp_path)
    assert len(found) == 1
    assert len(found[0].message) < 280
    assert "{lost}" in found[0].message
