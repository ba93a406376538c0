"""Sweeps over parameters of an operation and options of a program, on this machine's CPU."""

import json
import os
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.headless.forked_python import run_python
from traceview.base.errors import InputError
from traceview.trials.bench.growth import Axis
from traceview.trials.bench.operation import is_program
from traceview.trials.bench.program import sweep_program

OPERATIONS = REPOSITORY / "tests" / "bench" / "operations.py"
SLEEPER = """
import argparse, sys, time

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int)
parser.add_argument("--layers", type=int, default=1)
parser.add_argument("--fail", choices=("exit", "raise", "status"))
given = parser.parse_args()
if given.fail == "exit":
    sys.exit("no data")
if given.fail == "status":
    sys.exit(3)
if given.fail == "raise":
    raise ValueError("no\\nmore")
for step in range(given.steps):
    time.sleep(0.004 * given.layers)
    print("step", step)
print("to stderr", file=sys.stderr)
print(__name__, *sys.argv[1:])
"""


@pytest.fixture
def sleeper(tmp_path):
    file = tmp_path / "sleeper.py"
    file.write_text(SLEEPER)
    return file


def test_a_sweep_is_parsed():
    assert Axis.of("steps=8, 1,2,2") == Axis("steps", (1, 2, 8))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("steps", "cannot sweep 'steps'; pass a name and positive whole numbers"),
        ("steps=", "pass a name and positive whole numbers"),
        ("=1,2,3", "pass a name and positive whole numbers"),
        ("--steps=1,2,3", "pass a name and positive whole numbers"),
        ("steps=1,2,x", "pass a name and positive whole numbers"),
        ("steps=0,1,2", "pass a name and positive whole numbers"),
        ("steps=1,2,³", "pass a name and positive whole numbers"),
        ("steps=1,2,-3", "pass a name and positive whole numbers"),
        ("steps=1,2,2", "a sweep over 2 values of steps; pass at least three"),
        (f"steps=1,2,{'9' * 40}", "pass a name and positive whole numbers"),
    ],
)
def test_an_invalid_sweep_is_refused(text, message):
    with pytest.raises(InputError) as refused:
        Axis.of(text)
    assert message in str(refused.value)


@pytest.mark.usefixtures("only_sleeping_takes_time")
@pytest.mark.parametrize("over", ["steps", "layers"])
def test_a_program_is_run_at_each_value(sleeper, over):
    other = {"steps": "--layers", "layers": "--steps"}[over]
    found = sweep_program(sleeper, Axis(over, (1, 2, 4, 8)), (other, "2"), trials=3)
    assert [value for value, _ in found.sweep.points] == [1, 2, 4, 8]
    assert found.sweep.fit.kind == "linear"
    assert found.sweep.fit.slope_ns == pytest.approx(8_000_000)
    assert str(found.sweep).startswith("linear, ")
    assert f" ms per {over.removesuffix('s')} (r² " in str(found.sweep)
    assert {timing.trials for _, timing in found.sweep.points} == {3}
    # As the main program, with its own arguments; and nothing of what it did is left here.
    assert found.last_lines[2] == f"__main__ --{over} 4 {other} 2"
    assert sys.argv[0] != str(sleeper)
    assert str(sleeper.parent) not in sys.path


def test_the_program_itself_is_measured(sleeper):
    found = sweep_program(sleeper, Axis("steps", (1, 2, 4)), trials=1)
    # A loaded machine wakes late, and never early.
    assert all(timing.median_ns >= 4_000_000 * steps for steps, timing in found.sweep.points)


def test_rounds_end_when_the_time_is_spent(sleeper):
    axis = Axis("steps", (1, 2, 3))
    found = sweep_program(sleeper, axis, trials=50, budget_s=0.0)
    assert {timing.trials for _, timing in found.sweep.points} == {3}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--fail", "exit"), "sleeper.py --steps 1 --fail exit ended with no data"),
        (("--fail", "status"), "sleeper.py --steps 1 --fail status ended with 3"),
        (("--fail", "raise"), "raise: sleeper.py raised ValueError at line 14: no"),
        (("--nosuch",), "error: unrecognized arguments: --nosuch"),
    ],
)
def test_a_run_that_fails_is_one_line(sleeper, words, said):
    with pytest.raises(InputError) as failed:
        sweep_program(sleeper, Axis("steps", (1, 2, 3)), words)
    assert said in str(failed.value)
    assert "\n" not in str(failed.value)


def test_a_program_may_change_its_working_directory(tmp_path, monkeypatch):
    (tmp_path / "leaving.py").write_text("import os, sys\nos.chdir('/')\nprint(sys.argv[0])\n")
    monkeypatch.chdir(tmp_path)
    found = sweep_program("leaving.py", Axis("steps", (1, 2, 3)), trials=1)
    assert Path.cwd() == tmp_path
    assert set(found.last_lines) == {str(tmp_path / "leaving.py")}


def test_the_line_of_an_error_is_named_for_a_relative_path_too(tmp_path, monkeypatch):
    (tmp_path / "failing.py").write_text("\nraise ValueError('no')\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"failing\.py raised ValueError at line 2: no"):
        sweep_program("failing.py", Axis("steps", (1, 2, 3)))


@pytest.mark.usefixtures("only_sleeping_takes_time")
def test_a_program_on_the_command_line(bench_here, sleeper):
    status, out, err = bench_here(sleeper, "--sweep", "steps=1,2,4", "--trials", 2)
    assert (status, err) == (0, "")
    assert "Time over steps" in out
    assert f"{sleeper}--stepsN" in "".join(out.split())
    assert "median of 2 runs" in out
    assert " ms per step (r² " in out.splitlines()[-1]
    assert "step 3" not in out


@pytest.mark.usefixtures("only_sleeping_takes_time")
def test_the_json_of_a_program(bench_here, sleeper):
    asked = (sleeper, "--sweep", "steps=1,2,4", "--trials", 1, "--json", "--", "--layers", 2)
    status, out, _ = bench_here(*asked)
    document = json.loads(out)
    assert status == 0
    assert (document["over"], document["arguments"]) == ("steps", ["--layers", "2"])
    assert [point["value"] for point in document["points"]] == [1, 2, 4]
    medians = [point["median_ns"] for point in document["points"]]
    assert medians == [8_000_000, 16_000_000, 32_000_000]
    assert document["points"][0]["clock"] == "perf-counter"
    # A whole program may wait for the GPU itself, so launch-bound is unknown.
    assert document["fit"]["launch_bound"] is None


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("--sweep", "steps=1,2,4", "--dtype", "float16"), 2, "--dtype applies to operations"),
        (("--sweep", "nosuch=1,2,4"), 1, "unrecognized arguments: --nosuch 1"),
        (("--sweep", "steps=1"), 1, "a sweep over 1 value of steps"),
        ((), 1, "or time it as a program: --sweep steps=1,2,4,8"),
    ],
)
def test_invalid_options_for_a_program(bench_here, tmp_path, sleeper, words, status, said):
    if not words:
        sleeper = tmp_path / "empty.py"
        sleeper.write_text("x = 1\n")
    given, out, err = bench_here(sleeper, *words)
    assert (given, out) == (status, "")
    assert said in err


def test_a_program_binds_no_operation(tmp_path):
    file = tmp_path / "x.py"
    for text, expected in (
        ("x = 1", True),
        ("OPERATION = 1", False),
        ("OPERATION: int = 1", False),
        ("from a import OPERATION", False),
        ("from a import b as OPERATION", False),
        ("from a import *", False),
        ("def (", False),
        ("print(OPERATION)", True),
    ):
        file.write_text(text)
        assert is_program(file) == expected, text
    assert not is_program(tmp_path / "nowhere.py")


torch = pytest.importorskip("torch")


def test_a_parameter_of_an_operation(bench_here):
    asked = (OPERATIONS, "--version", "manual", "--version", "wrong", "--trials", 2)
    status, out, err = bench_here(*asked, "--size", 8, "--sweep", "rows=1,2,4", "--json")
    document = json.loads(out)
    rows = [(row["value"], row["size"], row["version"]) for row in document["rows"]]
    assert status == 1
    assert rows == [(v, 8, name) for v in (1, 2, 4) for name in ("manual", "wrong")]
    assert document["over"] == "rows"
    # The bytes show that the inputs were made with that value.
    timed = [row for row in document["rows"] if row["status"] == "timed"]
    assert [row["bytes"] for row in timed] == [64, 128, 256]
    assert [each["version"] for each in document["fits"]] == ["manual"]
    assert "at size 8, float32, rows 4: relative error" in err


def test_a_parameter_in_the_text(bench_here):
    asked = (OPERATIONS, "--version", "manual", "--trials", 2, "--sweep", "rows=1,2,1000")
    status, out, _ = bench_here(*asked)
    assert status == 0
    # Of two sizes the larger counts as the middle one.
    assert "rows 1,000 · 1,024 elements · float32" in out
    assert "Time over rows" in out


def test_sizes_as_a_sweep(bench_here):
    asked = (OPERATIONS, "--version", "manual", "--trials", 2, "--sweep", "size=4,1,2", "--json")
    document = json.loads(bench_here(*asked)[1])
    assert [(row["size"], row["value"]) for row in document["rows"]] == [
        (1, None),
        (2, None),
        (4, None),
    ]
    assert document["over"] == "size"
    assert len(document["fits"]) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("--sweep", "exact=1,2,3"),
            "double has no parameter 'exact' to sweep over; it has: size, rows",
        ),
        (("--sweep", "factor=1,2,3"), "has no parameter 'factor'"),
        (("--sweep", "dtype=1,2,3"), "has no parameter 'dtype'"),
        (("--sweep", "rows=1,2,3", "--size", 1, "--size", 2), "2 sizes and a sweep over rows"),
        (("--sweep", "size=1,2,3", "--size", 1), "sizes are given twice"),
    ],
)
def test_invalid_sweeps_of_an_operation(bench_here, words, said):
    status, out, err = bench_here(OPERATIONS, *words)
    assert (status, out) == (1, "")
    (line,) = err.splitlines()
    assert said in line


def test_arguments_are_for_programs(bench_here):
    status, _, err = bench_here(OPERATIONS, "--", "--steps", "2")
    assert status == 2
    assert "an operation takes no arguments: --steps 2" in err


@pytest.mark.slow
def test_the_workload_of_the_readme_on_this_cpu():
    words = ("workloads/mlp.py", "--sweep", "steps=2,8,32", "--trials", "3", "--json")
    words = ("bench", *words, "--", "--device", "cpu")
    # Threads that wait for each other on a busy machine would be what is timed.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    program = "from traceview.cli import run; assert run() == 0"
    done = run_python(program, words, environment, folder=REPOSITORY, timeout_s=120)
    assert done.returncode == 0, done.stderr
    points = json.loads(done.stdout)["points"]
    assert points[-1]["median_ns"] > 2 * points[0]["median_ns"]
