"""Every JSON output fits its schema, which names every key of it."""

import json

import pytest
from jsonschema import ValidationError

from tests.places import PTX_FILES, REPOSITORY
from tests.render.schemas.strictness import validator
from traceview.cli import run
from traceview.render.forms import JSON

pytestmark = pytest.mark.slow


def printed(capsys, *arguments):
    assert run([str(each) for each in arguments]) == 0
    return json.loads(capsys.readouterr().out)


def test_every_schema_is_printed(capsys):
    for name in JSON:
        document = printed(capsys, "schema", name)
        assert document["$schema"].endswith("2020-12/schema")
        assert document["type"] == "object"


def test_an_unknown_name_is_misuse_and_files_are_kept(tmp_path, capsys):
    assert run(["schema", "reports"]) == 2
    target = tmp_path / "a.json"
    assert run(["schema", "ptx", "-o", str(target)]) == 0
    assert run(["schema", "ptx", "-o", str(target)]) == 1
    assert json.loads(target.read_text())["title"].startswith("traceview ptx")


@pytest.mark.parametrize("path", sorted(PTX_FILES.rglob("*.ptx"))[:12], ids=lambda path: path.name)
def test_kernels_of_a_file(path, capsys):
    validator("ptx").validate(printed(capsys, "ptx", path, "--json"))


def test_kernels_with_expectations(capsys):
    path = PTX_FILES / "softmax-3.9.0-sm90.ptx"
    expected = "global load >= 128, registers <= 1"
    assert run(["ptx", str(path), "--expect", expected, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    validator("ptx").validate(document)
    assert {each["met"] for each in document["expectations"]} >= {False}


def test_two_files_compared(capsys):
    one, other = sorted(PTX_FILES.rglob("*.ptx"))[:2]
    document = printed(capsys, "ptx", "--diff", one, other, "--json")
    validator("ptx-diff").validate(document)


def test_an_operation_timed(bench_here):
    versions = ("manual", "torch", "triton", "cuda-vector")
    chosen = [word for name in versions for word in ("--version", name)]
    operation = REPOSITORY / "kernels" / "gelu.py"
    status, out, _ = bench_here(operation, *chosen, "--size", 64, "--trials", 3, "--json")
    assert status == 0
    validator("bench").validate(json.loads(out))


def test_an_operation_swept_and_profiled(bench_here, tmp_path):
    operation = REPOSITORY / "kernels" / "gelu.py"
    one = ("--version", "manual", "--trials", 2, "--json", "-")
    for more in (
        ("--sweep", "size=64,128,256"),
        ("--size", 64, "--profile", tmp_path / "profile.svg"),
    ):
        status, out, _ = bench_here(operation, *one, *more)
        assert status == 0
        validator("bench").validate(json.loads(out))


def test_the_setup_of_this_machine(capsys, monkeypatch):
    from traceview.traces.recorders import MachineCheck

    checks = [MachineCheck("nsys", "missing", "not found", "install it")]
    monkeypatch.setattr("traceview.traces.recorders.check_machine", lambda: checks)
    validator("doctor").validate(printed(capsys, "doctor", "--json"))


def test_the_table_of_tried_remedies(capsys, monkeypatch, tmp_path):
    from traceview.trials.tryout import ledger

    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    kept = ledger.Row("2026-01-01", "train.py", "cpu", "fused", "keep", 2e6, 5.0, 4.0, 6.0)
    failed = ledger.Row("2026-01-01", "train.py", "cpu", "foreach", "failed", reason="why")
    ledger.append([kept, failed])
    with ledger.path().open("a") as file:
        file.write('{"damaged": ')
    document = printed(capsys, "accuracy", "--json")
    validator("try").validate(document)
    assert [row["outcome"] for row in document["tried"]] == ["keep", "failed"]


def test_a_key_that_is_missing_new_or_of_another_type_is_found():
    document = {"schema_version": 1, "traceview_version": "1.0", "checks": []}
    validator("doctor").validate(document)
    for wrong in ({"schema_version": 1}, {**document, "new": 1}, {**document, "checks": 3}):
        with pytest.raises(ValidationError):
            validator("doctor").validate(wrong)
