"""Check the files of a release: metadata, contents, and what the compiled libraries need."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from packages.build import REPOSITORY
from packages.libraries import library_problems
from packages.platforms import PLATFORMS

LIBRARY = "traceview/traces/trace/sqlite/pages.so"
# Sources of what ships built: of the page's script (render/templates/*.js), of the library.
SCRIPT_SOURCES = "traceview/render/script/"
LIBRARY_SOURCES = (".c", ".h")
# What setuptools adds to a source distribution, beside the folder egg-info.
WRITTEN = {"PKG-INFO", "setup.cfg"}


def problems(files: Sequence[Path]) -> list[str]:
    """Everything that is wrong with the files of a release, one line each."""
    lines = [*_metadata_problems(files)]
    for file in files:
        lines += (f"{file.name}: {each}" for each in _problems_of(file))
    return lines


def _metadata_problems(files: Sequence[Path]) -> Iterator[str]:
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, files)]
    process = subprocess.run(command, capture_output=True, text=True)
    if process.returncode:
        yield f"twine check --strict: {process.stdout}{process.stderr}"


def _problems_of(file: Path) -> Iterator[str]:
    if file.suffix == ".whl":
        yield from _wheel_problems(file)
    else:
        yield from _sdist_problems(file)


def _wheel_problems(file: Path) -> Iterator[str]:
    tag = file.stem.split("-", 2)[2]
    with zipfile.ZipFile(file) as wheel:
        names = set(wheel.namelist())
        stated = re.findall(r"^Tag: (.+)$", _text(wheel, names, "WHEEL"), re.MULTILINE)
        if stated != [tag]:
            yield f"tagged {stated}"
        expected = {name for name in _tracked("traceview") if not _is_source(name)}
        inside = {name for name in names if ".dist-info/" not in name} - {LIBRARY}
        yield from (f"{name} is missing" for name in sorted(expected - inside))
        yield from (f"{name} should not be there" for name in sorted(inside - expected))
        platform = {f"py3-none-{each.tag}": each for each in PLATFORMS}.get(tag)
        if platform is None or LIBRARY not in names:
            yield "lacks the C library of a platform"
        else:
            yield from library_problems(wheel.read(LIBRARY), platform)


def _is_source(name: str) -> bool:
    return name.startswith(SCRIPT_SOURCES) or name.endswith(LIBRARY_SOURCES)


def _text(wheel: zipfile.ZipFile, names: set[str], name: str) -> str:
    (path,) = (each for each in names if each.endswith(f".dist-info/{name}"))
    return wheel.read(path).decode()


def _sdist_problems(file: Path) -> Iterator[str]:
    with tarfile.open(file) as archive:
        files = [PurePosixPath(member.name) for member in archive if member.isfile()]
    inside = {str(path.relative_to(path.parts[0])) for path in files}
    expected = _tracked(".")
    yield from (f"{name} is missing" for name in sorted(expected - inside))
    for name in sorted(inside - expected):
        if name not in WRITTEN and not name.startswith("traceview.egg-info/"):
            yield f"{name} should not be there"


def _tracked(folder: str) -> set[str]:
    """Files of a folder that are under version control, or will be."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", folder]
    listed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return set(listed.stdout.splitlines())
