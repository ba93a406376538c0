"""Ranks that mpirun of MPICH and srun start for real."""

import os
import shutil
import subprocess
import sys
import sysconfig
from functools import cache
from pathlib import Path

import pytest

from tests.build import Export
from tests.recorders import fake_nsys
from traceview import load

MPIRUN = Path(sysconfig.get_path("scripts")) / "mpirun"
PROGRAM = "import pathlib, sys; pathlib.Path(f'ran{len(sys.argv)}').touch()"


def _mpirun():
    if not MPIRUN.exists():
        pytest.skip("no mpirun of MPICH here: pip install mpich")
    return [str(MPIRUN)]


def _srun(plugin):
    srun = shutil.which("srun")
    if not srun or not _starts(srun):
        pytest.skip("no Slurm here")
    return [srun, f"--mpi={plugin}"]


# Where no controller answers, it says so after ten seconds.
@cache
def _starts(srun):
    done = subprocess.run([srun, "--immediate=1", "true"], capture_output=True)
    return done.returncode == 0


@pytest.mark.parametrize(
    ("launcher", "started_by", "local_size"),
    [
        ("mpirun", _mpirun, 2),
        ("srun", lambda: _srun("none"), None),
        ("srun", lambda: _srun("pmi2"), None),
    ],
    ids=["mpich", "srun", "srun-pmi2"],
)
def test_each_rank_writes_its_file(launcher, started_by, local_size, tmp_path):
    start = started_by()
    Export().launch((0, 1_000), (2_000, 3_000)).write(tmp_path / "small.db")
    nsys = fake_nsys.nsys(
        tmp_path / "nsys",
        profile=f'touch "$out"; "{sys.executable}" train.py x; exit $?',
        export=f'cp "{tmp_path}/small.db" "$out"',
    )
    (tmp_path / "train.py").write_text(PROGRAM)
    record = [sys.executable, "-m", "traceview", "record", "-o", "run.sqlite", "train.py"]
    done = subprocess.run(
        [*start, "-n", "2", *record],
        cwd=tmp_path,
        env={**os.environ, "TRACEVIEW_NSYS": str(nsys)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    ranks = [load(tmp_path / f"run.rank{number}.sqlite").rank for number in (0, 1)]
    told = [(rank.rank, rank.world_size, rank.local_rank, rank.local_world_size) for rank in ranks]
    assert told == [(number, 2, number, local_size) for number in (0, 1)]
    assert {rank.launcher for rank in ranks} == {launcher}
    assert (tmp_path / "ran2").exists()
