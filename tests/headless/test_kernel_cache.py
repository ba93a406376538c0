"""The folder of compiled kernels that outlives a run."""

import os
import re
import shutil
import time

import pytest

import traceview
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


@pytest.mark.programs
@pytest.mark.parametrize("moved", [False, True])
def test_a_kept_kernel_is_recompiled_after_its_environment_moved(tmp_path, monkeypatch, moved):
    pytest.importorskip("triton")
    monkeypatch.setenv("TRACEVIEW_CACHE_DIR", str(tmp_path / "cache"))
    script = shutil.copy(REPOSITORY / "examples" / "gelu.py", tmp_path / "script.py")
    compile_python(str(script))
    kept = [
        path for path in tmp_path.glob("cache/triton/*/*/*.json") if "libdevice" in path.read_text()
    ]
    assert kept
    for path in kept if moved else ():
        path.write_text(
            re.sub(r'"[^"]*libdevice[.]10[.]bc"', '"/gone/libdevice.10.bc"', path.read_text())
        )
    reports = traceview.inspect_ptx(script).kernels
    assert any("recompiled with" in f.evidence.basis for r in reports for f in r.findings)
