"""Tasks for other processes: some answer, some fail, some take their process with them."""

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from traceview.base.errors import InputError


def square(number: int) -> int:
    return number * number


def process_of(_: object) -> int:
    time.sleep(0.05)
    return os.getpid()


def picky(number: int) -> int:
    """Fails in each of the ways in which a task can."""
    if number == 1:
        raise InputError("one is refused", "pass another")
    if number == 2:
        raise ZeroDivisionError("by two")
    if number == 3:
        raise MemoryError
    return number


def unpicklable(_: object) -> object:
    return lambda: 0


def killed(path: Path) -> str:
    """Is killed, as by the system, where the file says `always`, or says `once` for the first."""
    wish = path.read_text()
    if wish == "once":
        path.write_text("fine")
    if wish in ("once", "always"):
        os.kill(os.getpid(), signal.SIGKILL)
    return path.name


def segfault(number: int) -> int:
    if number == 0:
        print("about to read address 0", file=sys.stderr, flush=True)
        ctypes.string_at(0)
    return number


def chatty(number: int) -> int:
    print("noise on stdout", flush=True)
    os.write(1, b"more noise")
    return number


def waits_with_children(folder: Path) -> None:
    """Leave a temporary file and a child process, say so in the folder, and never end."""
    Path(tempfile.mkdtemp(), "unpacked").write_bytes(b"1")
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    ready = folder / f"{os.getpid()}.part"
    ready.write_text(f"{os.getpid()} {child.pid} {tempfile.gettempdir()}")
    ready.rename(folder / f"{os.getpid()}.ready")
    while True:
        time.sleep(0.1)


def hangs_first(item: Path) -> str:
    """Of the item `0`, hang for the first time, in a process that then has to be killed."""
    began = item.parent / "began"
    if item.name == "0" and not began.exists():
        part = item.parent / "part"
        part.write_text(str(os.getpid()))
        part.rename(began)
        time.sleep(600)
    time.sleep(0.05)
    return item.name


def is_running(process: int) -> bool:
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
