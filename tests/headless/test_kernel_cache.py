"""The folder of compiled kernels that outlives a run."""

import os
import shutil
import time

import pytest

from tests.places import REPOSITORY
from traceview.kernels.headless import client
from traceview.kernels.inspect.python_targets import compile_python


def test_the_cache_lies_where_the_user_wants_it(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACEVIEW_CACHE_DIR", str(tmp_path / "kept"))
    assert client.kernel_cache("a.py").parent == tmp_path / "kept" / "triton"
    monkeypatch.delenv("TRACEVIEW_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert client.kernel_cache("a.py").parent == tmp_path / "traceview" / "triton"
    monkeypatch.setenv("TRACEVIEW_CACHE_DIR", "")
    assert client.kernel_cache("a.py") is None


def test_a_folder_that_cannot_be_made_is_no_cache(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("TRACEVIEW_CACHE_DIR", str(tmp_path / "file"))
    assert client.kernel_cache("a.py") is None


def test_the_oldest_kernels_go_and_those_in_use_stay(tmp_path):
    now = time.time()
    for name, age_s in (("a/oldest", 9e4), ("b/older", 8e4), ("a/young", 60)):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "kernel.cubin").write_bytes(b"0" * 1000)
        os.utime(tmp_path / name, (now - age_s, now - age_s))
    client._shrink(tmp_path, 2000)
    assert {path.name for path in tmp_path.glob("*/*")} == {"older", "young"}
    client._shrink(tmp_path, 0)
    assert {path.name for path in tmp_path.glob("*/*")} == {"young"}


def test_a_kernel_in_two_files_names_its_own(tmp_path, monkeypatch):
    pytest.importorskip("triton")
    monkeypatch.setenv("TRACEVIEW_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("first.py", "second.py"):
        copy = shutil.copy(REPOSITORY / "examples" / "gelu.py", tmp_path / name)
        compiled, *_ = compile_python(str(copy))
        assert name in compiled.ptx
