"""Caches: private whoever made them first and whatever the umask says."""

import os
import sqlite3
import stat
from contextlib import closing

import pytest

from tests.build import Export
from traceview.base.outputs import cache_folder, private_file
from traceview.kernels.headless import client
from traceview.traces.recorders import nsys as exports
from traceview.traces.trace.load import load
from traceview.traces.trace.scrub.facts import remove_environment


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def umask(request):
    before = os.umask(request.param)
    yield
    os.umask(before)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("before", [None, 0o755, 0o777])
@pytest.mark.usefixtures("umask")
def test_folders_and_files_of_every_cache_are_private(before, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("TRACEVIEW_CACHE_DIR", raising=False)
    if before is not None:
        for name in ("traceview", "traceview/triton"):
            (tmp_path / name).mkdir()
            (tmp_path / name).chmod(before)
    kernels = client.kernel_cache("a.py")
    (kernels / "kernel").mkdir()
    (kernels / "kernel" / "k.cubin").write_bytes(b"0")
    client.kernel_cache("a.py")
    for path in (tmp_path / "traceview").rglob("*"):
        assert mode(path) == (0o700 if path.is_dir() else 0o600), path
    assert mode(tmp_path / "traceview") == 0o700


@pytest.mark.usefixtures("umask")
def test_a_cached_export_is_private_and_holds_no_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    built = Export().launch((0, 1), (2, 3))
    built.string("HOME=/home/alice\0TOKEN=hunterpassword\0")
    for name, value in {
        "RANK": "3",
        "WORLD_SIZE": "8",
        "LOCAL_RANK": "1",
        "TOKEN": "hunterpassword",
    }.items():
        built.capture("PROCESS_0:ENVIRONMENT_VARIABLE", f'{name}="{value}"')
    raw = built.write(tmp_path / "raw.sqlite")
    monkeypatch.setattr(exports, "find", lambda: NSYS)
    monkeypatch.setattr(exports, "can_include_json", lambda _: False)
    monkeypatch.setattr(
        exports, "export", lambda _n, _r, out, **_o: out.write_bytes(raw.read_bytes())
    )
    (tmp_path / "run.nsys-rep").write_bytes(b"report")
    for _ in range(2):
        cached = exports.export_report(tmp_path / "run.nsys-rep")
        assert mode(cached) == 0o600
        assert mode(cached.parent) == 0o700
        cached.chmod(0o644)
    assert b"hunterpassword" in raw.read_bytes()
    assert load(cached).rank == load(raw).rank
    with closing(sqlite3.connect(cached)) as connection:
        capture = connection.execute("SELECT value FROM META_DATA_CAPTURE").fetchall()
    assert ("(removed)",) in capture
    assert b'TOKEN="hunterpassword' not in cached.read_bytes()


class NSYS:
    version_text = "2025.3"


def test_what_is_not_the_users_own_is_no_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("TRACEVIEW_CACHE_DIR", raising=False)
    (tmp_path / "elsewhere").mkdir(mode=0o755)
    (tmp_path / "traceview").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="traceview"):
        cache_folder("triton")
    assert client.kernel_cache("a.py") is None
    assert mode(tmp_path / "elsewhere") == 0o755
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_cache_of_another_user_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    (tmp_path / "file").touch()
    with pytest.raises(PermissionError, match="belongs to another user"):
        private_file(tmp_path / "file")


def test_an_export_that_is_no_database_is_left_to_its_reader(tmp_path):
    (tmp_path / "x").write_bytes(bytes(1000))
    remove_environment(tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == bytes(1000)
