"""A release is made in a clone, and kept only when asked: here one of a small repository."""

from __future__ import annotations

import datetime
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.places import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "scripts"))

from packages.changelog import ChangelogError, latest, released

TODAY = datetime.date(2026, 11, 22)
CHANGELOG = "# Changelog\n\n## 0.2.0 (unreleased)\n\n- New.\n\n## 0.1.0 (2026-01-02)\n\n- Old.\n"


def test_the_topmost_section_is_released():
    text = released(CHANGELOG, "0.2.0", TODAY)
    assert latest(text) == ("0.2.0", "2026-11-22", "- New.")
    assert text.endswith("## 0.1.0 (2026-01-02)\n\n- Old.\n")


def test_the_version_is_the_one_asked_for():
    assert latest(released(CHANGELOG, "1.0.0", TODAY))[0] == "1.0.0"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (CHANGELOG.replace("unreleased", "2026-03-04"), "is 0.2.0 .2026-03-04. already"),
        (CHANGELOG.replace("- New.\n", ""), "says nothing of 0.2.0"),
        ("# Changelog\n", "has no heading"),
    ],
)
def test_what_cannot_be_released(text, said):
    with pytest.raises(ChangelogError, match=said):
        released(text, "0.2.0", TODAY)


def test_the_changelog_of_this_repository_has_a_newest_section():
    assert "\n- " in latest((REPOSITORY / "CHANGELOG.md").read_text())[2]


def test_the_newest_section_is_grouped():
    """A line belongs to the group of its command; only a summary stands before the groups."""
    summary = latest((REPOSITORY / "CHANGELOG.md").read_text())[2].partition("\n### ")[0]
    assert "- " not in summary


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with the real script, and packages that are quick to build and to test."""
    folder = tmp_path / "repository"
    shutil.copytree(REPOSITORY / "scripts" / "packages", folder / "scripts" / "packages")
    shutil.copy(REPOSITORY / "scripts" / "release.py", folder / "scripts")
    files = {
        ".gitignore": "__pycache__/\ndist/\n",
        "CHANGELOG.md": CHANGELOG,
        "traceview/base/version.py": '"""The version."""\n\n__version__ = "0.1.0"\n',
        "tests/install/test_dist.py": (
            "import os, pathlib\n\n\n"
            "def test_version():\n"
            "    (built,) = pathlib.Path(os.environ['TRACEVIEW_TEST_DIST']).iterdir()\n"
            "    assert '0.2.0' in built.read_text()\n"
        ),
        "scripts/build_packages.py": (
            "import pathlib\n"
            "pathlib.Path('dist').mkdir()\n"
            "version = pathlib.Path('traceview/base/version.py').read_text()\n"
            "pathlib.Path('dist/traceview.whl').write_text(version)\n"
        ),
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "init", "--quiet")
    git(folder, "config", "user.name", "Somebody")
    git(folder, "config", "user.email", "somebody@example.org")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "Start")
    return folder


def git(folder: Path, *words: str) -> str:
    command = ["git", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def release(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "scripts/release.py", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def test_a_trial_changes_nothing(repository):
    done = release(repository, "0.2.0")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("A trial of 0.2.0 went well. To release it, add --write.\n")
    assert "CHANGELOG.md" in done.stdout
    assert "traceview/base/version.py" in done.stdout
    assert git(repository, "log", "--format=%s") == "Start"
    assert git(repository, "tag") == git(repository, "status", "--porcelain") == ""
    assert not (repository / "dist").exists()


@pytest.mark.programs
def test_a_release_is_a_commit_a_tag_and_packages(repository):
    done = release(repository, "0.2.0", "--write")
    assert done.returncode == 0, done.stderr
    assert git(repository, "log", "--format=%s") == "Release 0.2.0\nStart"
    assert git(repository, "describe", "--exact-match") == "v0.2.0"
    assert '"0.2.0"' in (repository / "traceview/base/version.py").read_text()
    assert f"## 0.2.0 ({datetime.date.today()})" in (repository / "CHANGELOG.md").read_text()
    assert (repository / "dist" / "traceview.whl").exists()
    assert release(repository, "--notes").stdout == "- New.\n"
    assert "v0.2.0 is released already" in release(repository, "0.2.0").stderr


@pytest.mark.programs
def test_what_fails_in_the_clone_leaves_the_repository_alone(repository):
    done = release(repository, "0.3.0", "--write")
    assert done.returncode == 1
    assert "tests/install failed" in done.stderr
    assert git(repository, "log", "--format=%s") == "Start"
    assert git(repository, "tag") == ""


@pytest.mark.parametrize("words", [("0.2",), ("0.2.0", "--notes"), (), ("latest", "--write")])
def test_misuse(repository, words):
    assert release(repository, *words).returncode in (1, 2)


def test_uncommitted_changes_are_refused(repository):
    (repository / "notes.txt").write_text("not committed")
    done = release(repository, "0.2.0")
    assert (done.returncode, "uncommitted changes" in done.stderr) == (1, True)
