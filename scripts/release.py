"""Make a release: version, changelog, packages, checks, commit and tag.

    python scripts/release.py 0.2.0            # a trial: everything, in a clone that is thrown away
    python scripts/release.py 0.2.0 --write    # also keep the commit, the tag and dist/
    python scripts/release.py --notes          # print the newest section of the changelog

Nothing is pushed or uploaded: .github/workflows/release.yml publishes a tag that is pushed. Both
ways do the same in a clone of HEAD, so that what is released is what was tried.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from packages.build import REPOSITORY
from packages.changelog import ChangelogError, latest, released

VERSION = re.compile(r"\d+\.\d+\.\d+((a|b|rc)\d+)?")
VERSION_FILE, CHANGELOG = Path("traceview/base/version.py"), Path("CHANGELOG.md")


class ReleaseError(Exception):
    """The release cannot be made; nothing was changed."""


def main() -> None:
    options = _options()
    try:
        if options.notes:
            print(latest((REPOSITORY / CHANGELOG).read_text("utf-8"))[2])
        else:
            release(options.version, options.write)
    except (ReleaseError, ChangelogError) as error:
        sys.exit(f"release: {error}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Make a release.")
    parser.add_argument("version", nargs="?", help="such as 0.2.0 or 0.2.0rc1")
    parser.add_argument("--write", action="store_true", help="keep commit, tag and dist/")
    parser.add_argument("--notes", action="store_true", help="print the newest section")
    options = parser.parse_args()
    if bool(options.version) == options.notes:
        parser.error("pass either a version or --notes")
    return options


def release(version: str, write: bool) -> None:
    """Make the release in a clone, and keep it or not. Raises ReleaseError, ChangelogError."""
    check(version)
    with TemporaryDirectory() as folder:
        clone = Path(folder, "traceview")
        run("git", "clone", "--quiet", REPOSITORY, clone, cwd=REPOSITORY)
        commit(clone, version)
        run(sys.executable, "scripts/build_packages.py", cwd=clone)
        run(sys.executable, "-m", "pytest", "-q", "tests/install", cwd=clone, dist="dist")
        run(
            "git",
            "tag",
            "--annotate",
            f"v{version}",
            "--message",
            f"traceview {version}",
            cwd=clone,
        )
        if write:
            keep(clone, version)
        else:
            print(run("git", "show", "--stat", "--format=%s", "HEAD", cwd=clone))
            print(f"A trial of {version} went well. To release it, add --write.")


def check(version: str) -> None:
    """Raise ReleaseError where the version or the working tree is not fit for a release."""
    if not VERSION.fullmatch(version):
        raise ReleaseError(f"{version!r} is not a version such as 0.2.0 or 0.2.0rc1")
    if run("git", "tag", "--list", f"v{version}", cwd=REPOSITORY):
        raise ReleaseError(f"v{version} is released already")
    if changed := run("git", "status", "--porcelain", cwd=REPOSITORY):
        raise ReleaseError(f"there are uncommitted changes:\n{changed}")


def commit(clone: Path, version: str) -> None:
    """Commit the version and the date of the release."""
    changelog = clone / CHANGELOG
    text = released(changelog.read_text("utf-8"), version, datetime.date.today())
    changelog.write_text(text, "utf-8")
    source = clone / VERSION_FILE
    text, count = re.subn(r'(?<=__version__ = ").*(?=")', version, source.read_text("utf-8"))
    assert count == 1
    source.write_text(text, "utf-8")
    for name in ("user.name", "user.email"):
        run("git", "config", name, run("git", "config", name, cwd=REPOSITORY), cwd=clone)
    run("git", "commit", "--quiet", "--all", "--message", f"Release {version}", cwd=clone)


def keep(clone: Path, version: str) -> None:
    """Bring commit, tag and packages from the clone into the repository."""
    run("git", "fetch", "--quiet", "--tags", clone, "HEAD", cwd=REPOSITORY)
    run("git", "merge", "--quiet", "--ff-only", "FETCH_HEAD", cwd=REPOSITORY)
    shutil.rmtree(REPOSITORY / "dist", ignore_errors=True)
    shutil.copytree(clone / "dist", REPOSITORY / "dist")
    print(f"Wrote dist/, and the tag v{version}. Publish them: git push --follow-tags")


def run(*command: str | Path, cwd: Path, dist: str = "") -> str:
    """Run a command; return what it printed. Raises ReleaseError with that if it fails."""
    environment = os.environ | ({"TRACEVIEW_TEST_DIST": dist} if dist else {})
    process = subprocess.run(
        command, cwd=cwd, env=environment, text=True, capture_output=True, check=False
    )
    if process.returncode:
        shown = " ".join(map(str, command))
        raise ReleaseError(f"{shown} failed:\n{process.stdout[-4000:]}{process.stderr[-4000:]}")
    return process.stdout.strip()


if __name__ == "__main__":
    main()
