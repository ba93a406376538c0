"""How many recordings are read at a time."""

import pytest

from traceview.base.memory import Free
from traceview.traces.ranks.execution import reading

GB = 10**9


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine with so many cores and so much memory, and recordings that need so much each."""

    def made(cores, free_gb, sizes_gb):
        paths = [tmp_path / f"rank.{n}.sqlite" for n in range(len(sizes_gb))]
        for path, size in zip(paths, sizes_gb, strict=True):
            path.write_bytes(b"x" * round(10 * size))
        needed = dict(zip(paths, sizes_gb, strict=True))
        free = None if free_gb is None else Free(free_gb * GB, "on this machine")
        monkeypatch.setattr(reading, "cores", lambda: cores)
        monkeypatch.setattr(reading, "free_memory", lambda: free)
        monkeypatch.setattr(reading, "estimated_bytes", lambda path: int(needed[path] * GB))
        return reading.most_jobs(paths)

    return made


@pytest.mark.parametrize(
    ("cores", "free_gb", "sizes_gb", "jobs"),
    [
        (8, 100, [1] * 16, 8),
        (8, 100, [1] * 3, 3),
        (1, 100, [1] * 3, 1),
        (8, 20, [1, 1, 6, 1], 3),
        (8, 20, [30, 1], 1),
        (8, None, [1] * 16, 8),
    ],
    ids=["cores", "files", "one core", "memory of the largest", "too large", "unknown"],
)
def test_workers_times_the_largest_rank_fit(machine, cores, free_gb, sizes_gb, jobs):
    assert machine(cores, free_gb, sizes_gb) == jobs
