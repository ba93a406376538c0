"""The workflows for GitHub: each refers only to what is there, and every command can be run."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.places import REPOSITORY
from traceview.cli import VERBS

yaml = pytest.importorskip("yaml")

WORKFLOWS = sorted((REPOSITORY / ".github" / "workflows").glob("*.yml"))
# Commands of the shell, and tools that GitHub's machines have.
KNOWN = {"cd", "do", "done", "echo", "for", "gh", "git", "grep", "python", "python3"}
NEEDED = {"jobs", "name", "permissions"}
EXPRESSION = re.compile(r"\$\{\{\s*(.+?)\s*\}\}")


def workflow(path: Path) -> dict:
    return yaml.safe_load(path.read_text())


def jobs() -> list:
    return [
        pytest.param(path, name, job, id=f"{path.stem}-{name}")
        for path in WORKFLOWS
        for name, job in workflow(path)["jobs"].items()
    ]


def commands(job: dict) -> list[list[str]]:
    """The words of each command, without loops, subshells and what is behind a pipe."""
    runs = [step["run"] for step in job["steps"] if "run" in step]
    parts = [part for run in runs for part in re.split(r"\n|;|&&|\|", run) if part.strip()]
    return [shlex.split(part.strip(" ()").removeprefix("do ")) for part in parts]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_may_only_read_unless_a_job_says_more(path):
    content = workflow(path)
    assert set(content) >= NEEDED
    assert content["permissions"] == {"contents": "read"}


@pytest.mark.parametrize(("path", "name", "job"), jobs())
def test_a_job_refers_to_what_is_there(path, name, job):
    others = workflow(path)["jobs"]
    needs = job.get("needs", [])
    assert set([needs] if isinstance(needs, str) else needs) <= set(others) - {name}
    matrix = job.get("strategy", {}).get("matrix", {})
    for inside in EXPRESSION.findall(yaml.safe_dump(job)):
        room, _, key = inside.partition(".")
        assert room in {"github", "matrix"}
        assert room != "matrix" or key in matrix
    for step in job["steps"]:
        assert ("uses" in step) != ("run" in step)
        assert "uses" not in step or re.fullmatch(r"[\w-]+/[\w-]+@(v\d+|release/v1)", step["uses"])


@pytest.mark.parametrize(("path", "name", "job"), jobs())
def test_each_step_is_valid_shell(path, name, job):
    for step in job["steps"]:
        script = step.get("run", "")
        done = subprocess.run(["bash", "-n", "-c", script], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        # An expression in a script would be pasted into it, whatever it holds.
        assert "${{" not in script


@pytest.mark.parametrize(("path", "name", "job"), jobs())
def test_each_command_exists(path, name, job):
    for program, *words in commands(job):
        if program == "make":
            makefile = (REPOSITORY / "Makefile").read_text()
            assert re.search(rf"^{words[0]}:", makefile, re.MULTILINE)
        elif program == "traceview":
            assert words[0] in VERBS
        elif program.startswith((".ci/", "$RUNNER_TEMP/")):
            assert program.startswith("$") or (REPOSITORY / program).exists()
        else:
            assert program in KNOWN, program
        assert not missing_files(program, words)


def missing_files(program: str, words: list[str]) -> list[str]:
    """Paths of the repository among the words of a command that are not there."""
    if program == "git":
        return []
    paths = [word for word in words if re.match(r"(examples|scripts|tests)/", word)]
    return [path for path in paths if not (REPOSITORY / path).exists()]


def test_the_settings_of_the_gate_are_there():
    settings = workflow(REPOSITORY / ".github/workflows/gate.yml")["env"]
    assert set(settings) == {"TRACEVIEW", "PROGRAM", "RULES"}
    assert all((REPOSITORY / value).exists() for value in settings.values())


def test_the_page_on_the_gate_shows_the_workflow():
    page = (REPOSITORY / "docs" / "gate.md").read_text()
    shown = page.partition("```yaml\n")[2].partition("```")[0]
    assert shown == (REPOSITORY / ".github" / "workflows" / "gate.yml").read_text()


def test_the_oldest_python_is_tested():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    oldest = project["requires-python"].removeprefix(">=")
    tested = workflow(REPOSITORY / ".github/workflows/test.yml")["jobs"]["reader"]
    assert oldest in tested["strategy"]["matrix"]["python"]


def test_the_gate_checks_out_its_base_again_on_a_runner_that_keeps_the_checkout(tmp_path):
    """GitHub empties RUNNER_TEMP between jobs, and leaves what else is on a runner of one's own."""
    gate = workflow(REPOSITORY / ".github/workflows/gate.yml")["jobs"]["gate"]
    lines = [line for step in gate["steps"] for line in step.get("run", "").splitlines()]
    checkout = "\n".join(line for line in lines if line.startswith("git "))
    assert "worktree add" in checkout
    origin, clone, temporary = (tmp_path / name for name in ("origin", "clone", "runner_temp"))
    author = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    for words in (
        ["init", "-q", "-b", "main", origin],
        ["-C", origin, *author, "commit", "-q", "--allow-empty", "-m", "one"],
        ["clone", "-q", origin, clone],
    ):
        subprocess.run(["git", *words], check=True)
    settings = {**os.environ, "RUNNER_TEMP": str(temporary), "GITHUB_BASE_REF": "main"}
    for _ in range(2):
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        subprocess.run(["bash", "-e", "-c", checkout], cwd=clone, env=settings, check=True)
        assert (temporary / "base" / ".git").exists()
