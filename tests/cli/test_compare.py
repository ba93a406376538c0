"""`traceview compare`: sides, outputs, and what is refused, each in one line."""

import json
import lzma
import shutil

import pytest

import traceview
from tests.cli.test_completion import completed
from tests.places import DATA
from tests.render.schemas.strictness import validator
from traceview.cli import run

BEFORE, AFTER = DATA / "mlp_print_loss.sqlite.xz", DATA / "mlp_nosync.sqlite.xz"


@pytest.fixture(autouse=True)
def in_an_empty_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def compared(capsys, *words):
    status = run(["compare", *map(str, words)])
    shown = capsys.readouterr()
    return status, shown.out, shown.err


def test_the_cause_is_named_first(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    status, out, err = compared(capsys, BEFORE, AFTER)
    assert (status, err) == (0, "")
    assert "One run per side: not known whether this is noise" in " ".join(out.split())
    assert "The GPU no longer sits idle after synchronizations" in out.partition("Parts of")[0]
    assert "synchronizations    1  →    0" in out
    assert max(map(len, out.splitlines())) <= 80


def test_ranks_of_a_job_are_no_repeated_runs(capsys, tmp_path):
    for rank in (0, 1):
        shutil.copy(DATA / f"ranks/moe.rank{rank}.sqlite.xz", tmp_path)
    status, out, err = compared(capsys, tmp_path, tmp_path)
    assert (status, out) == (2, "")
    assert err == (
        "traceview: error: moe.rank0.sqlite.xz and moe.rank1.sqlite.xz are ranks 0 and 1 of a job, "
        "not repeated runs of it; pass recordings of one rank, the same on both sides\n"
    )
    status, out, _ = compared(capsys, tmp_path, tmp_path, "--force")
    assert status == 0
    assert "2 runs per side" in out


def test_json_alone_goes_to_stdout_and_its_parts_sum_up(capsys):
    status, out, err = compared(capsys, BEFORE, AFTER, "--json")
    document = json.loads(out)
    validator("compare").validate(document)
    assert (status, err) == (0, "")
    parts = sum(part["difference_ns"] for part in document["parts"])
    assert parts == pytest.approx(document["step"]["difference_ns"], abs=1e-3)


def test_files_are_written_once_unless_forced(capsys, tmp_path):
    words = (BEFORE, AFTER, "--html", "-o", tmp_path / "c.md", "--json", tmp_path / "c.json")
    status, out, err = compared(capsys, *words)
    assert status == 0
    assert "mlp_print_loss" in out
    page = tmp_path / "mlp_print_loss-vs-mlp_nosync.html"
    assert err.splitlines() == [f"Wrote {page.name}", f"Wrote {tmp_path / 'c.json'}",
                                f"Wrote {tmp_path / 'c.md'}"]  # fmt: skip
    assert "no longer sits idle" in page.read_text()
    assert compared(capsys, *words)[0] == 1
    assert compared(capsys, *words, "--force")[0] == 0


def test_folders_and_globs_are_sides(capsys, tmp_path):
    for name, file in (("old", BEFORE), ("new", AFTER)):
        (tmp_path / name).mkdir()
        shutil.copy(file, tmp_path / name / "run_0.sqlite.xz")
        (tmp_path / name / "log.txt").write_text("no recording")
    folders = json.loads(compared(capsys, "old", "new", "--json")[1])
    assert [run["name"] for run in folders["before"]] == ["run_0.sqlite.xz"]
    globs = compared(capsys, "--before", "old/*.xz", "--after", "new/*.xz", "--json")
    assert globs[0] == 0
    assert json.loads(globs[1])["step"] == folders["step"]


def test_a_baseline_is_a_side(capsys, tmp_path):
    assert run(["baseline", str(BEFORE), "-o", "base.json"]) == 0
    capsys.readouterr()
    status, out, _ = compared(capsys, "base.json", AFTER, "--json", "--html", "page.html")
    assert status == 0
    recorded = json.loads(compared(capsys, BEFORE, AFTER, "--json")[1])
    assert json.loads(out)["parts"] == recorded["parts"]
    assert "Timelines" not in (tmp_path / "page.html").read_text()


def broken(tmp_path):
    path = tmp_path / "cut.sqlite"
    path.write_bytes(lzma.decompress(BEFORE.read_bytes())[:10_000])
    return path


def empty(tmp_path):
    path = tmp_path / "empty.sqlite"
    path.write_bytes(b"")
    return path


def text(tmp_path):
    path = tmp_path / "notes.sqlite"
    path.write_text("no trace")
    return path


def folder(tmp_path):
    path = tmp_path / "nothing"
    path.mkdir()
    return path


def same(_):
    return BEFORE


@pytest.mark.parametrize(
    ("made", "status"),
    [(broken, 1), (empty, 1), (text, 1), (folder, 2), (same, 2)],
)
def test_what_cannot_be_compared_is_one_line(capsys, tmp_path, made, status):
    got, out, err = compared(capsys, BEFORE, made(tmp_path))
    assert (got, out) == (status, "")
    assert err.startswith("traceview: error: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("a.sqlite",),
        ("a.sqlite", "b.sqlite", "c.sqlite"),
        ("a.sqlite", "b.sqlite", "--after", "c.sqlite"),
        ("--before", "a.sqlite"),
        ("--before", "*.none", "--after", "b.sqlite"),
        ("--json", "--markdown", "a.sqlite", "b.sqlite"),
        ("a.sqlite", "b.sqlite", "-o", "c.csv"),
    ],
)
def test_misuse(capsys, words):
    status, out, err = compared(capsys, *words)
    assert (status, out) == (2, "")
    assert "internal" not in err


def test_a_recording_is_never_overwritten(capsys, tmp_path):
    mine = tmp_path / "mine.sqlite.xz"
    shutil.copy(BEFORE, mine)
    assert compared(capsys, mine, AFTER, "--html", mine, "--force")[0] == 1
    assert mine.read_bytes() == BEFORE.read_bytes()


def test_options_are_completed():
    assert completed("comp") == ["compare", "completion"]
    assert completed("compare", "--bef") == ["--before"]


def test_the_python_twin_takes_traces_paths_and_lists(tmp_path):
    before = traceview.load(BEFORE)
    one = traceview.compare(before, str(AFTER))
    assert one == traceview.compare([BEFORE], [AFTER])
    assert repr(one).startswith("<RunComparison of mlp_print_loss.sqlite.xz → ")
    assert "What changed" not in one._repr_html_()
    assert "GPU idle" in one._repr_html_()
    assert one.to_json(tmp_path / "c.json") == tmp_path / "c.json"
    assert one.to_markdown().startswith("mlp\\_print\\_loss")
    with pytest.raises(traceview.TraceviewError, match="same capture"):
        traceview.compare(before, before)
    assert traceview.compare(before, before, force=True).delta_ns == 0
