"""`traceview report` of several ranks, of recordings of a simulated job."""

import json
import os
import re
import shutil
import sys
from functools import cache

import pytest

import traceview
from tests.build import Export
from tests.cli.terminal import CTRL_C, in_terminal
from tests.ranks.job_model import Fault, Job
from tests.ranks.rank_programs import run
from tests.ranks.simulated_export import write
from tests.ranks.simulated_figures import recordings
from tests.render.schemas.strictness import validator
from traceview import cli
from traceview.traces.ranks.execution import reading
from traceview.traces.ranks.execution.task import attempt

RANKS = 4
LATE = 2
JOB = Job(
    seed=1,
    shape="ddp",
    ranks=RANKS,
    steps=8,
    layers=3,
    split=2,
    microbatches=3,
    gemm_ns=100_000,
    host_ns=6_000,
    bytes_per_s=300e9,
    layer_bytes=4 << 20,
    jitter=0.004,
    speed_spread=0.002,
    waits_each_step=True,
    hiccups=0.0,
    fault=Fault("sleep", (LATE,), pause_ns=5_000_000),
)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The recordings of a job, in which a rank sleeps in every step."""
    folder = tmp_path_factory.mktemp("recorded") / "job"
    folder.mkdir()
    for line, each in zip(run(JOB), recordings(JOB.seed, RANKS), strict=True):
        write(line, each, folder / f"run_{line.program.rank}.sqlite")
    return folder


@pytest.fixture
def read_apart(recorded, tmp_path, monkeypatch):
    """A copy of them in an empty folder, read by worker processes as a user's are."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    return shutil.copytree(recorded, tmp_path / "job")


class ThisProcess:
    """Does what worker processes do, where the question is what the command does with it."""

    def __init__(self, *_):
        pass

    def outcomes(self, function, items):
        yield from enumerate(attempt(function, item) for item in items)


class ReadsOnce(ThisProcess):
    """The same for files that stay as they are: each is read once."""

    attempt = staticmethod(cache(attempt))

    def outcomes(self, function, items):
        yield from enumerate(self.attempt(function, item) for item in items)


@pytest.fixture
def own_job(read_apart, monkeypatch):
    """The same, read in this process."""
    monkeypatch.setattr(reading, "ProcessPool", ThisProcess)
    return read_apart


@pytest.fixture
def job(recorded, monkeypatch):
    """The recordings that all tests share, in the current folder: leave both as they are."""
    monkeypatch.chdir(recorded.parent)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(reading, "ProcessPool", ReadsOnce)
    return recorded


def told(capsys, *arguments, status=0):
    assert cli.run(["report", *map(str, arguments)]) == status
    return capsys.readouterr()


def document(capsys, *arguments):
    return json.loads(told(capsys, *arguments, "--json").out)


def test_a_folder_is_a_job_on_one_screen(read_apart, capsys):
    shown = told(capsys, read_apart)
    assert "4 ranks" in shown.out
    assert len(shown.out.splitlines()) <= 40
    assert shown.err == ""


def test_files_a_glob_and_a_folder_are_the_same_job(job, capsys):
    whole = document(capsys, job)
    assert [rank["rank"] for rank in whole["ranks"]] == [0, 1, 2, 3]
    assert document(capsys, "job/run_*.sqlite") == document(capsys, "job") != whole
    files = sorted(job.glob("*.sqlite"))
    assert document(capsys, *reversed(files)) == whole
    assert document(capsys, job, "--jobs", 1) == whole


def test_processes_and_one_process_give_the_same(read_apart, monkeypatch, capsys):
    whole = document(capsys, read_apart)
    assert document(capsys, read_apart, "--jobs", 1) == whole
    monkeypatch.setattr(reading, "ProcessPool", ThisProcess)
    assert document(capsys, read_apart) == whole


def test_the_rank_that_is_late_is_found(job, capsys):
    stragglers = document(capsys, job)["job"]["tables"]["stragglers"]
    assert stragglers[0]["rank"] == LATE


def test_json_alone_on_stdout_fits_its_schema(job, capsys):
    validator("ranks").validate(document(capsys, job))
    validator("ranks").validate(document(capsys, job, "--only", "ranks,groups"))


def test_the_python_twin_gives_the_same(job, capsys):
    report = traceview.analyze_ranks([*job.glob("*.sqlite")], jobs=2)
    assert json.loads(report.to_json()) == document(capsys, job)
    assert repr(report).splitlines()[0] in told(capsys, job).out.splitlines()[0]


def test_a_damaged_file_is_told_and_the_others_answer(own_job, capsys):
    (own_job / "run_1.sqlite").write_bytes((own_job / "run_1.sqlite").read_bytes()[:5000])
    shown = told(capsys, own_job)
    assert "run_1.sqlite" in shown.out
    assert re.fullmatch(r"traceview: warning: left out run_1\.sqlite: .*truncated.*\n", shown.err)
    whole = document(capsys, own_job)
    assert [rank["rank"] for rank in whole["ranks"]] == [0, 2, 3]
    assert whole["failed"][0]["path"].endswith("run_1.sqlite")
    assert "truncated" in whole["failed"][0]["reason"]


def test_without_any_readable_file_nothing_is_done(own_job, capsys):
    for path in own_job.iterdir():
        path.write_bytes(b"")
    shown = told(capsys, own_job, "--html", status=1)
    assert shown.out == ""
    assert shown.err.startswith("traceview: error: none of 4 recordings could be read; ")
    assert "is empty" in shown.err
    assert len(shown.err.splitlines()) == 1


def test_a_typed_file_that_is_missing_is_told(job, capsys):
    shown = told(capsys, *job.glob("run_[01].sqlite"), job / "run_9.sqlite")
    assert "left out run_9.sqlite: No such file" in shown.err


def test_a_copy_is_told_and_counts_once(own_job, capsys):
    shutil.copy(own_job / "run_1.sqlite", own_job / "copy_of_1.sqlite")
    whole = document(capsys, own_job)
    assert len(whole["ranks"]) == RANKS
    assert any(
        "run_1.sqlite is the same recording as copy_of_1" in n for n in whole["job"]["notes"]
    )


def test_profilers_are_not_mixed(own_job, capsys):
    trace = {
        "traceEvents": [
            {
                "ph": "X",
                "cat": "kernel",
                "name": "k",
                "ts": 1,
                "dur": 5,
                "pid": 0,
                "tid": 7,
                "args": {"device": 0, "stream": 7, "correlation": 1},
            },
            {
                "ph": "X",
                "cat": "cuda_runtime",
                "name": "cudaLaunchKernel",
                "ts": 0,
                "dur": 1,
                "pid": 9,
                "tid": 9,
                "args": {"correlation": 1},
            },
        ]
    }
    (own_job / "torch.json").write_text(json.dumps(trace))
    shown = told(capsys, own_job, status=1)
    assert "of different profilers" in shown.err
    assert len(shown.err.splitlines()) == 1


def test_outputs_are_named_after_the_folder(own_job, tmp_path, capsys):
    shown = told(capsys, own_job, "--html", "--json", "job.json", "--csv", "tables", "-o", "job.md")
    assert (tmp_path / "job.html").read_text().startswith("<!doctype html>")
    assert json.loads((tmp_path / "job.json").read_text())["schema_version"] == 1
    assert (tmp_path / "job.md").read_text()
    names = {path.name for path in (tmp_path / "tables").iterdir()}
    assert {"findings.csv", "ranks.csv", "stragglers.csv", "rank_steps.csv"} <= names
    assert shown.err.count("Wrote ") == 4
    told(capsys, own_job, "--html")
    (tmp_path / "job.html").write_text("mine")
    assert "exists already" in told(capsys, own_job, "--html", status=1).err
    told(capsys, own_job, "--html", "--force")


def test_markdown_alone_on_stdout(job, capsys):
    assert told(capsys, job, "--markdown").out.startswith("**job**")


def test_all_prints_every_table_and_only_those_named(job, capsys):
    every = told(capsys, job, "--all").out
    some = told(capsys, job, "--only", "groups").out
    assert len(some.splitlines()) < len(every.splitlines())
    tables = {"ranks", "stragglers", "critical_path", "groups", "collectives", "rank_steps"}
    assert set(document(capsys, job, "--only", "groups")["job"]["tables"]) == {"groups"}
    assert set(document(capsys, job)["job"]["tables"]) == tables


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--range", "step_1"], "--range applies to the report of one rank: add --rank N"),
        (["--exclude-range", "step_1"], "add --rank N"),
        (["--strict"], "add --rank N"),
        (["--peak", "link=64e9"], "add --rank N"),
        (["--ncu", "a.csv"], "add --rank N"),
        (["--cubin", "a.cubin"], "add --rank N"),
        (["--full-names"], "add --rank N"),
        (["--only", "gpu-idle"], "no table of several ranks is named 'gpu-idle'"),
        (["--only", "groups", "--html"], "--only selects tables of the terminal"),
        (["--rank", "1", "--jobs", "2"], "--jobs compares ranks"),
        (["--rank", "1", "--ranks"], "--ranks compares ranks"),
        (["--rank", "1", "--dask", "local"], "--dask compares ranks"),
        (["--rank", "1", "--only", "groups"], "no analysis is named 'groups'"),
        (["--rank", "-1"], "-1"),
        (["--jobs", "0"], "0"),
        (["--json", "--markdown"], "cannot both go to stdout"),
    ],
)
def test_what_does_not_apply_is_misuse(job, capsys, options, said):
    assert said in told(capsys, job, *options, status=2).err


@pytest.mark.parametrize("option", [["--jobs", "2"], ["--only", "stragglers"]])
def test_options_of_a_job_are_misuse_with_one_recording(job, capsys, option):
    told(capsys, job / "run_0.sqlite", *option, status=2)


def test_rank_gives_the_ordinary_report_of_that_rank(own_job, capsys):
    alone = told(capsys, own_job / "run_2.sqlite").out
    assert told(capsys, own_job, "--rank", "2").out == alone
    options = ["--only", "kernel-share", "--range", "step_3"]
    of_one = told(capsys, own_job / "run_2.sqlite", *options).out
    assert told(capsys, own_job, "--rank", "2", *options).out == of_one
    told(capsys, own_job, "--rank", "2", "--html")
    assert (own_job.parent / "job-rank-2.html").exists()


def test_a_rank_is_found_whatever_its_file_is_called(own_job, capsys):
    alone = document(capsys, own_job / "run_2.sqlite")
    for path in sorted(own_job.iterdir()):
        path.rename(own_job / f"{'dbca'[int(path.stem[-1])]}.sqlite")
    found = document(capsys, own_job, "--rank", "2")
    assert found["trace"]["path"].endswith("c.sqlite")
    assert found["findings"] == alone["findings"]


def test_a_rank_that_is_not_there_is_told(job, capsys):
    shown = told(capsys, job, "--rank", "9", status=1)
    assert "no recording is of rank 9; there are ranks 0, 1, 2, 3" in shown.err


def test_one_recording_of_an_unknown_rank_is_the_rank_that_the_job_calls_it(unpack, capsys):
    """The report of a job leads to the report of a rank by its path and number."""
    path = unpack("training")
    assert told(capsys, path, "--rank", "5").out == told(capsys, path).out


def test_one_recording_of_another_rank_is_refused(job, capsys):
    told(capsys, job / "run_2.sqlite", "--rank", "2")
    shown = told(capsys, job / "run_2.sqlite", "--rank", "3", status=1)
    assert "no recording is of rank 3; there is only rank 2" in shown.err


def test_a_folder_with_one_recording_is_that_recording(own_job, capsys):
    alone = told(capsys, own_job / "run_2.sqlite").out
    for path in own_job.glob("run_[013].sqlite"):
        path.unlink()
    (own_job / "run_2.nsys-rep").write_bytes(b"its report")
    assert told(capsys, own_job).out == alone
    assert told(capsys, own_job, "--html").err == "Wrote run_2.html\n"


def test_a_folder_without_recordings_is_told(tmp_path, capsys):
    assert "has no recordings" in told(capsys, tmp_path, status=1).err


def test_processes_of_one_recording(capsys, unpack, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = unpack("ddp_late")
    whole = document(capsys, path, "--ranks")
    assert [rank["rank"] for rank in whole["ranks"]] == [0, 1]
    assert [rank["device_id"] for rank in whole["ranks"]] == [0, 1]
    assert whole["job"]["tables"]["stragglers"][0]["rank"] == 1
    one = document(capsys, path, "--rank", "1")
    gpus = {row["device_id"] for row in one["analyses"]["gpu-idle"]["tables"]["devices"]}
    assert gpus == {1}
    assert "analyses" in document(capsys, path)


def test_ranks_on_a_dask_cluster_of_this_machine(job, capsys):
    pytest.importorskip("distributed")
    assert document(capsys, job, "--dask", "local:2") == document(capsys, job)


def test_without_dask_one_line_says_how_to_install_it(job, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    shown = told(capsys, job, "--dask", "local", status=1)
    assert "pip install 'traceview[dask]'" in shown.err
    assert len(shown.err.splitlines()) == 1


def environment(tmp_path):
    left = tmp_path / "left"
    left.mkdir()
    return {**os.environ, "TMPDIR": str(left), "TERM": "xterm-256color"}, left


def test_a_terminal_shows_how_far_it_is(read_apart, tmp_path):
    variables, left = environment(tmp_path)
    session = in_terminal(["report", str(read_apart), "--jobs", "1"], environment=variables)
    assert session.status == 0
    assert re.search(r"Reading ranks [0-4] of 4", session.text)
    assert list(left.iterdir()) == []


@pytest.mark.parametrize("option", [[], ["--dask", "local:2"]], ids=["processes", "dask"])
def test_ctrl_c_ends_at_once_and_leaves_nothing(read_apart, tmp_path, option):
    if option:
        pytest.importorskip("distributed")
    for number in range(100):
        shutil.copy(read_apart / "run_0.sqlite", read_apart / f"more_{number}.sqlite")
    variables, left = environment(tmp_path)
    session = in_terminal(
        ["report", str(read_apart), *option],
        [("Reading ranks", CTRL_C)],
        environment=variables,
    )
    assert session.status == 130
    assert "Traceback" not in session.text
    assert list(left.iterdir()) == []


def test_recordings_of_two_programs_are_told_to_be_read_alone(tmp_path, capsys):
    """Nothing connects them, so that nothing was found says nothing of either."""
    paths = []
    for name, every in (("one", 10_000), ("other", 12_000)):
        export = Export()
        for start in range(0, 6 * every, every):
            export.launch((start, start + 10), (start + 20, start + 9_000), name=f"kernel_{name}")
        paths.append(str(export.write(tmp_path / f"{name}.sqlite")))

    said = " ".join(told(capsys, *paths).out.split())

    assert "No collective connects these recordings, so no rank waits for another." in said
    assert "Read each alone (traceview report FILE)" in said
