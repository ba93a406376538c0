"""`traceview doctor`: what works here, what does not, and how to mend it."""

import json

import pytest
from click.testing import CliRunner

from tests.recorders import fake_nsys
from traceview.base.compiled import library
from traceview.cli.setup import doctor as command
from traceview.kernels.toolchain import tools
from traceview.traces.recorders import check_machine
from traceview.traces.recorders import nsys as nsys_tool

WORKS = {"profile": ": > $out", "export": ": > $out"}


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with nothing but what a test puts there; gives the checks by name."""
    monkeypatch.delenv(nsys_tool.NAMED_BY, raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    real_which = tools.shutil.which
    monkeypatch.setattr(
        tools.shutil, "which", lambda name: None if name == "nsys" else real_which(name)
    )
    return lambda: {check.name: check for check in check_machine(tmp_path)}


def test_without_nsys_and_gpu(machine, tmp_path):
    fake_nsys.script(tmp_path / "bin/nvidia-smi", "exit 9")
    found = machine()
    assert (found["nsys"].status, found["GPU"].status) == ("missing", "missing")
    assert "developer.nvidia.com" in found["nsys"].remedy
    assert "nsys profile" not in found
    assert found["python"].status == "ok"


def test_all_is_well(machine, tmp_path):
    fake_nsys.script(tmp_path / "bin/nvidia-smi", "echo 'NVIDIA H200, 580.159.04'")
    fake_nsys.nsys(tmp_path / "usr/local/cuda/bin/nsys", **WORKS)
    found = machine()
    names = ("GPU", "driver", "nsys", "nsys profile", "nsys export", "call chains")
    assert [found[name].status for name in names] == ["ok"] * 6
    assert found["driver"].detail == "580.159.04"


def test_the_c_library(machine, monkeypatch, tmp_path):
    check = machine()["C library"]
    assert (check.status, check.detail, check.remedy) == ("ok", str(library.PATH), "")
    monkeypatch.setattr(library, "PATH", tmp_path / "pages.so")
    library._functions.cache_clear()
    check = machine()["C library"]
    library._functions.cache_clear()
    assert check.status == "broken"
    assert check.detail == f"traceview's C library is missing: there is no {tmp_path / 'pages.so'}"
    assert "C compiler" in check.remedy


@pytest.mark.parametrize(
    ("how", "name", "status", "said"),
    [
        (
            {**WORKS, "version": "NVIDIA Nsight Systems version 2019.1"},
            "nsys",
            "broken",
            "or newer is needed",
        ),
        ({"profile": "echo 'no licence' >&2; exit 1"}, "nsys profile", "broken", "no licence"),
        ({**WORKS, "export": "echo 'no disk'; exit 1"}, "nsys export", "broken", "no disk"),
        ({**WORKS, "status": "(process-tree): Fail"}, "call chains", "missing", "not recorded"),
    ],
)
def test_what_fails_is_named_with_its_evidence(machine, tmp_path, how, name, status, said):
    fake_nsys.nsys(tmp_path / "usr/local/cuda/bin/nsys", **how)
    check = machine()[name]
    assert check.status == status
    assert said in check.detail
    assert check.remedy


def test_the_copy_inside_nsight_compute(machine, tmp_path):
    host = tmp_path / "opt/nvidia/nsight-compute/2025.3.1/host"
    fake_nsys.nsys(host / "target-linux-x64/nsys", profile=": > ${out%-rep}.qdstrm")
    (host / "linux-desktop-glibc_2_11_3-x64").mkdir()
    found = machine()
    assert found["nsys"].status == found["nsys profile"].status == "broken"
    assert found["nsys profile"].remedy.startswith("run: ln -s linux-desktop")


def test_nvtx_too_new_for_the_nsys_here(machine, tmp_path, monkeypatch):
    version = "NVIDIA Nsight Systems version 2023.4.4.54"
    fake_nsys.nsys(tmp_path / "usr/local/cuda/bin/nsys", version=version, **WORKS)
    described = tmp_path / "site" / "nvtx-0.2.17.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: nvtx\nVersion: 0.2.17\n")
    monkeypatch.setenv("PYTHONPATH", str(described.parent))
    check = machine()["nvtx"]
    assert check.status == "broken"
    assert "0.2.17 records no range" in check.detail
    assert check.remedy.startswith("pip install 'nvtx<0.2.12'")


@pytest.fixture
def invoke(monkeypatch, tmp_path):
    monkeypatch.setenv(nsys_tool.NAMED_BY, str(fake_nsys.nsys(tmp_path / "nsys", profile="exit 1")))
    return lambda *words: CliRunner().invoke(command, words)


def test_the_table_fits_a_terminal_and_names_the_remedy(invoke):
    done = invoke()
    assert done.exit_code == 0
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "reinstall nsys" in done.stdout


def test_json(invoke):
    done = invoke("--json")
    checks = json.loads(done.stdout)["checks"]
    assert done.exit_code == 0
    assert {"name", "status", "detail", "remedy"} == set(checks[0])
    assert {"traceview", "python", "nsys"} <= {check["name"] for check in checks}


def test_the_real_nsys(nsys, monkeypatch):
    monkeypatch.setenv(nsys_tool.NAMED_BY, str(nsys))
    found = {check.name: check.status for check in check_machine()}
    assert (found["nsys profile"], found["nsys export"]) == ("ok", "ok")
