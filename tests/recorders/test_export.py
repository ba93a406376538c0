"""Exports of nsys reports: in a cache, whole or not at all, never beside the report."""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

import traceview
from tests.recorders import fake_nsys
from traceview.base.errors import ToolNotFoundError, TraceFormatError
from traceview.traces.recorders import export_report, nsys
from traceview.traces.recorders.nsys import ATTEMPTS


@pytest.fixture(scope="session")
def report(nsys, tmp_path_factory):
    """A report that nsys wrote itself, in a folder that cannot be written to."""
    folder = tmp_path_factory.mktemp("report")
    path = folder / "run.nsys-rep"
    options = ("--trace=nvtx", "--sample=none", "--cpuctxsw=none", f"--output={path}")
    for _ in range(ATTEMPTS):
        subprocess.run([nsys, "profile", *options, "true"], check=False, capture_output=True)
        if path.exists():
            break
        # What an attempt without a report leaves, such as a .qdstrm.
        for left in folder.iterdir():
            left.unlink()
    folder.chmod(0o555)
    return path


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "traceview"


@pytest.fixture
def real(nsys, monkeypatch):
    monkeypatch.setenv("TRACEVIEW_NSYS", str(nsys))


@pytest.fixture
def counting(tmp_path, monkeypatch):
    """An nsys that exports 1,000 bytes and notes each time that it does."""
    exported = f"echo once >> {tmp_path}/log; head -c 1000 /dev/zero > $out"
    tool = fake_nsys.nsys(tmp_path / "tools" / "nsys", export=exported)
    monkeypatch.setenv("TRACEVIEW_NSYS", str(tool))
    return lambda: (tmp_path / "log").read_text().count("once")


@pytest.mark.usefixtures("real")
def test_a_report_is_read_through_nsys(report, cache):
    before = report.read_bytes()
    assert traceview.load(report).recorder == "nsys"
    assert [path.name for path in report.parent.iterdir()] == ["run.nsys-rep"]
    assert report.read_bytes() == before
    assert len(list(cache.iterdir())) == 1


@pytest.mark.usefixtures("real")
def test_the_cache_is_for_its_user_alone(report, cache):
    export_report(report)
    assert cache.stat().st_mode & 0o077 == 0


def test_the_same_content_is_exported_once(tmp_path, counting):
    first, second = tmp_path / "a.nsys-rep", tmp_path / "b.nsys-rep"
    first.write_bytes(b"same")
    second.write_bytes(b"same")
    assert export_report(first) == export_report(second)
    assert counting() == 1
    second.write_bytes(b"other")
    assert export_report(second) != export_report(first)
    assert counting() == 2


def test_two_at_once(tmp_path, counting, cache):
    path = tmp_path / "a.nsys-rep"
    path.write_bytes(b"content")
    with ThreadPoolExecutor(4) as pool:
        results = set(pool.map(export_report, [path] * 4))
    assert [result.stat().st_size for result in results] == [1000]
    assert list(cache.iterdir()) == list(results)


def test_the_oldest_go_when_the_cache_is_full(tmp_path, counting, cache, monkeypatch):
    monkeypatch.setattr(nsys, "CACHE_BYTES", 2_500)
    paths = []
    for number in range(3):
        source = tmp_path / f"{number}.nsys-rep"
        source.write_text(f"content {number}")
        paths.append(export_report(source))
        os.utime(paths[-1], (number, number))
        if number == 1:
            # Used again: now the other is the oldest.
            assert export_report(tmp_path / "0.nsys-rep") == paths[0]
    assert sorted(cache.iterdir()) == sorted([paths[0], paths[2]])


def test_without_nsys(tmp_path, monkeypatch):
    path = tmp_path / "a.nsys-rep"
    path.write_bytes(b"content")
    monkeypatch.setenv("TRACEVIEW_NSYS", str(tmp_path / "nothing"))
    with pytest.raises(ToolNotFoundError, match=r"must be exported.*nsys export --type sqlite"):
        export_report(path)


@pytest.mark.usefixtures("real")
def test_a_damaged_report(tmp_path, cache):
    path = tmp_path / "a.nsys-rep"
    path.write_bytes(b"garbage")
    with pytest.raises(TraceFormatError, match=r"cannot export .*a\.nsys-rep"):
        export_report(path)
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize(("content", "said"), [(None, "No such file"), (b"", "the file is empty")])
def test_no_report_at_all(tmp_path, content, said):
    path = tmp_path / "a.nsys-rep"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TraceFormatError, match=said):
        export_report(path)
