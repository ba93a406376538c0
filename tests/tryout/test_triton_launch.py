"""Triton kernels launched otherwise, in a program that the interpreter runs on the CPU."""

from importlib.util import find_spec
from pathlib import Path

import pytest

import traceview
from tests.analyses.load_widths.recorded_loads import export, loaded, ns_of, ptx
from tests.analyses.load_widths.recorded_loads import launched as recorded
from tests.tryout.test_programs import state_of
from traceview.base.errors import InputError
from traceview.trials.remedies import named
from traceview.trials.tryout.patch import patch_of
from traceview.trials.tryout.planned import Planned, known_names, planned
from traceview.trials.tryout.runs import Program, Runs
from traceview.trials.tryout.verdict import Trial

pytestmark = pytest.mark.skipif(
    not (find_spec("torch") and find_spec("triton")), reason="needs Triton and PyTorch"
)
BODY = """(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, at < n) * 2.0, at < n)
"""
# Each step writes the blocks and options of its last launch.
PROGRAM = f"""
import os
os.environ["TRITON_INTERPRET"] = "1"
import torch, triton
import triton.language as tl
from triton.runtime.interpreter import InterpretedFunction

@triton.jit
def double{BODY}
@triton.autotune([triton.Config({{"BLOCK": 32}}, num_warps=4)], key=["n"])
@triton.jit
def tuned{BODY}
@triton.heuristics({{"BLOCK": lambda given: 32}})
@triton.jit
def chosen{BODY}
run, seen, n = InterpretedFunction.run, [], 100
def noting(self, *args, grid, **kwargs):
    def noted(meta):
        size = grid(meta) if callable(grid) else grid
        seen.append((size[0], kwargs.get("num_warps")))
        return size
    return run(self, *args, grid=noted, **kwargs)
InterpretedFunction.run = noting

grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)
model = torch.nn.Linear(n, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for step in range(200):
    x, out = torch.randn(n), torch.empty(n)
    LAUNCH
    model(out).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    with open("seen.txt", "a") as file:
        print(*seen[-1], file=file)
"""
LITERAL = "double[grid](x, out, n, BLOCK=32, num_warps=4)"


@pytest.fixture
def launched(tmp_path, monkeypatch):
    """Run the program with a launch and an argument: the result, and what its steps launched."""
    folder = tmp_path / "user"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def run(launch, argument="", **options):
        (folder / "train.py").write_text(PROGRAM.replace("LAUNCH", launch))
        before = state_of(folder)
        remedies = (f"triton_launch:{argument}",) if argument else ()
        work = tmp_path / f"work{len(list(tmp_path.iterdir()))}"
        with Runs(Program.of(["train.py"]), work) as runs:
            spec = runs.spec(remedies=remedies, warmup=2, **{"steps": 8, **options})
            result = runs.run(spec, 60)
        assert result.error == ""
        assert state_of(folder) == before
        seen = Path(spec.scratch) / "seen.txt"
        return result, seen.read_text().splitlines() if seen.exists() else []

    return run


def patched(result, argument):
    remedy = named(f"triton_launch:{argument}")
    trial = Trial(Planned(remedy.name, (remedy,)), "keep", sites=result.sites)
    made = patch_of(Program.of(["train.py"]), [trial])
    return [line[1:].strip() for line in made.diff.splitlines()[2:] if line[0] == "+"], made.by_hand


@pytest.mark.parametrize(
    ("argument", "launch", "line"),
    [
        ("num_warps=1", "4 1", "double[grid](x, out, n, BLOCK=32, num_warps=1)"),
        ("BLOCK=64", "2 4", "double[grid](x, out, n, BLOCK=64, num_warps=4)"),
    ],
)
def test_a_launch_changes_in_memory_and_in_the_patch(launched, argument, launch, line):
    plain, seen = launched(LITERAL)
    assert set(seen) == {"4 4"}
    argument = f"double.{argument}"
    changed, seen = launched(LITERAL, argument)
    assert set(seen) == {launch}
    assert changed.losses == plain.losses
    assert changed.applied == (f"triton_launch:{argument}",)
    assert patched(changed, argument) == ([line], ())


def test_a_launch_that_the_patch_cannot_change_is_named(launched):
    launch = "options = dict(num_warps=4); double[grid](x, out, n, BLOCK=32, **options)"
    result, _ = launched(launch, "double.num_warps=1")
    lines, ((_, how),) = patched(result, "double.num_warps=1")
    assert not lines
    assert how.startswith("double(num_warps=1) (from train.py:")


def test_a_launch_is_switched_within_a_run(launched):
    _, seen = launched(LITERAL, "double.num_warps=1", steps=32, alternates=True)
    assert seen == [*["4 1"] * 10, *["4 4"] * 16, *["4 1"] * 8][: len(seen)]
    assert len(seen) > 30


@pytest.mark.parametrize(
    ("launch", "argument"),
    [
        ("tuned[grid](x, out, n)", "tuned.num_warps=1"),
        ("chosen[grid](x, out, n, num_warps=4)", "chosen.BLOCK=64"),
        (LITERAL, "single.num_warps=1"),
    ],
)
def test_what_others_choose_is_left_alone(launched, launch, argument):
    result, seen = launched(launch, argument)
    assert set(seen) == {"4 4"}
    assert result.applied == ()
    assert result.rejected == ""


@pytest.mark.parametrize(
    ("launch", "argument", "reason"),
    [
        (LITERAL.replace("grid", "(4,)"), "BLOCK=64", "the grid of double is fixed"),
        (LITERAL.replace("grid", "lambda _: (4,)"), "BLOCK=64", "does not follow BLOCK"),
        ("double[grid](x, out, n, 32)", "BLOCK=64", "not launched with a power of two as BLOCK=…"),
        (LITERAL, "SIZE=64", "not launched with a power of two as SIZE=…"),
    ],
)
def test_a_constant_that_the_grid_does_not_follow_is_rejected(launched, launch, argument, reason):
    result, _ = launched(launch, f"double.{argument}")
    assert reason in result.rejected


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("triton_launch:double", "is not KERNEL.KEYWORD=NUMBER"),
        ("triton_launch:double.num_warps=3", "is not a power of two"),
        ("fused:double.num_warps=1", "fused takes no argument"),
    ],
)
def test_arguments_that_say_nothing_are_refused(name, why):
    with pytest.raises(InputError, match=why):
        known_names([name])


@pytest.mark.parametrize(
    ("kernel", "warps", "names"),
    [("k", 4, ["triton_launch:k.num_warps=1"]), ("k", 1, []), ("$k", 4, [])],
)
def test_a_finding_on_narrow_accesses_gives_the_warps(tmp_path, kernel, warps, names):
    code = ptx(kernel).replace(".cu", ".py")
    built = export().code(kernel, code, num_warps=warps)
    size = {"threads": 32 * warps, "blocks": 400_000 // warps}
    recorded(built, 0, ns_of(0.4), name=kernel, **size)
    report = traceview.analyze(loaded(built, tmp_path))
    assert any("fewer warps" in each.finding.action for each in report.findings)
    assert [each.name for each in planned(report, ())] == names


def test_a_launch_without_a_finding_is_to_be_given():
    with pytest.raises(InputError, match="needs a launch"):
        planned(None, ("triton_launch",))
