"""Freed memory stays with the process, where the C library is glibc."""

import ctypes
import platform
import subprocess
import sys
from types import SimpleNamespace

import pytest

from traceview.base import memory

ARRAY_BYTES = 64 << 20
HELD = f"""
from pathlib import Path
import resource
import sys
import numpy as np
from traceview.base.memory import keep_freed_memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

if sys.argv[1] == "keep":
    keep_freed_memory()
before = resident()
array = np.ones({ARRAY_BYTES}, np.uint8)
del array
print(resident() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc alone is asked")
@pytest.mark.parametrize(("how", "kept"), [("keep", True), ("leave", False)])
def test_a_long_array_leaves_its_memory_to_the_next(how, kept):
    done = subprocess.run(
        [sys.executable, "-c", HELD, how], capture_output=True, text=True, check=True
    )
    assert (int(done.stdout) > ARRAY_BYTES / 2) == kept


@pytest.mark.parametrize("system", ["linux", "darwin"])
def test_another_c_library_is_left_alone(system, monkeypatch):
    monkeypatch.setattr(memory.sys, "platform", system)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace())
    memory.keep_freed_memory()
