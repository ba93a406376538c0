"""CONTRIBUTING's recipes, followed to the letter in a copy of the project."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.places import REPOSITORY

STEP = re.compile(
    r"^\*\*\d\. The \w+\*\*,.*?`(?P<path>[\w/]+\.py)`.*?^```(?:python|text)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A copy of the project after the three steps: new files as written, the line in the list."""
    folder = tmp_path_factory.mktemp("project")
    # With what is compiled, which a copy of a module as old as it is can use, once it is whole.
    unfinished = shutil.ignore_patterns("*.pyc.*")
    for name in ("traceview", "tests"):
        shutil.copytree(REPOSITORY / name, folder / name, ignore=unfinished)
    shutil.copy(REPOSITORY / "pyproject.toml", folder)
    steps = STEP.finditer((REPOSITORY / "CONTRIBUTING.md").read_text())
    file, line, test, rule, rule_test = steps
    rules = folder / rule["path"]
    written = rules.read_text()
    assert written.count('\n)\n"""All rules') == 1
    rules.write_text(written.replace('\n)\n"""All rules', f'\n{rule["code"]})\n"""All rules'))
    for step in (file, test, rule_test):
        assert not (folder / step["path"]).exists()
        (folder / step["path"]).write_text(step["code"])
    listing = folder / line["path"]
    *_, last = re.finditer(r'^    "\w+",\n', listing.read_text(), re.MULTILINE)
    assert line["code"].count("\n") == 1
    listing.write_text(listing.read_text().replace(last[0], last[0] + line["code"]))
    return folder


def run(folder, *words):
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.programs
def test_its_test_and_the_contracts_of_all_analyses_pass(project):
    contracts = "tests/contracts/test_analyses.py"
    said = run(
        project,
        *("pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"),
        *(contracts, "tests/analyses/test_short_kernels.py", "tests/test_architecture.py"),
        *("-k", "short or every_file or point_down or (trace and mlp_sync and short)"),
    )
    assert int(re.search(r"(\d+) passed", said)[1]) > 40


@pytest.mark.programs
def test_a_rule_is_one_record(project):
    test = "tests/analyses/kernel_share/test_transposition.py"
    said = run(project, "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", test)
    assert "1 passed" in said


def test_the_command_line_knows_it(project):
    words = ("report", str(REPOSITORY / "examples/training.sqlite.xz"), "--only", "short-kernels")
    assert "under 10 µs" in run(project, "traceview", *words)


def test_its_files_are_formatted(project):
    files = (
        "traceview/analyses/short_kernels.py",
        "tests/analyses/test_short_kernels.py",
        "traceview/analyses/kernel_share/rules.py",
        "tests/analyses/kernel_share/test_transposition.py",
    )
    run(project, "ruff", "check", *files)
    run(project, "ruff", "format", "--check", *files)
