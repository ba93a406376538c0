"""CONTRIBUTING's recipes, each followed to the letter in a copy of the project."""

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


def steps(heading):
    """The three steps of a recipe."""
    text = (REPOSITORY / "CONTRIBUTING.md").read_text()
    return STEP.finditer(text.partition(f"## {heading}\n")[2].partition("\n## ")[0])


def copied(folder):
    # With what is compiled, which a copy of a module as old as it is can use, once it is whole.
    unfinished = shutil.ignore_patterns("*.pyc.*")
    for name in ("traceview", "tests"):
        shutil.copytree(REPOSITORY / name, folder / name, ignore=unfinished)
    shutil.copy(REPOSITORY / "pyproject.toml", folder)
    return folder


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A copy with the analysis and the finding: new files as written, the lines in their lists."""
    folder = copied(tmp_path_factory.mktemp("project"))
    file, line, test = steps("Add an analysis")
    rule, rule_test = steps("Add a finding")
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
        "traceview/traces/analyses/short_kernels.py",
        "tests/analyses/test_short_kernels.py",
        "traceview/traces/analyses/kernel_share/rules.py",
        "tests/analyses/kernel_share/test_transposition.py",
    )
    check_style(project, files)


def check_style(folder, files):
    run(folder, "ruff", "check", *files)
    run(folder, "ruff", "format", "--check", *files)


@pytest.fixture(scope="module")
def with_cause(tmp_path_factory):
    """A copy after the three steps: the record at the end of its file, the rule after the last."""
    folder = copied(tmp_path_factory.mktemp("cause"))
    record, rule, test = steps("Add a cause")
    with (folder / record["path"]).open("a", encoding="utf-8") as file:
        file.write(record["code"])
    rules = folder / rule["path"]
    before, end, after = rules.read_text().partition("    )\n    cause = np.select(")
    assert end
    assert rule["code"].count("\n") == 1
    rules.write_text(before + rule["code"] + end + after)
    (folder / test["path"]).write_text(test["code"])
    return folder


@pytest.mark.programs
def test_a_new_cause_touches_two_files(with_cause):
    tests = ("tests/facts/idle/test_slow_launch.py", "tests/vocabulary/test_records.py")
    said = run(with_cause, "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests)
    assert int(re.search(r"(\d+) passed", said)[1]) > 20


def test_the_files_of_a_cause_are_formatted(with_cause):
    check_style(with_cause, [step["path"] for step in steps("Add a cause")])


@pytest.fixture(scope="module")
def with_format(tmp_path_factory):
    """A copy after the three steps, with the line after the last one of its list."""
    folder = copied(tmp_path_factory.mktemp("format"))
    file, line, test = steps("Add a format")
    for step in (file, test):
        (folder / step["path"]).write_text(step["code"])
    forms = folder / line["path"]
    before, start, after = forms.read_text().partition("FORMATS = {\n")
    assert line["code"].count("\n") == 1
    forms.write_text(before + start + line["code"] + after)
    return folder


@pytest.mark.programs
def test_a_new_format_is_one_function_and_one_line(with_format):
    test = "tests/render/test_outline.py"
    said = run(with_format, "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", test)
    assert "1 passed" in said


def test_the_files_of_a_format_are_formatted(with_format):
    check_style(with_format, [step["path"] for step in steps("Add a format")])
