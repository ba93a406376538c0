"""Build the source distribution, and every wheel from it: never from the working tree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from packages.platforms import PLATFORMS, Platform

REPOSITORY = Path(__file__).resolve().parent.parent.parent


class BuildError(Exception):
    """A file of the release could not be built; the message ends with what the tool said."""


def build_all(out: Path) -> list[Path]:
    """Write the source distribution and one wheel per platform to a folder."""
    sdist = build_sdist(out)
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        wheels = threads.map(lambda platform: build_wheel(sdist, out, platform), PLATFORMS)
        return [sdist, *wheels]


def build_sdist(out: Path) -> Path:
    """Write the source distribution of the working tree to a folder."""
    return _build(REPOSITORY, out, ["--sdist"])


def build_wheel(sdist: Path, out: Path, platform: Platform) -> Path:
    """Write the wheel of a platform, built from a source distribution."""
    with TemporaryDirectory() as folder:
        with tarfile.open(sdist) as archive:
            archive.extractall(folder, filter="data")
        (source,) = Path(folder).iterdir()
        tag = f"-C--build-option=--plat-name={platform.tag}"
        return _build(source, out, ["--wheel", tag], _compiler(platform))


def _compiler(platform: Platform) -> dict[str, str]:
    compiler = f"{sys.executable} -m ziglang cc -target {platform.target}"
    # The flags of this machine's Python may be no flags of another system's linker.
    flags = {"CFLAGS": "-fPIC -Wall", "CPPFLAGS": "", "LDFLAGS": ""}
    return {"CC": compiler, "LDSHARED": f"{compiler} -shared -s", **flags}


def _build(
    source: Path, out: Path, options: Sequence[str], environment: Mapping[str, str] | None = None
) -> Path:
    """Run `python -m build` with an output folder of its own, and move the file that it wrote."""
    with TemporaryDirectory() as folder:
        process = subprocess.run(
            [sys.executable, "-m", "build", *options, "--outdir", folder, str(source)],
            env=os.environ | (environment or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if process.returncode:
            raise BuildError(f"{' '.join(options)} failed:\n{process.stdout[-4000:]}")
        (built,) = Path(folder).iterdir()
        out.mkdir(parents=True, exist_ok=True)
        return Path(shutil.move(built, out / built.name))
