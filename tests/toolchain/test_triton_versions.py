"""Folders of other Triton versions: reused, downloaded once, and one line for what fails."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from traceview.base.errors import InputError, ToolNotFoundError
from traceview.kernels.toolchain import triton_versions
from traceview.kernels.toolchain.triton_versions import (
    Interpreter,
    check_version,
    folder_of,
    same_version,
)

UNKNOWN = (
    "ERROR: Could not find a version that satisfies the requirement triton==9.9 "
    "(from versions: 3.6.0, 3.7.0, 3.7.1)\nERROR: No matching distribution found for triton==9.9\n"
)
OFFLINE = (
    "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError'\n"
    "ERROR: Could not find a version that satisfies the requirement triton==9.9 "
    "(from versions: none)\n"
)


@pytest.fixture
def pip(monkeypatch, tmp_path):
    """The commands that a stub of pip is called with; it fails with `error` if that is set."""
    calls = SimpleNamespace(commands=[], error="")

    def run(command, **_):
        calls.commands.append(command)
        if not calls.error:
            package = Path(command[command.index("--target") + 1], "triton")
            package.mkdir(parents=True)
            (package / "__init__.py").touch()
        return subprocess.CompletedProcess(command, bool(calls.error), "", calls.error)

    monkeypatch.setenv("TRACEVIEW_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(triton_versions.subprocess, "run", run)
    about = Interpreter("python", "cpython-311", "3.7.1", has_pip=True)
    monkeypatch.setattr(triton_versions, "interpreter", lambda _: about)
    return calls


def test_a_version_is_downloaded_once_into_a_private_folder(pip, tmp_path):
    notes = []
    folder = folder_of("3.6.0", "python", notes.append)
    assert folder == tmp_path / "tritons" / "3.6-cpython-311"
    assert (folder.parent.stat().st_mode & 0o777) == 0o700
    assert [note.split(" (")[0] for note in notes] == [
        "downloading Triton 3.6.0",
        "Triton 3.6.0 takes 0 B there and is kept; delete it at will",
    ]
    assert folder_of("3.6", "python", notes.append) == folder
    assert (len(pip.commands), len(notes)) == (1, 2)
    assert "triton==3.6.0" in pip.commands[0]
    assert list(folder.parent.iterdir()) == [folder]


def test_the_installed_version_needs_no_folder(pip):
    assert folder_of("3.7.1", "python", pytest.fail) is None


@pytest.mark.parametrize(
    ("log", "kind", "text"),
    [
        (UNKNOWN, InputError, "there is no Triton 9.9 for this Python; the newest are 3.7.1, 3.7"),
        (OFFLINE, ToolNotFoundError, "Triton 9.9 cannot be downloaded: no package index answers; "),
        ("error: no space left\n", ToolNotFoundError, "cannot be downloaded: no space left; "),
        ("", ToolNotFoundError, ""),
    ],
)
def test_failures_are_one_line_and_leave_nothing(pip, tmp_path, log, kind, text):
    pip.error = log or "?"
    with pytest.raises(kind) as caught:
        folder_of("9.9", "python", lambda _: None)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list((tmp_path / "tritons").iterdir()) == []


def test_without_pip_uv_is_taken(pip, monkeypatch):
    about = Interpreter("python", "cpython-311", "", has_pip=False)
    monkeypatch.setattr(triton_versions, "interpreter", lambda _: about)
    monkeypatch.setattr(triton_versions.shutil, "which", lambda _: "/bin/uv")
    folder_of("3.6.0", "python", lambda _: None)
    assert pip.commands[0][:3] == ["/bin/uv", "pip", "install"]
    monkeypatch.setattr(triton_versions.shutil, "which", lambda _: None)
    with pytest.raises(ToolNotFoundError, match="no uv"):
        folder_of("3.9", "python", lambda _: None)


def test_versions():
    assert same_version("3.9", "3.9.0")
    assert not same_version("3.6", "3.60")
    for good in ("3.6.0", "3.9", "3.7.1.post1", "3.8.0rc1", "3.8.0.dev3"):
        check_version(good)
    for bad in ("", "new", "3.6.0; rm", "--target", "3.6 "):
        with pytest.raises(InputError):
            check_version(bad)


def test_a_python_that_does_not_run():
    assert triton_versions.interpreter(sys.executable).tag == sys.implementation.cache_tag
    with pytest.raises(ToolNotFoundError, match="correct \\$TRACEVIEW_PYTHON"):
        triton_versions.interpreter("/no/python")
