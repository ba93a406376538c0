"""Other versions of Triton than the installed one, each in a folder of the user's cache.

A folder holds one wheel without what it depends on, and comes before the installed packages on the
path: a script finds its PyTorch and its own packages, and that Triton.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from traceview.base import units
from traceview.base.errors import InputError, ToolNotFoundError
from traceview.base.outputs import cache_folder, private_folder
from traceview.base.records import record

_VERSION = re.compile(r"\d+(?:\.\d+){0,3}(?:(?:a|b|rc|\.post|\.dev)\d+)?")
_KNOWN = re.compile(r"from versions: (?P<versions>[^)]*)\)")
_ERROR = re.compile(r"^\s*(?:ERROR: |error: |× )(?P<text>.+)$", re.MULTILINE)
_OFFLINE = re.compile("Retrying|NewConnectionError|Could not fetch URL")
_MOST_NAMES = 6
_INSTALL_S = 1800.0
# The folder of the package is not on this path, as for the scripts of a user.
_ABOUT = (
    "import importlib.metadata as m, importlib.util as u, json, sys\n"
    "of = {d.metadata['Name']: d.version for d in m.distributions() if d.metadata['Name']}\n"
    "print(json.dumps([sys.implementation.cache_tag, of.get('triton', ''),"
    " bool(u.find_spec('pip'))]))"
)


@record
class Interpreter:
    """The Python that runs scripts: its ABI's tag, and the version of its Triton, "" for none."""

    path: str
    tag: str
    triton: str
    has_pip: bool


@cache
def interpreter(python: str) -> Interpreter:
    """Ask a Python about itself. Raises ToolNotFoundError if it cannot be run."""
    try:
        answer = subprocess.run(  # noqa: S603 (the Python that runs the scripts of the user)
            [python, "-P", "-c", _ABOUT], capture_output=True, text=True, check=True
        )
        tag, triton, has_pip = json.loads(answer.stdout)
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        what = f"{python} cannot run: {getattr(error, 'strerror', None) or error}"
        raise ToolNotFoundError(what, "correct $TRACEVIEW_PYTHON") from None
    return Interpreter(python, tag, triton, has_pip)


def check_version(version: str) -> None:
    """Raise InputError unless a text has the form of a version, such as 3.7.1."""
    if not _VERSION.fullmatch(version):
        raise InputError(f"{version[:40]!r} is not a version of Triton", "pass, for example, 3.7.1")


def same_version(one: str, other: str) -> bool:
    """Whether two texts name one version: 3.9 is 3.9.0."""
    return _short(one) == _short(other)


def _short(version: str) -> str:
    return re.sub(r"(\.0)+$", "", version)


def folder_of(version: str, python: str, note: Callable[[str], None]) -> Path | None:
    """The folder of a version, to put on the path; None for the installed one.

    One that is not there yet is downloaded from the package index that pip, else uv, is set up for;
    `note` gets a line before and one after. Raises InputError for a version that does not exist,
    ToolNotFoundError if it cannot be downloaded.
    """
    check_version(version)
    about = interpreter(python)
    if same_version(version, about.triton):
        return None
    try:
        named = os.environ.get("TRACEVIEW_CACHE_DIR")
        root = private_folder(Path(named), "tritons") if named else cache_folder("tritons")
        folder = root / f"{_short(version)}-{about.tag}"
        if not (folder / "triton" / "__init__.py").is_file():
            note(f"downloading Triton {version} (about 200 MB) into {folder}")
            _install(version, about, folder)
            size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
            note(f"Triton {version} takes {units.size(size)} there and is kept; delete it at will")
    except OSError as error:
        what = f"Triton {version} cannot be stored: {error.strerror or error}"
        raise ToolNotFoundError(what, "set $TRACEVIEW_CACHE_DIR to a folder with space") from None
    return folder


def _install(version: str, about: Interpreter, folder: Path) -> None:
    # Another run sees the folder whole or not at all.
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="part-") as part:
        target = Path(part, "triton")
        command = [*_installer(about), "--target", str(target), f"triton=={version}"]
        result = subprocess.run(  # noqa: S603 (pip or uv, with a checked version)
            command, capture_output=True, text=True, timeout=_INSTALL_S, check=False
        )
        if result.returncode:
            raise _failure(version, result.stderr, folder)
        shutil.rmtree(folder, ignore_errors=True)
        target.rename(folder)


def _installer(about: Interpreter) -> list[str]:
    if about.has_pip:
        quiet = ("--quiet", "--disable-pip-version-check", "--no-input", "--retries", "1")
        return [about.path, "-m", "pip", "install", "--no-deps", *quiet]
    uv = shutil.which("uv")
    if uv is None:
        what = f"{about.path} has no pip, and there is no uv to download Triton with"
        raise ToolNotFoundError(what, "install one of them")
    return [uv, "pip", "install", "--no-deps", "--quiet", "--python", about.path]


def _failure(version: str, log: str, folder: Path) -> InputError | ToolNotFoundError:
    """The error for what pip or uv printed; an index out of reach lists no versions."""
    known = _KNOWN.search(log)
    versions = [] if known is None else known["versions"].split(", ")
    if versions and versions != ["none"] and not _OFFLINE.search(log):
        newest = ", ".join(reversed(versions[-_MOST_NAMES:]))
        what = f"there is no Triton {version} for this Python"
        return InputError(what, f"the newest are {newest}")
    lines = [line["text"].strip() for line in _ERROR.finditer(log)]
    reason = "no package index answers" if known else (lines[:1] or ["pip failed"])[0][:200]
    remedy = f"connect, or put it there yourself: pip install --no-deps --target {folder} triton=="
    return ToolNotFoundError(f"Triton {version} cannot be downloaded: {reason}", remedy + version)
