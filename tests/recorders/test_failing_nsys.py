"""Recordings under an nsys that fails, is not there, or cannot import."""

import os
import shutil
import sys

import pytest

from tests.recorders import fake_nsys
from tests.recorders.fake_nsys import leftovers, traceview


@pytest.fixture
def failing(tmp_path):
    """Record a script that needs nothing under a stand-in for nsys."""
    (tmp_path / "train.py").write_text("print()")

    def run(**how):
        tool = fake_nsys.nsys(tmp_path / "tools" / "nsys", **how)
        environment = {**os.environ, "TRACEVIEW_NSYS": str(tool)}
        words = ("record", "--backend", "nsys", "train.py")
        done = traceview(*words, cwd=tmp_path, environment=environment)
        assert not (tmp_path / "train.sqlite").exists()
        assert leftovers(tmp_path) == []
        assert "Traceback" not in done.stderr
        return done

    return run


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"version": "NVIDIA Nsight Systems version 2020.1"}, "or newer is needed"),
        ({"version": "something else"}, "is broken"),
        ({"profile": "echo no; exit 2"}, "nsys left no recording (exit status 2"),
        ({"profile": ": > ${out%.nsys-rep}.qdstrm"}, "nsys left no recording (exit status 0"),
        ({"profile": ": > $out", "export": "echo 'Not a report' >&2; exit 1"}, "Not a report"),
        ({"profile": ": > $out", "export": "exit 0"}, "cannot export"),
        ({"profile": ": > $out", "export": "echo half > $out"}, "SQLite cannot read"),
    ],
)
def test_a_recorder_that_fails_leaves_no_half_written_output(failing, how, said):
    done = failing(**how)
    assert done.returncode == 1
    assert said in done.stderr.splitlines()[-1]


RAW = "printf raw > ${out%.nsys-rep}.qdstrm"
IMPORTS = """echo once >> runs
[ $(wc -l < runs) -lt {runs} ] && {{ echo AnalysisStatus::SetNextState >&2; exit 1; }}
[ "$1 $3" = "-i -o" ] && mv "$2" "$4" """


def with_an_importer(tmp_path, runs):
    """Record under an nsys whose importer is asked in vain before that many runs."""
    (tmp_path / "train.py").touch()
    tool = fake_nsys.nsys(tmp_path / "tools/target/nsys", profile=RAW, export="exit 1")
    importer = tmp_path / "tools/host-linux-x64/QdstrmImporter"
    fake_nsys.script(importer, f'[ "$1" = --help ] && exit 0\n{IMPORTS.format(runs=runs)}')
    environment = {**os.environ, "TRACEVIEW_NSYS": str(tool)}
    return traceview("record", "train.py", cwd=tmp_path, environment=environment)


def test_a_recording_whose_import_fails_is_imported_again(tmp_path):
    done = with_an_importer(tmp_path, runs=2)
    assert (tmp_path / "runs").read_text().count("once") == 2
    assert done.stderr.count("could not import its raw recording; retrying") == 2
    assert "cannot export" in done.stderr.splitlines()[-1]
    assert not list(tmp_path.glob("*.qdstrm"))


def test_a_recording_that_cannot_be_imported_is_kept(tmp_path):
    for name in ("train.qdstrm", "train1.qdstrm"):
        done = with_an_importer(tmp_path, runs=99)
        assert done.returncode == 1
        last = done.stderr.splitlines()[-1]
        assert f"kept as {name}; run traceview doctor" in last
        assert last.endswith(f"import it: QdstrmImporter -i {name}")
        assert (tmp_path / name).read_text() == "raw"
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    assert leftovers(tmp_path) == []


STUMBLES = """for word; do case $word in --session-new=*) echo $word >> sessions;; esac; done
echo once >> runs; {started}[ $(wc -l < runs) -lt 3 ] && exit 1; : > $out"""


def runs_of_a_stumbling_nsys(tmp_path, words, started=""):
    (tmp_path / "train.py").touch()
    profile = STUMBLES.format(started=started)
    tool = fake_nsys.nsys(tmp_path / "tools" / "nsys", profile=profile, export="exit 1")
    with tool.with_name("options.txt").open("a") as options:
        options.write("\t--session-new=\n\n\t   Text.\n")
    environment = {**os.environ, "TRACEVIEW_NSYS": str(tool)}
    done = traceview("record", *words, cwd=tmp_path, environment=environment)
    assert done.returncode == 1
    return (tmp_path / "runs").read_text().count("once"), done.stderr


def test_an_nsys_that_fails_before_the_program_starts_is_tried_again(tmp_path):
    runs, said = runs_of_a_stumbling_nsys(tmp_path, ["train.py"])
    assert runs == 3
    assert said.count("before the program started; retrying") == 2
    assert "cannot export" in said.splitlines()[-1]
    # nsys keeps the session of an agent that it lost, and refuses another of that name.
    assert len(set((tmp_path / "sessions").read_text().split())) == 3


@pytest.mark.parametrize(
    ("words", "started"),
    [
        (["train.py"], ": > $TRACEVIEW_GATHER/started; "),
        (["--no-kernels", "train.py"], ""),
        ([sys.executable, "-I", "train.py"], ""),
        ([sys.executable], ""),
        (["true"], ""),
    ],
)
def test_a_program_that_may_have_run_is_not_run_twice(tmp_path, words, started):
    runs, said = runs_of_a_stumbling_nsys(tmp_path, words, started)
    assert runs == 1
    assert "nsys left no recording (exit status 1" in said.splitlines()[-1]


def test_without_nsys(tmp_path):
    (tmp_path / "train.py").write_text("open('ran', 'w')")
    environment = {**os.environ, "TRACEVIEW_NSYS": str(tmp_path / "nsys")}
    words = ("record", "--backend", "nsys", "train.py")
    done = traceview(*words, cwd=tmp_path, environment=environment)
    assert done.returncode == 1
    assert "No such file" in done.stderr
    assert not (tmp_path / "ran").exists()


def test_a_tool_that_cannot_import_is_refused_before_the_run(tmp_path):
    tool = fake_nsys.nsys(tmp_path / "host/target-linux-x64/nsys", profile="touch ran")
    (tmp_path / "host/linux-desktop-glibc_2_11_3-x64").mkdir()
    environment = {**os.environ, "TRACEVIEW_NSYS": str(tool)}
    done = traceview("record", "sh", cwd=tmp_path, environment=environment)
    assert done.returncode == 1
    assert "cannot find its importer" in done.stderr
    assert "run: ln -s linux-desktop-glibc_2_11_3-x64" in done.stderr
    assert shutil.which("ran", path=tmp_path) is None
