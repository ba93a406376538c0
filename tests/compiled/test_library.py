"""The C library: Python calls what C declares; where it cannot, one line says so."""

import ctypes
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import traceview
from tests.oracles.plain_library import PLAIN
from traceview.base.compiled import library
from traceview.base.errors import LibraryError

SOURCES = sorted(Path(traceview.__file__).parent.rglob("*.c"))
needs_compiler = pytest.mark.skipif(
    not shutil.which("cc") or sys.platform != "linux", reason="no C compiler for Linux here"
)
DECLARED = re.compile(
    r"^EXPORTED (const char \*|void |int )(traceview_\w+)\(([^)]*)\)", re.MULTILINE
)
RESULTS = {"const char *": "text", "void": "none", "int": "int"}
ARRAYS = {"int64_t": "i8", "uint64_t": "i8", "int32_t": "i4", "uint8_t": "u1", "void": "any"}


def build(folder: Path, *sources: Path) -> Path:
    built = folder / "library.so"
    flags = ["-std=c99", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run(["cc", *flags, *map(str, sources), "-o", str(built)], check=True)
    return built


@needs_compiler
def test_the_library_compiles_without_a_warning(tmp_path: Path) -> None:
    built = ctypes.CDLL(str(build(tmp_path, *SOURCES)))
    assert all(hasattr(built, name) for name in library._FUNCTIONS)


def kind_of(parameter: str) -> str:
    """How Python passes a parameter of C."""
    type_ = " ".join(parameter.split()[:-1]) + " *" * parameter.count("*")
    name = type_.replace("const ", "").replace("struct ", "").split()[0]
    if "*" not in type_:
        return {"int64_t": "n", "uint64_t": "u"}[name]
    return ("" if "const" in type_ else "=") + ARRAYS[name] if name in ARRAYS else "&"


def declared() -> Iterator[tuple[str, list[str]]]:
    for source in SOURCES:
        for result, name, parameters in DECLARED.findall(source.read_text()):
            kinds = [kind_of(each) for each in " ".join(parameters.split()).split(",")]
            yield name, [RESULTS[result.strip()], *kinds]


def test_functions_are_called_as_c_declares_them() -> None:
    in_c = dict(declared())
    assert in_c.keys() == library._FUNCTIONS.keys()
    for name, spelled in library._FUNCTIONS.items():
        kinds = spelled.split()
        assert len(kinds) == len(in_c[name]), name
        for kind, of_c in zip(kinds, in_c[name], strict=True):
            # One number may be written through its address; bytes are an array of them.
            alike = {("&", "=i8"), ("bytes", "u1")}
            assert kind == of_c or (kind, of_c) in alike, (name, kinds, in_c[name])


def test_every_function_has_a_plain_twin() -> None:
    assert PLAIN.keys() == library._FUNCTIONS.keys()


def test_arrays_are_converted_where_c_reads_and_refused_where_it_writes() -> None:
    numbers = np.arange(6, dtype=np.int16)[::2]
    found = np.zeros(3, np.int64)
    library.call("traceview_places", [0, 2] @ np.eye(2), 2, numbers, 3, 0, found)
    assert found.tolist() == [0, 1, 2]
    for wrong in (np.zeros(3, np.int32), np.zeros(6, np.int64)[::2]):
        with pytest.raises(ctypes.ArgumentError, match="C cannot write"):
            library.call("traceview_places", numbers, 3, numbers, 3, 0, wrong)


@pytest.fixture
def another(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    library._functions.cache_clear()
    yield monkeypatch
    monkeypatch.undo()
    library._functions.cache_clear()


def refused() -> LibraryError:
    with pytest.raises(LibraryError) as raised:
        library.check()
    text = str(raised.value)
    assert "\n" not in text
    assert str(library.PATH) in text
    assert "pip install" in raised.value.remedy
    return raised.value


def test_a_library_that_is_missing(another: pytest.MonkeyPatch, tmp_path: Path) -> None:
    another.setattr(library, "PATH", tmp_path / "pages.so")
    assert "is missing" in refused().what


def test_a_file_that_is_no_library(another: pytest.MonkeyPatch, tmp_path: Path) -> None:
    another.setattr(library, "PATH", tmp_path / "pages.so")
    library.PATH.write_text("no library")
    assert "cannot be used" in refused().what


def test_a_library_of_other_source(another: pytest.MonkeyPatch) -> None:
    another.setattr(library, "INTERFACE", library.INTERFACE + 1)
    assert "other source" in refused().what


@needs_compiler
def test_a_library_that_lacks_a_function(another: pytest.MonkeyPatch, tmp_path: Path) -> None:
    source = tmp_path / "old.c"
    source.write_text(f"const long traceview_interface = {library.INTERFACE};")
    another.setattr(library, "PATH", build(tmp_path, source))
    assert "cannot be used" in refused().what


def test_a_report_without_the_library_ends_with_one_line(tmp_path: Path) -> None:
    package = shutil.copytree(Path(traceview.__file__).parent, tmp_path / "traceview")
    (package / "traces/trace/sqlite/pages.so").unlink()
    recording = Path(traceview.__file__).parent.parent / "examples/training.sqlite.xz"
    command = [sys.executable, "-m", "traceview", "report", str(recording)]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env={"PATH": ""})
    assert (ran.returncode, ran.stdout) == (1, "")
    assert re.fullmatch(
        r"traceview: .*C library is missing: there is no .*; install .*\n", ran.stderr
    )
