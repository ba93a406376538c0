"""The built packages, installed in fresh environments, do what this checkout does."""

from __future__ import annotations

import json
import lzma
import shutil
import sys
import tarfile
from pathlib import Path

import pytest

from tests.install.conftest import RECORDING, Create
from tests.install.environments import ran, tool
from tests.zstd import compress
from traceview.base.version import __version__

pytestmark = pytest.mark.programs
OPTIONAL = {"nvtx", "torch", "triton"}


def test_pip_takes_the_wheel_of_this_machine(dist, wheel, python, tmp_path):
    """Out of all that are built, as it would from an index."""
    options = ["--no-index", "--no-deps", "--find-links", dist, "--dest", tmp_path]
    ran([python, "-m", "pip", "download", "--quiet", *options, "traceview"])
    assert [each.name for each in tmp_path.iterdir()] == [wheel.name]


def test_the_wheel_reports_what_the_checkout_reports(installed, expected_report):
    assert installed.traceview("--version") == f"traceview {__version__}\n"
    assert installed.library() == "ok"
    assert json.loads(installed.traceview("report", RECORDING, "--json")) == expected_report
    assert not installed.packages() & OPTIONAL


def test_an_archive_of_zstd_is_read(installed, tmp_path):
    """By the module of Python 3.14, or by the backport that older ones install."""
    archive = tmp_path / "training.sqlite.zst"
    archive.write_bytes(compress(lzma.decompress(RECORDING.read_bytes())))
    (read, expected) = (installed.traceview("report", each) for each in (archive, RECORDING))
    assert "steps of" in read
    assert read.splitlines()[1:] == expected.splitlines()[1:]


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler here")
def test_the_source_distribution_is_compiled(sdist, create):
    assert create(Path(sys.executable), sdist).library() == "ok"


def test_without_a_compiler_one_line_says_what_to_do(sdist, create, without_compiler):
    with pytest.raises(AssertionError) as raised:
        create(Path(sys.executable), sdist, variables=without_compiler)
    # pip wraps it for the terminal.
    shown = " ".join(str(raised.value).split())
    assert "traceview is built with a C compiler, which did not work here" in shown
    assert "apt install gcc" in shown
    assert "install a wheel" in shown


@pytest.mark.programs
def test_the_source_distribution_tests_itself(sdist, create: Create, tmp_path):
    """A part of the tests, of each kind: `make test` runs all."""
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.glob("traceview-*")
    environment = create(Path(sys.executable), sdist, "pytest", "hypothesis", "jsonschema")
    # pytest imports traceview from the folder that it runs in.
    ran([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=source)
    parts = ["test_tables.py", "trace/sqlite/test_c_decoder.py", "cli/test_main.py"]
    parts += ["docs/test_pages.py"]
    options = ["-q", "-x", "-p", "no:cacheprovider", "-k", "not facts and not demo"]
    command = [environment.python, "-m", "pytest", *options, *(f"tests/{part}" for part in parts)]
    assert " passed" in ran(command, cwd=source).splitlines()[-1]


@pytest.mark.parametrize("runner", ["uvx", "pipx"])
def test_it_runs_without_being_installed(runner, wheel, tmp_path, expected_report):
    options = {
        "uvx": ["--refresh-package", "traceview", "--from", wheel],
        "pipx": ["run", "--no-cache", "--spec", wheel],
    }
    command = [tool(runner), *options[runner], "traceview", "report", RECORDING, "--json"]
    assert json.loads(ran(command, cwd=tmp_path)) == expected_report


def test_a_plain_installation_has_no_large_surprise(installed):
    """Without compiled Python files; with them it is a third larger. Most is pandas and numpy."""
    files = [path for path in installed.folder.rglob("*") if path.is_file()]
    counted = [path for path in files if not path.is_symlink() and path.suffix != ".pyc"]
    assert 50e6 < sum(path.lstat().st_size for path in counted) < 260e6
