"""`traceview bench`, in a process of its own, as users run it."""

import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest

from tests.headless.forked_python import run_script

ROOT = Path(__file__).parents[2]
GELU = ROOT / "kernels" / "gelu.py"
OPERATIONS = ROOT / "tests" / "bench" / "operations.py"

pytest.importorskip("torch")
needs_triton = pytest.mark.skipif(
    not importlib.util.find_spec("triton"), reason="needs Triton: pip install 'traceview[ptx]'"
)


def bench(*arguments, **environment):
    kept = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "traceview", "bench", *map(str, arguments)]
    return run_script(command, kept | environment, folder=ROOT)


@pytest.fixture(scope="module")
def gelu():
    versions = ("manual", "torch", "cuda-scalar", "cuda-vector", "triton")
    chosen = [option for name in versions for option in ("--version", name)]
    sizes = ("--size", 97, "--size", 1024)
    return bench(GELU, *chosen, *sizes, "--trials", 3, "--json", CUDA_VISIBLE_DEVICES="")


@pytest.mark.programs
@needs_triton
def test_without_a_gpu_every_runnable_version_is_checked(gelu):
    assert gelu.returncode == 0, gelu.stderr
    document = json.loads(gelu.stdout)
    assert document["machine"]["gpu"] is None
    assert document["machine"]["interpreter"] is True
    states = {(row["size"], row["version"]): row["status"] for row in document["rows"]}
    for size in (97, 1024):
        assert states[size, "manual"] == states[size, "torch"] == "timed"
        assert states[size, "triton"] == "right"
        assert states[size, "cuda-scalar"] == "skipped"
    # float4 loads need a size divisible by four.
    assert states[97, "cuda-vector"] == "unsupported"
    assert states[1024, "cuda-vector"] == "skipped"


@pytest.mark.programs
@needs_triton
def test_load_widths_are_those_of_each_size(gelu):
    rows = {(r["size"], r["version"]): r for r in json.loads(gelu.stdout)["rows"]}
    # 97 is not divisible by 16, so that Triton cannot load four floats at once.
    assert rows[97, "triton"]["load_width"]["bits"] == 32
    assert rows[1024, "triton"]["load_width"]["bits"] == 128
    assert rows[1024, "triton"]["load_width"]["kernel"] == "gelu_kernel"
    assert rows[1024, "torch"]["load_width"] is None
    cuda = rows[1024, "cuda-vector"]["load_width"]
    if cuda["bits"] is None:
        assert "nvcc" in cuda["why"]
    else:
        assert (rows[1024, "cuda-scalar"]["load_width"]["bits"], cuda["bits"]) == (32, 128)


@needs_triton
@pytest.mark.slow
def test_gelu_is_right_for_all_types_and_odd_sizes():
    done = bench(
        *(GELU, "--dtype", "all", "--version", "triton", "--version", "torch"),
        *("--trials", 1, "--no-widths", "--json"),
        CUDA_VISIBLE_DEVICES="",
    )
    rows = json.loads(done.stdout)["rows"]
    assert {row["dtype"] for row in rows} == {"float32", "float16", "bfloat16"}
    assert {row["size"] for row in rows} >= {1, 97}
    assert all(row["status"] in ("timed", "right") for row in rows), done.stderr
    assert all(row["relative_error"] <= row["tolerance"] for row in rows)


def test_a_wrong_version_exits_1_and_is_named_on_stderr(bench_here):
    arguments = (OPERATIONS, "--size", 16, "--version", "wrong", "--version", "manual", "--json")
    status, out, err = bench_here(*arguments)
    assert status == 1
    statuses = {row["version"]: row["status"] for row in json.loads(out)["rows"]}
    assert statuses == {"wrong": "wrong", "manual": "timed"}
    (line,) = err.splitlines()
    assert line.startswith("traceview: wrong is wrong at size 16, float32: relative error ")


@pytest.mark.parametrize("width", [80, 160])
def test_a_table_for_a_terminal(bench_here, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    status, out, err = bench_here(OPERATIONS, "--size", 16, "--version", "manual")
    assert (status, err) == (0, "")
    assert "Twice each number  double" in out
    assert "16 elements · float32 · 128 B · 16 FLOP" in out
    assert max(map(len, out.splitlines())) <= width


def test_a_profile_is_written(bench_here, tmp_path):
    flame, out = tmp_path / "f.svg", tmp_path / "o.json"
    arguments = (OPERATIONS, "--size", 16, "--version", "manual", "--trials", 1)
    status, _, err = bench_here(*arguments, "--profile", flame, "--json", out)
    assert status == 0, err
    assert flame.read_text().startswith("<svg ")
    assert json.loads(out.read_text())["operation"] == "double"
    status, _, err = bench_here(*arguments, "--profile", flame)
    assert status == 1
    assert "exists already; pass --force" in err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "op.py does not exist; check the path"),
        ("x = 1", "op.py defines no OPERATION; define OPERATION"),
        ("OPERATION = 3", "op.py is not an Operation; define OPERATION"),
        ("def (", "op.py, line 1: syntax error: invalid syntax"),
        ("OPERATION = 1\nraise ValueError('no\\ndata')", "op.py raised ValueError at line 2: no"),
        ("from nosuchpackage import OPERATION", "op.py needs the package nosuchpackage, which"),
        ("raise SystemExit(3)\nOPERATION = 1", "op.py raised SystemExit at line 1: 3"),
    ],
)
def test_an_invalid_file_is_a_one_line_error(bench_here, tmp_path, text, message):
    file = tmp_path / "op.py"
    if text is not None:
        file.write_text(text)
    status, out, err = bench_here(file)
    assert (status, out) == (1, "")
    (line,) = err.splitlines()
    assert message in line


def test_a_program_is_not_run_to_find_out_that_it_defines_no_operation(bench_here, tmp_path):
    file, ran = tmp_path / "train.py", tmp_path / "ran"
    file.write_text(f"open({str(ran)!r}, 'w').close()\n")
    status, _, err = bench_here(file)
    assert status == 1
    assert "train.py defines no OPERATION" in err
    assert not ran.exists()


def test_what_the_file_prints_does_not_get_into_the_json(tmp_path):
    file = tmp_path / "select.py"
    file.write_text(f"print('hello')\n{OPERATIONS.read_text()}")
    done = bench(file, "--size", 4, "--version", "manual", "--trials", 1, "--json")
    assert json.loads(done.stdout)["operation"] == "double"
    assert done.stderr == "hello\n"


def test_what_a_version_prints_does_not_get_into_the_json(bench_here, tmp_path):
    file, flame = tmp_path / "chatty.py", tmp_path / "f.svg"
    loud = "def loud(x, factor):\n    print('hello')\n    return x * factor\n"
    made = "dataclasses.replace(OPERATION, reference=loud, versions=(Version('loud', loud),))"
    text = f"import dataclasses\n{OPERATIONS.read_text()}\n{loud}OPERATION = {made}\n"
    file.write_text(text)
    arguments = (file, "--size", 4, "--trials", 1, "--profile", flame, "--json")
    status, out, err = bench_here(*arguments)
    assert (status, "hello" in err) == (0, True)
    profiled = json.loads(out)["profile"]
    assert (profiled["version"], profiled["size"], profiled["calls"]) == ("loud", 4, 3)
    assert "aten::mul" in [row["operator"] for row in profiled["operators"]]


def test_operators_are_shown_beside_the_flame_graph(bench_here, tmp_path):
    arguments = (OPERATIONS, "--size", 16, "--version", "manual", "--trials", 1)
    status, out, _ = bench_here(*arguments, "--profile", tmp_path / "f.svg")
    assert status == 0
    assert "Operators  double manual, size 16, float32: 3 calls profiled" in out
    assert "aten::mul" in out


@pytest.mark.parametrize("names", [("a", "a"), ("a", "./a")])
def test_two_outputs_of_one_name(bench_here, tmp_path, monkeypatch, names):
    monkeypatch.chdir(tmp_path)
    status, out, err = bench_here(OPERATIONS, "--profile", names[0], "--json", names[1])
    assert (status, out) == (2, "")
    assert "two outputs have the name a" in err
    assert not Path("a").exists()


def test_the_python_twin():
    import traceview
    from tests.bench.operations import OPERATION

    report = traceview.benchmark(OPERATION, sizes=[16], versions=["manual"], trials=2)
    assert [(row.version, row.status) for row in report.rows] == [("manual", "timed")]
    assert report.bad == ()


def test_the_architecture_is_checked_before_anything_is_measured(bench_here):
    arguments = (OPERATIONS, "--version", "manual", "--size", 16)
    status, out, err = bench_here(*arguments, "--arch", "sm_1")
    assert (status, out) == (2, "")
    assert "'sm_1' is not a GPU architecture; pass, for example, --arch sm_90" in err


def test_a_run_compared_with_an_earlier_one(tmp_path, bench_here):
    old, size = tmp_path / "old.json", ("--size", 97, "--trials", 5, "--version", "manual")
    assert bench_here(OPERATIONS, *size, "--json", old)[0] == 0
    status, out, err = bench_here(OPERATIONS, *size, "--compare", old, "--json")
    assert status == 0, err
    [row] = json.loads(out)["comparison"]["rows"]
    assert (row["version"], row["basis"], row["is_certain"]) == ("manual", "trials", False)
    several = ("--compare", old, "--compare", old, "--json")
    comparison = json.loads(bench_here(OPERATIONS, *size, *several)[1])["comparison"]
    assert (comparison["runs_before"], comparison["runs_after"]) == (2, 1)
    assert comparison["rows"][0]["basis"] == "runs"


def test_what_cannot_be_compared_is_refused_before_it_is_measured(tmp_path, bench_here):
    old, machine = tmp_path / "old.json", {"gpu": None}
    saved = {
        "schema_version": 1,
        "operation": "add",
        "over": "size",
        "machine": machine,
        "rows": [],
    }
    arguments = (OPERATIONS, "--version", "manual", "--size", 16, "--compare", old)

    def refusal(**changed):
        old.write_text(json.dumps({**saved, **changed}))
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("traceview.trials.bench.measure", None)
            return bench_here(*arguments)

    status, out, err = refusal()
    assert (status, out) == (2, "")
    assert "these are of add and double over size; compare runs of one operation" in err
    assert refusal(operation="double", over="batch")[0] == 2
    status, out, err = refusal(operation="double", machine={"gpu": "NVIDIA T4"})
    assert (status, out) == (2, "")
    assert "measure both on one GPU, or pass --force\n" in err
