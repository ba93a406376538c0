"""Finding nsys: each way in which it can be missing or unfit is said in one line."""

import functools

import pytest

from tests.recorders import fake_nsys
from traceview.base.errors import ToolNotFoundError
from traceview.kernels.toolchain import tools
from traceview.traces.recorders import nsys as nsys_tool
from traceview.traces.recorders.nsys import Broken, find, probe

IMPORTER = "host/host-linux-x64/QdstrmImporter"


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch, tmp_path):
    """No nsys on PATH, and none named."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.delenv(nsys_tool.NAMED_BY, raising=False)
    monkeypatch.setattr(tools.shutil, "which", lambda _: None)


def test_none_at_all(tmp_path):
    with pytest.raises(ToolNotFoundError, match=r"was not found on PATH.*developer\.nvidia\.com"):
        find(tmp_path)


def test_the_newest_installation_is_taken(tmp_path):
    for version in ("2024.2.1", "2025.10.1", "2025.3.1"):
        fake_nsys.nsys(
            tmp_path / f"opt/nvidia/nsight-systems/{version}/bin/nsys",
            version=f"NVIDIA Nsight Systems version {version}",
        )
    assert find(tmp_path).version == (2025, 10)


def test_a_named_one_goes_before_all_others(tmp_path, monkeypatch):
    fake_nsys.nsys(tmp_path / "opt/nvidia/nsight-systems/2025.3.1/bin/nsys")
    named = fake_nsys.script(tmp_path / "mine", "echo 'Segmentation fault' >&2; exit 139")
    monkeypatch.setenv(nsys_tool.NAMED_BY, str(named))
    with pytest.raises(ToolNotFoundError, match=r"mine is broken \(Segmentation fault\)"):
        find(tmp_path)


def test_a_broken_one_is_passed_over(tmp_path, monkeypatch):
    broken = fake_nsys.script(tmp_path / "nsys", "exit 1")
    monkeypatch.setattr(tools.shutil, "which", lambda _: str(broken))
    fake_nsys.nsys(tmp_path / "usr/local/cuda-13.0/bin/nsys")
    assert find(tmp_path).path == tmp_path / "usr/local/cuda-13.0/bin/nsys"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("echo 'Illegal instruction' >&2; exit 132", "is broken (Illegal instruction)"),
        ("exit 7", "is broken (it printed nothing and exited with status 7)"),
        ("echo hello", "shows no version: hello"),
        (
            "echo 'NVIDIA Nsight Systems version 2021.3.2.4'",
            "is version 2021.3.2.4, but 2022.4 or newer is needed",
        ),
        ("kill -SEGV $$", "is broken (it crashed (signal 11))"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, body, reason):
    found = probe(fake_nsys.script(tmp_path / "nsys", body))
    assert isinstance(found, Broken)
    assert reason in found.reason


def test_one_that_hangs(tmp_path, monkeypatch):
    hangs = fake_nsys.script(tmp_path / "nsys", "exec /bin/sleep 60")
    run_briefly = functools.partial(tools.run_process, timeout_s=0.2)
    monkeypatch.setattr(tools, "run_process", run_briefly)
    assert "is broken (it did not end within 0.2 s)" in probe(hangs).reason


def test_no_such_file(tmp_path):
    assert "No such file" in probe(tmp_path / "nsys").reason


def inside_nsight_compute(root):
    folder = root / "opt/nvidia/nsight-compute/2025.3.1"
    fake_nsys.nsys(folder / "host/target-linux-x64/nsys")
    return folder


def test_the_copy_in_nsight_compute_lacks_a_folder(tmp_path):
    folder = inside_nsight_compute(tmp_path)
    (folder / "host/linux-desktop-glibc_2_11_3-x64").mkdir()
    defect = find(tmp_path).defect
    assert "cannot find its importer" in defect.what
    link = f"ln -s linux-desktop-glibc_2_11_3-x64 {folder}/host/host-linux-x64"
    assert defect.remedy == f"run: {link}"


def test_the_copy_in_nsight_compute_lacks_a_library(tmp_path):
    folder = inside_nsight_compute(tmp_path)
    message = (
        "QdstrmImporter: error while loading shared libraries: libdw.so.1: "
        "cannot open shared object file: No such file or directory"
    )
    fake_nsys.script(folder / IMPORTER, f"echo '{message}' >&2; exit 127")
    defect = find(tmp_path).defect
    assert "libdw.so.1" in defect.what
    assert defect.remedy == "install the package libdw1"


def test_the_copy_in_nsight_compute_when_it_is_whole(tmp_path):
    fake_nsys.script(inside_nsight_compute(tmp_path) / IMPORTER, "exit 0")
    assert find(tmp_path).defect is None


def test_one_that_can_do_all_goes_before_one_that_only_records(tmp_path):
    folder = inside_nsight_compute(tmp_path)
    (folder / "host/linux-desktop-glibc_2_11_3-x64").mkdir()
    other = fake_nsys.nsys(
        tmp_path / "opt/nvidia/nsight-compute/2024.1.0/host/target-linux-x64/nsys"
    )
    fake_nsys.script(other.parents[2] / IMPORTER, "exit 0")
    assert find(tmp_path).path == other


def test_the_real_one(nsys):
    found = probe(nsys)
    assert found.version >= nsys_tool.OLDEST
    assert found.defect is None
