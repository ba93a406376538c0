"""What keeps a wheel from working on every machine of its platform is found before a release."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from tests.places import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "scripts"))
pytest.importorskip("elftools")

from packages.libraries import library_problems
from packages.platforms import PLATFORMS

MANYLINUX = next(each for each in PLATFORMS if each.tag == "manylinux_2_17_x86_64")
SOURCE = REPOSITORY / "traceview" / "traces" / "trace" / "sqlite" / "pages.c"
compiled = pytest.mark.skipif(
    not shutil.which("cc") or sys.platform != "linux", reason="no C compiler for Linux here"
)


def glibc() -> tuple[int, ...]:
    name, version = platform.libc_ver()
    return tuple(map(int, version.split("."))) if name == "glibc" else ()


def compile_library(folder: Path, source: str, *options: str) -> bytes:
    (folder / "library.c").write_text(source)
    command = ["cc", "-shared", "-fPIC", *options, "library.c", "-o", "library.so"]
    subprocess.run(command, cwd=folder, check=True)
    return (folder / "library.so").read_bytes()


def problems(library: bytes, **changes: object) -> list[str]:
    return list(library_problems(library, replace(MANYLINUX, **changes)))


@compiled
def test_a_library_for_another_machine_is_refused(tmp_path):
    library = compile_library(tmp_path, SOURCE.read_text())
    assert problems(library, machine="sparc")[0].startswith("compiled for ")


@compiled
@pytest.mark.skipif(glibc() < (2, 36), reason="the libc here is too old for arc4random")
def test_a_symbol_of_a_newer_libc_is_refused(tmp_path):
    source = SOURCE.read_text() + "\n#include <stdlib.h>\nint number(void) { return arc4random(); }"
    library = compile_library(tmp_path, source)
    assert problems(library) == ["needs version 2.36"]
    assert problems(library, newest_glibc=(2, 36)) == []


@compiled
def test_another_library_is_refused(tmp_path):
    library = compile_library(tmp_path, SOURCE.read_text(), "-Wl,--no-as-needed", "-lm")
    assert problems(library) == ["needs libc.so.6, libm.so.6"]


@compiled
def test_a_library_without_the_decoder_is_refused(tmp_path):
    (missing, *_) = problems(compile_library(tmp_path, "int nothing;"))[-3:]
    assert missing == "does not export traceview_interface"


@pytest.mark.parametrize("built", PLATFORMS, ids=lambda platform: platform.tag)
def test_the_built_libraries_are_fine_and_only_on_their_platform(dist, built):
    (path,) = dist.glob(f"*-py3-none-{built.tag}.whl")
    with zipfile.ZipFile(path) as wheel:
        library = wheel.read("traceview/traces/trace/sqlite/pages.so")
    assert not list(library_problems(library, built))
    for other in PLATFORMS:
        if other != built:
            assert list(library_problems(library, other))
