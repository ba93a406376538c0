"""The steps of the Dockerfile, run in folders and virtual environments instead of an image."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from tests.install.conftest import RECORDING
from tests.install.environments import ran, tool
from tests.places import REPOSITORY

DOCKERFILE = REPOSITORY / "Dockerfile"


def instructions() -> list[list[str]]:
    """The words of each instruction; a line that ends in a backslash goes on."""
    text = DOCKERFILE.read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [line.split(maxsplit=1) for line in lines]


def values(name: str) -> list[str]:
    return [rest for key, rest in instructions() if key == name]


def test_it_runs_as_somebody_without_rights():
    assert values("USER") == ["1000"]
    assert "--uid 1000" in values("RUN")[-1]


def test_what_is_copied_is_there_and_not_ignored():
    kept = {line[1:] for line in ignored() if line.startswith("!")}
    copied = {word for line in values("COPY")[:2] for word in line.split()[:-1]}
    assert copied == kept
    assert all((REPOSITORY / name).exists() for name in copied)


def ignored() -> list[str]:
    return (REPOSITORY / ".dockerignore").read_text().splitlines()


@pytest.mark.programs
@pytest.mark.usefixtures("dist")
def test_the_image_reports_what_the_checkout_reports(expected_report, tmp_path):
    """Build the wheels from only what is copied, install only them, run the entry point."""
    source, wheels = tmp_path / "source", tmp_path / "wheels"
    source.mkdir()
    for line in values("COPY")[:2]:
        *names, _ = line.split()
        for name in names:
            copy(REPOSITORY / name, source / name)
    build, install, _ = values("RUN")
    python = environment(tmp_path / "build")
    run_step(build, python, source, wheels)
    python = environment(tmp_path / "image")
    run_step(install, python, tmp_path, wheels)
    assert not wheels.exists()
    (command,) = json.loads(values("ENTRYPOINT")[0])
    printed = ran([python.with_name(command), "report", RECORDING, "--json"], cwd=tmp_path)
    assert json.loads(printed) == expected_report
    assert "Usage: traceview" in ran([python.with_name(command), *json.loads(values("CMD")[0])])


def copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    else:
        shutil.copy(source, target)


def environment(folder: Path) -> Path:
    ran([tool("uv"), "venv", "--quiet", "--seed", "--python", sys.executable, folder])
    return folder / "bin" / "python"


def run_step(step: str, python: Path, folder: Path, wheels: Path) -> None:
    """Run a RUN instruction with an environment's pip, and with a folder here for /wheels.

    Nobody imports most modules of the packages: Python compiles those that are imported.
    """
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    variables = os.environ | {"PATH": path, "PIP_COMPILE": "0"}
    ran(["sh", "-c", re.sub(r"(?<!\S)/wheels", shlex.quote(str(wheels)), step)], folder, variables)
