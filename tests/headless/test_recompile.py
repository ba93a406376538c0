"""A script runs once, and the process that ran it compiles its kernels again on request."""

import importlib.util
from dataclasses import replace

import pytest

import traceview
from traceview.base.errors import TraceviewError
from traceview.kernels.headless import client
from traceview.kernels.headless.compile_options import Change, CompileOptions
from traceview.kernels.headless.recompile import Recompiler, changed_arguments
from traceview.kernels.inspect.python_targets import compile_python
from traceview.kernels.ptx.model import Argument

pytestmark = pytest.mark.programs

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None or importlib.util.find_spec("triton") is None,
    reason="runs scripts that use PyTorch and Triton",
)
KERNEL = """\
import sys
import torch
import triton
import triton.language as tl

with open("runs", "a") as runs:
    runs.write(f"{__name__} {sys.argv[1:]}\\n")
SIZE = int(sys.argv[1])

@triton.jit
def fill(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, 1.0, mask=offsets < n)

x = torch.empty(SIZE, device="cuda")
"""
LAUNCH = "fill[(4,)](x, SIZE, BLOCK=512)\n"
MADE_LATER = """
def made(factor):
    @triton.jit
    def scaled(x_ptr, n, FACTOR: tl.constexpr, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = offsets < n
        tl.store(x_ptr + offsets, tl.load(x_ptr + offsets, mask=inside) * FACTOR, mask=inside)
    return scaled

made(2)[(4,)](x, SIZE, FACTOR=2, BLOCK=512)
"""


@pytest.fixture
def script(tmp_path, monkeypatch):
    """Write a script in an empty current folder; it appends to `runs` at its top level."""
    monkeypatch.chdir(tmp_path)

    def write(rest: str) -> str:
        (tmp_path / "script.py").write_text(KERNEL + rest)
        return str(tmp_path / "script.py")

    return write


@needs_torch
def test_a_script_runs_once_and_gets_its_arguments(script, tmp_path):
    report = traceview.inspect_ptx(script(LAUNCH), arguments=["2047"])
    (kernel,) = report.kernels
    assert any("recompiled with n divisible by 16" in f.evidence.basis for f in kernel.findings)
    assert (tmp_path / "runs").read_text() == "__main__ ['2047']\n"


@needs_torch
def test_what_is_being_tried_is_told_at_once(script):
    steps = []
    traceview.inspect_ptx(script(LAUNCH), arguments=["2047"], step=steps.append)
    assert steps[:2] == [
        "Inspecting fill, 1 of 1",
        "Recompiling fill with n divisible by 16",
    ]


@needs_torch
def test_a_kernel_that_no_module_knows_is_recompiled(script):
    (kernel,) = traceview.inspect_ptx(script(MADE_LATER), arguments=["2047"]).kernels
    assert kernel.name == "scaled"
    assert any("recompiled with n divisible by 16" in f.evidence.basis for f in kernel.findings)


@needs_torch
def test_the_same_again_is_the_same_to_the_byte(script):
    with Recompiler() as recompiler:
        compiled = compile_python(
            script(MADE_LATER + LAUNCH + "fill[(4,)](x, 2048, BLOCK=512, num_warps=8)\n"),
            CompileOptions(arguments=["2047"]),
            recompiler=recompiler,
        )
        assert [each.num_warps for each in compiled] == [4, 4, 8]
        for each in compiled:
            again = recompiler.compile(each, Change())
            assert (again.ptx, again.cubin) == (each.ptx, each.cubin)
            assert again.num_warps == each.num_warps


@needs_torch
def test_tuples_descriptors_and_types_are_recompiled_as_they_are():
    from tests.places import TRITON_KERNELS

    with Recompiler() as recompiler:
        path = str(TRITON_KERNELS / "breadth.py")
        compiled = compile_python(path, recompiler=recompiler)
        assert {each.name for each in compiled} == {"tma_copy", "cast", "of_tuple"}
        for each in compiled:
            assert recompiler.compile(each, Change()).ptx == each.ptx
        views = compiled[-1]
        large = (("BLOCK", 1024),)
        odd = recompiler.compile(views, Change(("n",), large))
        even = recompiler.compile(views, Change(("n", "pointers[0]"), large))
        assert [c.arguments[0].divisible_by_16 for c in (odd, even)] == [False, True]
        assert ["st.global.v4.b32" in c.ptx for c in (odd, even)] == [False, True]


@needs_torch
def test_what_is_in_tuples_is_found_and_tried_element_by_element():
    from tests.places import TRITON_KERNELS

    wide, odd, late = traceview.inspect_ptx(str(TRITON_KERNELS / "tuples.py")).kernels
    assert [(a.name, a.type, a.value) for a in wide.compiled.arguments[2:-1]] == [
        ("pairs[1].source", "*fp32", None),
        ("pairs[1].target", "*fp32", None),
        ("steps[0]", "constexpr", 1),
        ("steps[1]", "i32", 7),
        ("n", "i32", 4096),
    ]
    assert not any("Global" in finding.message for finding in wide.findings)
    found = [next(f for f in kernel.findings if "Global" in f.message) for kernel in (odd, late)]
    assert [f.evidence.values["cause"] for f in found] == [
        "n is not known to be divisible by 16 (it was 4100)",
        "pairs[1].source is not known to be aligned to 16 bytes",
    ]
    assert [f.evidence.basis for f in found] == [
        "recompiled with n divisible by 16: 128 bits instead of 16",
        "recompiled with pairs[1].source divisible by 16: 128 bits instead of 32",
    ]


@needs_torch
def test_a_constant_in_a_tuple_is_recompiled_with_another_value():
    from tests.places import TRITON_KERNELS

    with Recompiler() as recompiler:
        compiled = compile_python(str(TRITON_KERNELS / "tuples.py"), recompiler=recompiler)[0]
        assert recompiler.compile(compiled, Change()).ptx == compiled.ptx
        apart = recompiler.compile(compiled, Change(constexprs=(("steps[0]", 2),)))
        assert apart.arguments[4] == Argument("steps[0]", "constexpr", value=2)
        loads = [c.ptx.count("ld.global.b32") for c in (compiled, apart)]
        assert loads == [0, 16]
        known = recompiler.compile(compiled, Change(constexprs=(("steps[1]", 7),)))
        assert compiled.ptx.count("ld.param") - known.ptx.count("ld.param") == 1


@needs_torch
def test_an_assumption_changes_the_code(script):
    with Recompiler() as recompiler:
        (odd,) = compile_python(
            script(LAUNCH), CompileOptions(arguments=["2047"]), recompiler=recompiler
        )
        padded = recompiler.compile(odd, Change(divisible=("n",), constexprs=(("BLOCK", 256),)))
        assert padded.arguments[1:] == (
            Argument("n", "i32", divisible_by_16=True, value=2047),
            Argument("BLOCK", "constexpr", value=256),
        )
        limited = recompiler.compile(odd, Change(num_warps=1, max_registers=32))
        assert limited.num_warps == 1
        assert ".maxnreg 32" in limited.ptx
        with pytest.raises(TraceviewError, match="fill does not compile with BLOCK=511: "):
            recompiler.compile(odd, Change(constexprs=(("BLOCK", 511),)))
        # A failure does not end the process.
        assert recompiler.compile(odd, Change()).ptx == odd.ptx


@needs_torch
def test_a_process_that_was_left_cannot_recompile(script):
    report = traceview.inspect_ptx(script(LAUNCH + "import os\nos._exit(0)\n"), arguments=["2047"])
    (kernel,) = report.kernels
    (note,) = (note for note in kernel.notes if "inferred" in note)
    assert note.startswith(
        "causes are inferred: script.py exited, so its kernels cannot be recompiled"
    )


@needs_torch
def test_what_a_script_forks_does_not_answer(script, tmp_path):
    forks = LAUNCH + "import os\nif os.fork() == 0:\n    SIZE = 4096\n"
    (kernel,) = traceview.inspect_ptx(script(forks), arguments=["2047"]).kernels
    assert kernel.compiled.launches == 1
    assert any("recompiled with" in finding.evidence.basis for finding in kernel.findings)


@needs_torch
def test_what_a_script_prints_at_any_time_does_not_disturb(script, capfd):
    chatty = LAUNCH + (
        "import threading, time\n"
        "def talk():\n"
        "    while True:\n"
        "        print('ready', flush=True); time.sleep(0.01)\n"
        "threading.Thread(target=talk, daemon=True).start()\n"
        "time.sleep(0.2)\n"
        "assert sys.stdin.read() == ''\n"
    )
    (kernel,) = traceview.inspect_ptx(script(chatty), arguments=["2047"]).kernels
    assert any("recompiled with" in finding.evidence.basis for finding in kernel.findings)
    out, err = capfd.readouterr()
    assert out == ""
    assert "ready" in err


def compiled_before(script):
    """Let the cache have the kernel, so that a busy machine launches it within a short limit."""
    compile_python(script(LAUNCH), CompileOptions(arguments=["2047"]))


@needs_torch
def test_after_a_timeout_the_counts_are_lower_bounds(script):
    # It pauses, or a core works all the time until it is stopped.
    loop = LAUNCH + (
        "import time\nwhile True:\n    fill[(4,)](x, SIZE, BLOCK=512)\n    time.sleep(0.005)\n"
    )
    notes = []
    compiled_before(script)
    report = traceview.inspect_ptx(
        script(loop), arguments=["2047"], timeout_s=2.0, note=notes.append
    )
    assert notes == [
        "script.py did not end within 2 s and was stopped; only kernels compiled by then are shown",
        "script.py did not run to its end: launch counts are lower bounds",
        "script.py: 1 kernel compiled as launched",
    ]
    (kernel,) = report.kernels
    assert kernel.compiled.launches > 2
    # It was interrupted, not killed, so that it can still be asked.
    assert any("recompiled with" in finding.evidence.basis for finding in kernel.findings)


@needs_torch
def test_a_script_that_cannot_be_interrupted_is_killed(script, monkeypatch):
    monkeypatch.setattr(client, "_GRACE_S", 0.5)
    compiled_before(script)
    deaf = "import signal\nsignal.signal(signal.SIGVTALRM, signal.SIG_IGN)\n" + LAUNCH
    notes = []
    report = traceview.inspect_ptx(
        script(deaf + "import time\nwhile True: time.sleep(0.005)\n"),
        arguments=["2047"],
        timeout_s=2.0,
        note=notes.append,
    )
    assert notes[0].startswith("script.py did not end within 2 s and was stopped; only kernels")
    assert "script.py did not run to its end: launch counts are lower bounds" in notes
    (note,) = (note for note in report.kernels[0].notes if "inferred" in note)
    assert "did not end within 2 s and was stopped, so its kernels cannot be recompiled" in note


@needs_torch
def test_comparisons_that_are_made_to_pass_are_said_once(script):
    compares = (
        LAUNCH
        + "from triton.testing import assert_close\n"
        + "for _ in range(3):\n"
        + "    assert torch.allclose(x, x + 1)\n"
        + "    torch.testing.assert_close(x, x + 1)\n"
    )
    notes = []
    compile_python(script(compares), CompileOptions(arguments=["2047"]), note=notes.append)
    taken = [note for note in notes if "passed unchecked" in note]
    assert taken == [
        "torch.allclose passed unchecked, as no kernel ran; --emulate computes values to compare",
        "torch.testing.assert_close passed unchecked, as no kernel ran; --emulate computes values "
        "to compare",
    ]
    assert "script.py did not run to its end: launch counts are lower bounds" not in notes


@needs_torch
def test_an_emulated_comparison_is_made(script):
    right = LAUNCH + "assert torch.allclose(x, torch.ones(SIZE, device='cuda'))\n"
    wrong = LAUNCH + "torch.testing.assert_close(x, torch.zeros(SIZE, device='cuda'))\n"
    notes = []
    compile_python(
        script(right), CompileOptions(arguments=["2047"], emulate=True), note=notes.append
    )
    assert notes == ["script.py: 1 kernel compiled as launched"]
    notes.clear()
    compile_python(
        script(wrong), CompileOptions(arguments=["2047"], emulate=True), note=notes.append
    )
    assert notes[0].startswith("script.py raised AssertionError at line 17")


def test_arguments_as_a_change_would_have_them():
    given = (Argument("x", "*fp32"), Argument("n", "i32", value=7), Argument("B", "constexpr"))
    change = Change(divisible=("x",), constexprs=(("B", 64),))
    assert changed_arguments(given, change) == (
        replace(given[0], divisible_by_16=True),
        given[1],
        Argument("B", "constexpr", value=64),
    )
