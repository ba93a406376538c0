"""From SCRIPT [ARGS...] to a command, and which Python will run it."""

import sys
from pathlib import Path

import pytest

from tests.recorders import fake_nsys
from traceview.base.errors import InputError
from traceview.traces.recorders.job import command_of, python_of, script_of


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_python_file_is_run_by_this_python(folder):
    Path("train.py").touch()
    assert command_of(["train.py", "--name", "a b"]) == [
        sys.executable,
        "train.py",
        "--name",
        "a b",
    ]


def test_a_program_is_run_as_it_is(folder):
    tool = fake_nsys.script(folder / "a.out", "true")
    assert command_of([str(tool), "x"]) == [str(tool), "x"]
    assert command_of(["sh", "-c", "true"])[1:] == ["-c", "true"]


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("missing.py", "script missing.py does not exist"),
        ("missing", "program missing was not found"),
        ("./plain", "neither a .py file nor executable; run: chmod"),
    ],
)
def test_what_cannot_run(folder, word, said):
    Path("plain").touch()
    with pytest.raises(InputError, match=said):
        command_of([word])


def test_the_script_within_a_command():
    assert script_of(["python", "-u", "train.py", "x"]) == Path("train.py")
    assert script_of(["./a.out", "x"]) == Path("a.out")


def test_the_python_of_a_command(folder):
    named = fake_nsys.script(folder / "torchrun", "true")
    named.write_text(f"#!{sys.executable} -sE\nprint()\n")
    by_env = fake_nsys.script(folder / "tool", "true")
    by_env.write_text("#!/usr/bin/env python3\nprint()\n")
    assert python_of([sys.executable, "x.py"]) == Path(sys.executable)
    assert python_of([str(named)]) == Path(sys.executable)
    assert python_of([str(by_env)]).name == "python3"
    assert python_of([str(fake_nsys.script(folder / "a.out", "true"))]) is None
    assert python_of(["no-such-program"]) is None


@pytest.mark.parametrize("name", ["python", "python3.13", "python3.13t", "python3.14d", "pypy3"])
def test_a_python_is_told_by_its_name_free_threaded_ones_too(folder, name):
    assert python_of([str(fake_nsys.script(folder / name, "true"))]).name == name
