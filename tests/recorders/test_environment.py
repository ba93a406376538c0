"""What a recording notes of its surroundings."""

import platform
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.recorders import fake_nsys
from traceview.traces.recorders import checks


def test_versions_of_the_python_that_runs_the_script():
    found = checks.python_versions(Path(sys.executable))
    assert found["python"] == platform.python_version()
    assert found["numpy"] == version("numpy")


def test_no_python_no_versions(tmp_path):
    assert checks.python_versions(None) == {}
    assert checks.python_versions(fake_nsys.script(tmp_path / "python", "exit 1")) == {}


def test_the_gpu_and_its_driver(tmp_path, monkeypatch):
    fake_nsys.script(
        tmp_path / "nvidia-smi", "echo 'NVIDIA H200, 580.159.04'; echo 'NVIDIA L4, 580'"
    )
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert checks.gpu_versions() == {"gpu": "NVIDIA H200, NVIDIA L4", "driver": "580.159.04"}
    fake_nsys.script(tmp_path / "nvidia-smi", "echo 'NVIDIA-SMI has failed, sorry'; exit 9")
    assert checks.gpu_versions() == {}


SMI = """
case "$1" in
*clocks_event_reasons*) {event} ;;
--query-gpu=*)
    echo '0, GPU-aa, 1980, 3201, 700.00, 174.32, 41, 0x0000000000000000'
    echo '1, GPU-bb, 345, 3201, 650.00, [N/A], 36, 0x0000000000000001' ;;
--query-compute-apps=gpu_uuid,used_memory)
    printf 'GPU-aa, 512\\nGPU-aa, [N/A]\\nGPU-bb, 100\\n' ;;
*) echo 'NVIDIA H200, 580.159.04' ;;
esac"""
OLD_DRIVER = "echo 'Field \"clocks_event_reasons.active\" is not a valid field to query.'; exit 2"


@pytest.fixture
def smi(tmp_path, monkeypatch):
    """An nvidia-smi of two GPUs and an old driver."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return fake_nsys.script(tmp_path / "nvidia-smi", SMI.format(event=OLD_DRIVER))


@pytest.mark.usefixtures("smi")
def test_the_state_of_all_gpus_from_an_old_driver():
    assert checks.gpu_state("after") == {
        "sm_clock_mhz_after": "1980,345",
        "memory_clock_mhz_after": "3201,3201",
        "power_limit_w_after": "700.00,650.00",
        "temperature_c_after": "41,36",
        "clock_reasons_after": "0x0000000000000000,0x0000000000000001",
        "other_processes_after": "3",
        "other_processes_mib_after": "612",
    }


@pytest.mark.usefixtures("smi")
@pytest.mark.parametrize("visible", ["0", "GPU-a"])
def test_the_state_of_the_gpus_that_the_program_sees(monkeypatch, visible):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    state = checks.gpu_state("before")
    assert state["sm_clock_mhz_before"] == "1980"
    assert state["power_w_before"] == "174.32"
    assert state["other_processes_before"] == "2"
    assert "other_processes_before" not in checks.gpu_state("before", processes=False)


@pytest.mark.usefixtures("smi")
def test_no_gpu_visible_no_state(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert checks.gpu_state("before") == {}


@pytest.mark.parametrize(
    "body", ["echo 'NVIDIA-SMI has failed, sorry'; exit 9", "echo 'a, b'", "exec sleep 60", None]
)
def test_an_nvidia_smi_that_fails_or_hangs_says_nothing(tmp_path, monkeypatch, body):
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(checks, "_STATE_TIMEOUT_S", 0.2)
    if body:
        fake_nsys.script(tmp_path / "nvidia-smi", body)
    started = time.monotonic()
    assert checks.gpu_state("before") == {}
    assert time.monotonic() - started < 30


def test_the_commit_and_whether_it_was_changed(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("1\n")
    assert checks.git_commit(script) == {}
    who = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "x"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    clean = checks.git_commit(script)
    assert len(clean["git_commit"]) == 40
    assert clean["git_dirty"] == "no"
    script.write_text("2\n")
    assert checks.git_commit(script)["git_dirty"] == "yes"
