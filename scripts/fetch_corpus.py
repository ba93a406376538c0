"""Fetch the kernels of public packages that tests/headless/corpus reads, into .cache/corpus.

Only their Python files are kept. A package that cannot be had is named and left out.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PINS = ROOT / "tests" / "headless" / "corpus" / "pins.txt"
CORPUS = ROOT / ".cache" / "corpus"
# What keeps a source distribution from building a CUDA extension just to name itself.
UNBUILT = {"FLASH_ATTENTION_SKIP_CUDA_BUILD": "TRUE", "MAMBA_SKIP_CUDA_BUILD": "TRUE"}


def main() -> None:
    for line in PINS.read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            folder, pin, *kind = line.split()
            if not (CORPUS / folder).is_dir() and not fetched(CORPUS / folder, pin, kind):
                print(f"make: {pin} cannot be had: its kernels are skipped")


def fetched(folder: Path, pin: str, kind: list[str]) -> bool:
    """Download one package and unpack its Python files; whether that worked."""
    how = ["--no-binary", ":all:"] if kind else ["--only-binary", ":all:"]
    with tempfile.TemporaryDirectory() as place:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *how]
        command += ["--no-build-isolation", "--dest", place, pin]
        if subprocess.run(command, env=os.environ | UNBUILT, check=False).returncode:
            return False
        for name, text in python_files(next(Path(place).iterdir())):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text)
    return True


def python_files(archive: Path) -> Iterator[tuple[str, bytes]]:
    """The Python files of a wheel, or of a source distribution without its top folder."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            yield from ((n, wheel.read(n)) for n in wheel.namelist() if wanted(n))
        return
    with tarfile.open(archive) as source:
        for member in source.getmembers():
            name = member.name.partition("/")[2]
            stream = source.extractfile(member) if wanted(name) else None
            if stream:
                yield name, stream.read()


def wanted(name: str) -> bool:
    return name.endswith((".py", "pyproject.toml")) and ".." not in Path(name).parts


if __name__ == "__main__":
    main()
