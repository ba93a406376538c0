"""How wide the kernels load, from their PTX: no GPU is needed to see it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

pytest.importorskip("torch")
pytest.importorskip("triton")
pytest.importorskip("elftools")


def widths(name: str, folder: Path) -> dict[str, set[tuple[str, int]]]:
    """Of each kernel and variant the kinds and widths of its accesses to global memory.

    BenchRequest from another folder, as the file finds the rest of its package by itself.
    """
    target = REPOSITORY / "kernels" / f"{name}.py"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "traceview",
            "ptx",
            str(target),
            "--arch",
            "sm_90",
            "--budget",
            "600",
            "--json",
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return {
        f"{kernel['name']} {index}": {
            (access["kind"], access["width_bits"])
            for access in kernel["accesses"]
            if access["space"] == "global" and access["level"] == "ptx"
        }
        for index, kernel in enumerate(json.loads(done.stdout)["kernels"])
    }


WIDE = {("load", 128), ("store", 128)}


@pytest.mark.parametrize("name", ["add", "gelu", "softmax", "strided_copy", "layer_norm"])
def test_the_fast_kernels_load_and_store_128_bits(name, tmp_path):
    found = widths(name, tmp_path)
    assert set(map(frozenset, found.values())) == {frozenset(WIDE)}


def test_rows_of_2049_are_loaded_one_by_one(tmp_path):
    aligned, unaligned = widths("alignment", tmp_path).values()
    assert aligned == WIDE
    assert unaligned == {("load", 32), ("store", 32)}
