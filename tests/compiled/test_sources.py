"""The sources of the library compile without a warning, and hold what Python calls."""

import ctypes
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import traceview
from traceview.compiled import library

SOURCES = sorted(Path(traceview.__file__).parent.rglob("*.c"))


@pytest.mark.skipif(
    not shutil.which("cc") or sys.platform != "linux", reason="no C compiler for Linux here"
)
def test_the_library_compiles_without_a_warning(tmp_path: Path) -> None:
    built = tmp_path / "library.so"
    flags = ["-std=c99", "-O3", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run(["cc", *flags, *map(str, SOURCES), "-o", str(built)], check=True)
    assert all(hasattr(ctypes.CDLL(str(built)), name) for name in library._RESULTS)


def test_a_function_that_is_not_there_or_switched_off_is_not_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert not library.has("traceview_unknown")
    monkeypatch.setenv(library.SWITCH, "1")
    assert not library.has("traceview_nest")
