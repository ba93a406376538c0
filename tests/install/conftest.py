"""The built packages, and fresh environments to install them in: make test-install

Only what `make dist` wrote is installed, from the folder that TRACEVIEW_TEST_DIST names.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.install.environments import Environment, find_python, ran
from tests.places import REPOSITORY

RECORDING = REPOSITORY / "examples" / "training.sqlite.xz"
DIST = os.environ.get("TRACEVIEW_TEST_DIST")
OLDEST, NEWEST = (3, 11), (3, 14)
PYTHONS = [f"3.{minor}" for minor in range(OLDEST[1], NEWEST[1] + 1)]
Create = Callable[..., Environment]


@pytest.fixture(scope="session")
def dist() -> Path:
    """The folder with the built packages."""
    if not DIST:
        pytest.skip("no built packages: make test-install builds and installs them")
    return (REPOSITORY / DIST).resolve(strict=True)


@pytest.fixture(scope="session")
def sdist(dist: Path) -> Path:
    (path,) = dist.glob("*.tar.gz")
    return path


@pytest.fixture(scope="session")
def wheel(dist: Path) -> Path:
    """The wheel for this machine."""
    system = "macosx" if sys.platform == "darwin" else "manylinux"
    (path,) = dist.glob(f"*-py3-none-{system}_*_{platform.machine()}.whl")
    return path


@pytest.fixture(scope="session", params=PYTHONS)
def python(request: pytest.FixtureRequest) -> Path:
    """Each supported version of Python that is on this machine."""
    return find_python(request.param) or pytest.skip(f"no Python {request.param} here")


@pytest.fixture(scope="session")
def installed(python: Path, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The wheel in a fresh environment of that Python; tests leave it as it is."""
    return Environment.create(tmp_path_factory.mktemp("installed") / "environment", python, wheel)


@pytest.fixture
def create(tmp_path: Path) -> Create:
    """Make a fresh environment and install something there."""

    def created(python: Path, *requirements: str | Path, **options: object) -> Environment:
        return Environment.create(tmp_path / "environment", python, *requirements, **options)

    return created


@pytest.fixture(scope="session")
def expected_report() -> dict[str, object]:
    """What this checkout reports on the example recording."""
    command = [sys.executable, "-m", "traceview", "report", RECORDING, "--json"]
    return json.loads(ran(command))


@pytest.fixture(scope="session")
def without_compiler(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which no compiler can be found."""
    folder = tmp_path_factory.mktemp("tools")
    for tool in ("sh", "env", "uname", "ldd"):
        if found := shutil.which(tool):
            (folder / tool).symlink_to(found)
    # The cache has what was built with a compiler.
    environment = os.environ | {"PATH": str(folder), "UV_NO_CACHE": "1"}
    for name in ("CC", "CXX", "LDSHARED"):
        environment.pop(name, None)
    assert subprocess.run(
        ["sh", "-c", "cc || gcc"], env=environment, capture_output=True
    ).returncode
    return environment
