"""Fresh virtual environments, made and filled by uv."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

SECONDS = 300


def ran(
    command: Sequence[str | Path], cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> str:
    """Run a command that must succeed, and return what it wrote to stdout."""
    done = subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def tool(name: str) -> Path:
    """A tool of the extra `release`, or one on the PATH."""
    places = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    found = shutil.which(name, path=places)
    return Path(found) if found else pytest.skip(f"no {name} here")


def find_python(version: str) -> Path | None:
    """A Python of a minor version: on the PATH, or one of pyenv."""
    named = shutil.which(f"python{version}")
    kept = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    program = f"import sys; sys.exit('{version}' != '%d.%d' % sys.version_info[:2])"
    for python in (named, *kept):
        if python and not subprocess.run([python, "-c", program], capture_output=True).returncode:
            return Path(python)
    return None


@dataclass(frozen=True)
class Environment:
    """A virtual environment with traceview in it."""

    folder: Path
    variables: Mapping[str, str]

    @classmethod
    def create(
        cls,
        folder: Path,
        python: Path,
        *requirements: str | Path,
        variables: Mapping[str, str] | None = None,
    ) -> Environment:
        made = cls(folder, os.environ if variables is None else variables)
        uv = tool("uv")
        ran([uv, "venv", "--quiet", "--python", python, folder])
        into = ["--python", made.python]
        ran([uv, "pip", "install", "--quiet", *into, *requirements], env=made.variables)
        return made

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def traceview(self, *arguments: str | Path) -> str:
        """Run the installed command outside the repository."""
        command = [self.folder / "bin" / "traceview", *arguments]
        return ran(command, cwd=self.folder, env=self.variables)

    def library(self) -> str:
        """Whether the installed package has its C library."""
        checks = json.loads(self.traceview("doctor", "--json"))["checks"]
        (status,) = (check["status"] for check in checks if check["name"] == "C library")
        return status

    def packages(self) -> set[str]:
        """Names of the installed distributions."""
        listed = ran([tool("uv"), "pip", "list", "--python", self.python, "--format", "json"])
        return {package["name"] for package in json.loads(listed)}
