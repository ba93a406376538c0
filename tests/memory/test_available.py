"""What is left of memory, read from files as Linux writes them."""

import os
import resource
import subprocess
import sys

import pytest

from traceview.base.memory import Free, free_memory

GB = 10**9
V2, V1 = "0::/job/step\n", "5:cpu,memory:/job\n0::/\n"
UNLIMITED = 9223372036854771712


@pytest.fixture
def system(tmp_path):
    """A machine: files by name."""

    def made(**files: str):
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/").replace("·", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return made


MEMINFO = "MemTotal: 32000000 kB\nMemFree: 10 kB\nMemAvailable: 16000000 kB\nHugePages_Total: 0\n"


def test_what_the_machine_has_to_spare(system):
    root = system(proc__meminfo=MEMINFO)
    assert free_memory(root) == Free(16_000_000 * 1024, "on this machine")


def test_without_such_files_there_is_what_sysconf_tells(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": 1000, "SC_PAGE_SIZE": 4096}.__getitem__)
    assert free_memory(tmp_path) == Free(4_096_000, "on this machine")


@pytest.mark.parametrize("error", [ValueError("unrecognized configuration name"), OSError()])
def test_a_system_that_tells_nothing_sets_no_bound(tmp_path, monkeypatch, error):
    def refused(name):
        raise error

    monkeypatch.setattr(os, "sysconf", refused)
    assert free_memory(tmp_path) is None
    monkeypatch.delattr(os, "sysconf")
    assert free_memory(tmp_path) is None


def test_the_group_around_the_process_may_be_tighter(system):
    root = system(
        proc__meminfo=MEMINFO,
        proc__self__cgroup=V2,
        sys__fs__cgroup__job__memory·max=f"{4 * GB}\n",
        sys__fs__cgroup__job__memory·current=f"{3 * GB}\n",
        sys__fs__cgroup__job__memory·stat="anon 5\ninactive_file 500000000\nactive_file 7\n",
        sys__fs__cgroup__job__step__memory·max="max\n",
        sys__fs__cgroup__job__step__memory·current="9\n",
    )
    assert free_memory(root) == Free(
        GB + 500_000_007, "under the 4.0 GB limit of this container or job"
    )


def test_groups_of_version_1(system):
    root = system(
        proc__meminfo=MEMINFO,
        proc__self__cgroup=V1,
        sys__fs__cgroup__memory__job__memory·limit_in_bytes=f"{2 * GB}",
        sys__fs__cgroup__memory__job__memory·usage_in_bytes=f"{GB}",
        sys__fs__cgroup__memory__job__memory·stat="inactive_file 1\ntotal_inactive_file 300\n",
        sys__fs__cgroup__memory__memory·limit_in_bytes=f"{UNLIMITED}",
        sys__fs__cgroup__memory__memory·usage_in_bytes=f"{8 * GB}",
    )
    assert free_memory(root).size_bytes == GB + 300


def test_a_container_sees_its_own_group_at_the_top(system):
    """Where the path of the process is that of the host, and not there."""
    root = system(
        proc__meminfo=MEMINFO,
        proc__self__cgroup="0::/kubepods/pod7\n",
        sys__fs__cgroup__memory·max=f"{GB}",
        sys__fs__cgroup__memory·current=f"{2 * GB}",
    )
    assert free_memory(root).size_bytes == 0


def test_odd_files_are_passed_over(system):
    root = system(
        proc__meminfo=MEMINFO + "MemAvailable\n: 7\n",
        proc__self__cgroup="\nx\n0::\n7:memory\n",
        sys__fs__cgroup__memory·max="a lot",
    )
    assert free_memory(root).bound == "on this machine"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell what is taken")
def test_a_limit_of_the_address_space():
    code = "from traceview.base.memory import free_memory as f; print(f().size_bytes, f().bound)"
    limit = 2 * GB
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )
    size, _, bound = done.stdout.strip().partition(" ")
    assert 0 < int(size) < limit
    assert bound == "under the 2.0 GB limit of ulimit -v"
