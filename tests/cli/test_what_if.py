"""`traceview what-if` on shipped recordings and on hostile ones."""

import json
import re
import sqlite3
import tomllib
from statistics import median

import pytest
from rich.cells import cell_len

import traceview
from tests.build import Export
from tests.contracts.test_hostile_traces import NAMES
from tests.edits.programs import gpu_bound, us
from tests.places import DATA, REPOSITORY
from tests.render.report.test_html import Page
from tests.render.schemas.strictness import validator
from traceview.cli import run

TRAINING = str(REPOSITORY / "examples" / "training.sqlite.xz")
EDITS = ("--kernel", "*gemm*=0.5", "--graph", "step", "--cpu", "load=0", "--kernel", "*=2x")


@pytest.fixture
def what_if(capsys):
    """Runs the command; gives its status, stdout and stderr."""

    def call(*arguments):
        status = run(["what-if", *map(str, arguments)])
        shown = capsys.readouterr()
        assert "Traceback" not in shown.out + shown.err
        assert "internal error" not in shown.err
        return status, shown.out, shown.err

    return call


def test_a_printed_loss_costs_what_the_program_without_it_shows(what_if):
    """The same program was recorded without printing the loss, too."""
    without = traceview.what_if(DATA / "mlp_nosync.sqlite.xz", "no-recorder").recorded_ns
    for place in ("mlp.py:90", "Tensor.item", "cudaStreamSynchronize"):
        status, out, _ = what_if(DATA / "mlp_print_loss.sqlite.xz", "--no-sync", place, "--json")
        assert status == 0
        document = json.loads(out)
        assert document["edits"][0]["items"] == 1
        assert document["replayed_ns"] == pytest.approx(without, rel=0.002)


@pytest.mark.parametrize(
    ("name", "edits", "case", "within"),
    [
        ("forecasts/mlp_tf32", ("kernel *gemm*=7.4x",), "mlp_tf32", 0.01),
        ("foreign/fault_sleep", ("cpu train.py:123=0",), "sleep", 0.06),
        ("forecasts/readback", ("no-sync *", "copy D2H=0"), "readback", 0.2),
    ],
)
def test_measured_remedies_are_forecast(name, edits, case, within):
    """What docs/what-if.md says of measurements without a profiler."""
    measured = tomllib.loads((DATA / "forecasts" / "forecasts.toml").read_text())[case]
    won = median(measured["before_ms"]) - median(measured["after_ms"])
    answer = traceview.what_if(DATA / f"{name}.sqlite.xz", *edits)
    assert answer.forecast.saved_ns / 1e6 == pytest.approx(won, rel=within)


@pytest.mark.parametrize("width", [80, 160])
def test_the_text_has_a_row_per_edit_and_fits(what_if, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    status, out, err = what_if(TRAINING, *EDITS, "--no-recorder")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert max(map(cell_len, lines)) <= width
    recorded = traceview.what_if(TRAINING, "no-recorder")
    assert re.fullmatch(
        r"training\.sqlite\.xz · NVIDIA H200 · \d steps, each from the end of the one before",
        lines[0],
    )
    names = ["kernel *gemm* × 0.5", "one launch per step", "CPU at load × 0"]
    names += ["kernel * 2× as fast", "without the recorder"]
    rows = [line for line in lines if "→" in line and re.search(r"[−+][\d.]+ .?s$", line)]
    assert [row.startswith(name) for row, name in zip(rows, names, strict=True)] == [True] * 5
    assert "44 launches become 1 per step" in out
    text = " ".join(out.split())
    assert f"as recorded {recorded.recorded_ns / 1e6:.1f} ms per step" in text
    assert f"GPU busy {recorded.before.busy_pct:.1f} % before, " in text
    assert "A replay without edits is the recording to the nanosecond." in text
    assert "Not modelled: kernels that slow each other down" in text


def test_the_json_fits_its_schema_and_keeps_the_order(what_if):
    status, out, _ = what_if(TRAINING, "--no-recorder", *EDITS, "--link", "2x", "--json")
    assert status == 0
    document = json.loads(out)
    validator("what-if").validate(document)
    kinds = [each["kind"] for each in document["edits"]]
    assert kinds == ["no-recorder", "kernel", "graph", "cpu", "kernel", "link"]
    assert sum(each["saved_ns"] for each in document["edits"]) == document["saved_ns"]
    assert document["recorded_ns"] - document["saved_ns"] == document["replayed_ns"]
    terms = document["error"]
    squares = sum(terms[name] ** 2 for name in ("spread_ns", "inferred_ns", "recorder_ns"))
    assert terms["error_ns"] == pytest.approx(squares**0.5, abs=2)
    for gpu in (document["gpu_before"], document["gpu_after"]):
        whole = gpu["busy_ns"] + sum(gpu["idle_ns"].values())
        assert whole == pytest.approx(gpu["step_ns"], abs=1)
    assert document["gpu_after"]["step_ns"] == pytest.approx(document["replayed_ns"], abs=1)


def test_every_output_is_written_once(what_if, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, _, err = what_if(TRAINING, *EDITS, "--html", "--json", "a.json", "--markdown", "a.md")
    assert status == 0
    assert err.splitlines() == [f"Wrote {n}" for n in ("training-what-if.html", "a.json", "a.md")]
    page = (tmp_path / "training-what-if.html").read_text("utf-8")
    assert Page(page).misnested == []
    assert "one launch per step" in page
    assert not re.search(r"(src|href)=\"http", page)
    assert "| **as recorded**" not in (tmp_path / "a.md").read_text("utf-8")
    assert "one launch per step" in (tmp_path / "a.md").read_text("utf-8")
    assert what_if(TRAINING, *EDITS, "-o", "a.json")[0] == 1
    assert what_if(TRAINING, *EDITS, "-o", "a.json", "--force")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Missing argument 'TRACE'"),
        ((TRAINING,), "name an edit: --kernel, --fuse, --no-sync"),
        ((TRAINING, "--kernel", "gemm"), "'--kernel': kernel lacks a factor"),
        ((TRAINING, "--link", "fast"), "'--link': link has the factor 'fast'"),
        (("--json", TRAINING), "Put TRACE first"),
    ],
)
def test_misuse_is_status_2(what_if, arguments, message):
    status, out, err = what_if(*arguments)
    assert (status, out) == (2, "")
    assert message in err


@pytest.mark.parametrize(
    ("name", "edits", "message"),
    [
        ("training", ("--kernel", "gem=0"), "no kernel matches 'gem'; closest: 'cuBLAS fp32 GEMM"),
        (
            "training",
            ("--no-sync", "train.py:9"),
            "no line that waits matches 'train.py:9'; closest",
        ),
        ("training", ("--graph", "batchh"), "no range matches 'batchh'; closest: 'epoch_#/batch"),
        ("training", ("--gpu", "B200"), "bytes and FLOP are unknown"),
        ("ranges_2023_4", ("--no-recorder",), "has no GPU work to replay"),
    ],
)
def test_an_edit_that_touches_nothing_is_one_line(what_if, name, edits, message):
    status, out, err = what_if(DATA / f"{name}.sqlite.xz", *edits)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert message in err


@pytest.mark.parametrize("name", NAMES)
def test_hostile_names_are_text(what_if, tmp_path, name):
    export, text = Export(), NAMES[name]
    for step in range(4):
        export.range(f"{text}_{step}", *us(20 * step, 20 * step + 10))
        start = 6 + 101 * step
        export.launch(us(20 * step, 20 * step + 2), us(start, start + 100), name=text)
    export.load(tmp_path)
    path = next(tmp_path.glob("*.sqlite"))
    page = tmp_path / "page.html"
    status, out, err = what_if(path, f"--kernel={text}=0.5", "--html", page)
    if status == 0:
        assert all(line.isprintable() for line in out.splitlines())
        parsed = Page(page.read_text("utf-8"))
        assert len(parsed.named("script")) == 1
        assert not parsed.named("img", "iframe")
    else:
        assert err.splitlines()[-1].isprintable()
    status, out, err = what_if(path, "--kernel", "no such kernel=0")
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert err.strip().isprintable()


def test_damaged_files_are_refused_in_a_line(what_if, tmp_path):
    for name, content in (("a.sqlite", b"no"), ("b.sqlite", b"SQLite format 3\0" + b"\0" * 99)):
        (tmp_path / name).write_bytes(content)
        status, out, err = what_if(tmp_path / name, "--no-recorder")
        assert (status, out, err.count("\n")) == (1, "", 1)
        assert name in err
    gpu_bound().load(tmp_path)
    [path] = [
        each for each in tmp_path.glob("*.sqlite") if each.name not in ("a.sqlite", "b.sqlite")
    ]
    with sqlite3.connect(path) as database:
        database.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = -5 WHERE start > 300000")
    assert what_if(path, "--kernel", "*=0.5")[0] == 0


def test_a_trace_of_torch_profiler(what_if, tmp_path):
    """Its cost per call is not known; edits of its kernels are replayed."""
    trace = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}]}
    events = []
    for step in range(5):
        at = 100.0 * step
        where = {"pid": 1, "tid": 1, "ph": "X"}
        events.append(
            {**where, "cat": "user_annotation", "name": f"step_{step}", "ts": at, "dur": 90}
        )
        for number in range(2):
            ids = {"correlation": 10 * step + number + 1}
            launch = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at + 40 * number}
            events.append({**where, **launch, "dur": 4, "args": ids})
            start = at + 40 * number + 6
            kernel = {"cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ph": "X", "dur": 10}
            args = {**ids, "device": 0, "context": 1, "stream": 7}
            events.append({**kernel, "ts": start, "args": args})
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({**trace, "traceEvents": events}))
    status, out, _ = what_if(path, "--kernel", "gemm=0.5", "--graph", "step", "--json")
    assert status == 0
    document = json.loads(out)
    assert document["recorded_ns"] == 100_000
    # A call of 4 µs and 56 µs of Python before the step.
    assert [each["replayed_ns"] for each in document["edits"]] == [100_000, 60_000]
    status, _, err = what_if(path, "--no-recorder")
    assert status == 1
    assert "what torch.profiler adds to a call is not known" in err


def test_the_answer_shows_itself():
    answer = traceview.what_if(TRAINING, "link 2x")
    assert repr(answer).startswith("<WhatIfReport training.sqlite.xz · NVIDIA H200")
    snippet = answer._repr_html_()
    assert Page(snippet).elements[0] == ("div", {"class": "traceview"})
    assert "<script" not in snippet
    assert " id=" not in re.sub("<style.*?</style>", "", snippet, flags=re.DOTALL)
