"""The deadline that all trials of one invocation share."""

import math
import re
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

import traceview
from traceview.kernels.headless.compile_options import Deadline

pytestmark = pytest.mark.programs

compiles = pytest.mark.skipif(
    find_spec("triton") is None or find_spec("torch") is None, reason="compiles with Triton"
)
KERNEL = """
import time
import torch
import triton
import triton.language as tl

@triton.jit
def fill(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, 1.0, mask=at < n)
"""
LAUNCH = """
x = torch.empty(2047, device="cuda")
fill[(2,)](x, 2047, BLOCK=1024)
"""
ENDLESS = LAUNCH + "while True: time.sleep(0.1)\n"
# Recompilations take the module's function anew.
HANGS = LAUNCH + "import triton.compiler as c\nc.compile = lambda *_, **__: time.sleep(600)\n"
SEVERAL = "".join(KERNEL[KERNEL.index("@") :].replace("fill", name) for name in ("zero", "one"))


@pytest.fixture
def inspected(tmp_path):
    """Inspect a script within a budget: the report, the notes and the seconds that it took."""

    def inspect(text: str, budget_s: float, timeout_s: float | None = None):
        path, notes = Path(tmp_path / "script.py"), list[str]()
        path.write_text(KERNEL + text)
        start = time.monotonic()
        report = traceview.inspect_ptx(
            path, budget_s=budget_s, timeout_s=timeout_s, note=notes.append
        )
        return report, notes, time.monotonic() - start

    return inspect


def test_what_is_left_is_shared():
    deadline = Deadline.after(10)
    assert 9 < deadline.left_s <= 10
    assert 4 < deadline.shared(2).left_s <= 5
    assert not deadline.passed
    assert Deadline.after(0).passed
    assert Deadline.after(0).left_s == 0
    assert 19 < deadline.no_sooner_than(20).left_s <= 20
    assert deadline.no_sooner_than(1) == deadline
    assert Deadline().shared(3).left_s == math.inf


@compiles
def test_a_script_that_has_launched_is_not_waited_for(inspected):
    report, notes, seconds = inspected(ENDLESS, 6)
    assert [kernel.name for kernel in report.kernels] == ["fill"]
    stopped = [note for note in notes if "did not end within 3 s and was stopped" in note]
    assert len(stopped) == 1
    assert stopped[0].endswith("--timeout lets it run longer")
    assert seconds < 60


@compiles
def test_without_time_causes_are_inferred_and_one_note_says_so(inspected):
    # A script that is stopped before its end can be compiled no more.
    report, notes, _ = inspected(LAUNCH, 0.01, 60)
    (finding,) = [f for f in report.kernels[0].findings if "Global stores" in f.message]
    assert "recompiled" not in finding.evidence.basis
    assert "no recompilation" not in finding.evidence.basis
    (left_out,) = [note for note in notes if note.startswith("not done within 0.01 s: ")]
    # Each change counts once, however often a rule asks for it.
    assert re.search(r": (\d+) of \1 trials? of fill;", left_out)
    assert left_out.endswith("; --budget 0.03 allows more time")


@compiles
def test_with_time_the_same_cause_is_proven(inspected):
    report, notes, _ = inspected(LAUNCH, 600)
    (finding,) = [f for f in report.kernels[0].findings if "Global stores" in f.message]
    assert "recompiled with n divisible by 16: 128 bits" in finding.evidence.basis
    assert not [note for note in notes if "not done within" in note]


@compiles
def test_kernels_without_time_are_named(inspected):
    report, notes, _ = inspected(SEVERAL, 0.01)
    assert [kernel.name for kernel in report.kernels] == ["fill"]
    (left_out,) = [note for note in notes if note.startswith("not done within")]
    assert "2 kernels (zero, one)" in left_out


@compiles
def test_a_recompilation_that_hangs_is_ended_at_the_deadline(inspected):
    report, notes, seconds = inspected(HANGS, 4)
    assert [kernel.name for kernel in report.kernels] == ["fill"]
    assert any("not done within 4 s" in note for note in notes)
    assert seconds < 60


# The compiler hangs with the tile that the call passes.
HANGS_WITH = """
import triton.compiler as c
_compile = c.compile
def _slowly(source, **options):
    if 65536 in source.constants.values():
        time.sleep(600)
    return _compile(source, **options)
c.compile = _slowly
"""


@compiles
@pytest.mark.parametrize("name", ["BLOCK", "TILE_SIZE"])
def test_a_tile_that_takes_too_long_is_replaced_by_a_smaller_one(tmp_path, name):
    path, notes = tmp_path / "script.py", list[str]()
    call = f"def run(x, n):\n    fill[(2,)](x, n, {name}=65536)\n"
    path.write_text(f"{KERNEL.replace('BLOCK', name)}{HANGS_WITH}{call}")
    (kernel,) = traceview.inspect_ptx(f"{path}:fill", budget_s=12, note=notes.append).kernels
    assert kernel.compiled.how == "called"
    slow = [note for note in notes if note.startswith("fill does not compile within")]
    assert [note.endswith("so one with a smaller tile is shown") for note in slow] == [True]
