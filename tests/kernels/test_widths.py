"""How wide the kernels load, from their PTX: no GPU is needed to see it."""

import pytest

from tests.places import REPOSITORY
from traceview.kernels.headless.compile_options import CompileOptions
from traceview.kernels.inspect.python_targets import compile_python
from traceview.kernels.ptx.accesses import accesses
from traceview.kernels.ptx.parser import parse_ptx

pytestmark = pytest.mark.programs

pytest.importorskip("torch")
pytest.importorskip("triton")
pytest.importorskip("elftools")


def widths(name: str) -> list[set[tuple[str, int]]]:
    """Of each kernel and variant the kinds and widths of its accesses to global memory."""
    target = str(REPOSITORY / "kernels" / f"{name}.py")
    return [
        {
            (access.kind, access.width_bits)
            for function in parse_ptx(compiled.ptx).kernels()
            for access in accesses(function)
            if access.space == "global"
        }
        for compiled in compile_python(target, CompileOptions(arch="sm_90"))
    ]


@pytest.fixture(autouse=True)
def another_folder(tmp_path, monkeypatch):
    """Ask from another folder, as the file finds the rest of its package by itself."""
    monkeypatch.chdir(tmp_path)


WIDE = {("load", 128), ("store", 128)}


@pytest.mark.parametrize("name", ["add", "gelu", "softmax", "strided_copy", "layer_norm"])
def test_the_fast_kernels_load_and_store_128_bits(name):
    assert set(map(frozenset, widths(name))) == {frozenset(WIDE)}


def test_rows_of_2049_are_loaded_one_by_one():
    aligned, unaligned = widths("alignment")
    assert aligned == WIDE
    assert unaligned == {("load", 32), ("store", 32)}
