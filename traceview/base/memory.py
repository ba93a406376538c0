"""The memory of this process: what is free, what malloc keeps, and garbage collection."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path

from traceview.base.records import record

# Make glibc reuse freed memory instead of returning it to the kernel.
#
# A report allocates hundreds of short-lived arrays as long as the trace. By default glibc maps
# and unmaps each large one, and the kernel zeroes its pages every time, which takes longer than
# the computation: 19 s of system time for 10 M kernels, and 6 s with freed memory kept.

# Values of glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8
_NEVER = -1


def keep_freed_memory() -> None:
    """Keep freed memory until the process ends. Does nothing if the C library is not glibc."""
    if sys.platform != "linux":
        return
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    # One arena for all threads, which grows and never shrinks.
    for option, value in ((_ARENA_MAX, 1), (_MMAP_MAX, 0), (_TRIM_THRESHOLD, _NEVER)):
        mallopt(option, value)


# Memory that this process can still allocate before it swaps or is killed.
#
# The minimum over the system's available memory, the limits of the enclosing control groups (a
# container, a batch job) and `ulimit -v`. The page cache counts as available.

ROOT = Path("/")
KIB = 1024
# Control groups v1 report a huge number of pages for "no limit".
_NO_LIMIT = 1 << 60


@record
class Free:
    """Available bytes, and what limits them, in words that complete `4.0 GB are free …`."""

    size_bytes: int
    bound: str


def free_memory(root: Path = ROOT) -> Free | None:
    """The tightest bound, or None if the system reports none. `root` holds /proc and /sys."""
    available = dict(_fields(root / "proc/meminfo")).get("MemAvailable:")
    limits = [] if available is None else [Free(available * KIB, "on this machine")]
    # macOS reports only the total, Windows nothing.
    with suppress(AttributeError, ValueError, OSError):
        if not limits:
            total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
            limits.append(Free(total, "on this machine"))
    # The process's control group and all its parents.
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, controllers, path = [*line.split(":", 2), "", ""][:3]
        if number == "0" and not controllers:
            limits += _limited(root / "sys/fs/cgroup", path, ("memory.max", "memory.current"))
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
            limits += _limited(root / "sys/fs/cgroup/memory", path, names)
    limits += _of_address_space(root)
    return min(limits, key=lambda free: free.size_bytes, default=None)


def _of_address_space(root: Path) -> Iterator[Free]:
    try:
        import resource
    except ImportError:  # Windows
        return
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    pages = _text(root / "proc/self/statm").partition(" ")[0]
    if limit != resource.RLIM_INFINITY and pages.isdecimal():
        spare = max(limit - int(pages) * resource.getpagesize(), 0)
        yield Free(spare, f"under the {limit / 1e9:.1f} GB limit of ulimit -v")


def _limited(mount: Path, path: str, names: tuple[str, str]) -> Iterator[Free]:
    innermost = mount / path.lstrip("/")
    for group in (innermost, *innermost.parents):
        if not group.is_relative_to(mount):
            return
        # Without a limit the file is missing or says `max`.
        limit, used = (_text(group / name).strip() for name in names)
        if limit.isdecimal() and used.isdecimal() and int(limit) < _NO_LIMIT:
            # The page cache; v1 has totals that include child groups.
            stat = dict(_fields(group / "memory.stat"))
            cached = sum(
                stat.get(f"total_{name}", stat.get(name, 0))
                for name in ("inactive_file", "active_file")
            )
            spare = max(int(limit) - int(used) + cached, 0)
            yield Free(spare, f"under the {int(limit) / 1e9:.1f} GB limit of this container or job")


def _fields(path: Path) -> Iterator[tuple[str, int]]:
    """Lines of a name and a number."""
    for line in _text(path).splitlines():
        words = line.split()
        if len(words) > 1 and words[1].isdecimal():
            yield words[0], int(words[1])


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


# Import numpy without its BLAS threads: a report does no linear algebra.
#
# OpenBLAS starts one thread per core when numpy is imported. Each spins for some 30 ms before it
# sleeps: a tenth of the time of a short report on two cores, seconds of all cores on a large
# machine.

_VARIABLE = "OPENBLAS_NUM_THREADS"


def import_numpy() -> None:
    """Import numpy with one BLAS thread, unless the user has set OPENBLAS_NUM_THREADS.

    The variable is removed afterwards, because programs started later may need their threads.
    """
    if _VARIABLE in os.environ:
        return
    os.environ[_VARIABLE] = "1"
    try:
        import_module("numpy")
    finally:
        del os.environ[_VARIABLE]


def prepare() -> None:
    """Set this process up to read and analyze traces."""
    import_numpy()
    keep_freed_memory()


# Python's garbage collection, put off where it would take time and find nothing.
#
# Importing and a report make a hundred thousand objects that stay: looking for cycles among them
# again and again takes a tenth of the time of a report, and once more at the exit as much as
# reading a small trace.


@contextmanager
def paused() -> Iterator[None]:
    """Disable garbage collection within the block, which should not last for hours."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def skip_at_exit() -> None:
    """Freeze all objects, so that no collection visits them when the process exits."""
    gc.freeze()
