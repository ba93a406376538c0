"""What a recording notes of its surroundings."""

import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from tests.recorders import fake_nsys
from traceview.recorders import environment


def test_versions_of_the_python_that_runs_the_script():
    found = environment.python_versions(Path(sys.executable))
    assert found["python"] == platform.python_version()
    assert found["numpy"] == version("numpy")


def test_no_python_no_versions(tmp_path):
    assert environment.python_versions(None) == {}
    assert environment.python_versions(fake_nsys.script(tmp_path / "python", "exit 1")) == {}


def test_the_gpu_and_its_driver(tmp_path, monkeypatch):
    fake_nsys.script(
        tmp_path / "nvidia-smi", "echo 'NVIDIA H200, 580.159.04'; echo 'NVIDIA L4, 580'"
    )
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert environment.gpu_versions() == {"gpu": "NVIDIA H200, NVIDIA L4", "driver": "580.159.04"}
    fake_nsys.script(tmp_path / "nvidia-smi", "echo 'NVIDIA-SMI has failed, sorry'; exit 9")
    assert environment.gpu_versions() == {}


def test_the_commit_and_whether_it_was_changed(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("1\n")
    assert environment.git_commit(script) == {}
    who = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "x"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    clean = environment.git_commit(script)
    assert len(clean["git_commit"]) == 40
    assert clean["git_dirty"] == "no"
    script.write_text("2\n")
    assert environment.git_commit(script)["git_dirty"] == "yes"
