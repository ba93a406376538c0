"""Several ranks recorded by the command line, each into its own file.

nsys is a script, which runs the program as nsys does, and exports a small recording.
"""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.recorders import fake_nsys
from tests.recorders.fake_nsys import leftovers
from tests.recorders.ranks.conftest import PROFILE
from traceview import load, scrub
from traceview.traces.trace.rank_identity import RankIdentity, pseudonym

pytestmark = pytest.mark.programs
# Waits for the program, which no signal reaches.
DEAF = PROFILE.replace('exec "$@"', """trap '' INT; setsid "$@"; exit $?""")
SAYS = """
import json, os, pathlib, sys
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
told = {name: os.environ.get(name) for name in names}
told |= {"arguments": sys.argv[1:], "own": sorted(n for n in os.environ if n == "TRACEVIEW_NPROC")}
pathlib.Path(f"said{os.environ.get('RANK', '')}.json").write_text(json.dumps(told))
"""
FAILS = """
import os, pathlib, sys, time
rank = os.environ["RANK"]
pathlib.Path(f"running{rank}").touch()
while not os.path.exists(f"running{1 - int(rank)}"):  # Both are recorded before one fails.
    time.sleep(0.05)
if rank == "1":
    sys.exit(5)
for _ in range(6000):
    time.sleep(0.1)
"""
# In short pieces: a signal right before a sleep begins interrupts none.
SLEEPS = """
import os, pathlib, time
pathlib.Path("running" + os.environ["RANK"]).touch()
for _ in range(6000):
    time.sleep(0.1)
"""
# Says that it was interrupted, and goes on.
DEFIES = f"""
import signal
signal.signal(signal.SIGINT, lambda *_: pathlib.Path("told" + os.environ["RANK"]).touch())
{SLEEPS}"""
INTERRUPTIBLE = (
    "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "runpy.run_module('traceview', run_name='__main__', alter_sys=True)"
)
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
LAUNCHERS = {
    "torchrun": {
        "TORCHELASTIC_RUN_ID": "none",
        "RANK": "3",
        "WORLD_SIZE": "16",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
    },
    "mpirun": {
        "OMPI_COMM_WORLD_RANK": "3",
        "OMPI_COMM_WORLD_SIZE": "16",
        "OMPI_COMM_WORLD_LOCAL_RANK": "1",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    },
    "srun": {
        "SLURM_JOB_ID": "7",
        "SLURM_STEP_ID": "0",
        "SLURM_PROCID": "3",
        "SLURM_NTASKS": "16",
        "SLURM_LOCALID": "1",
    },
}


def traceview(*arguments, folder, environment):
    return fake_nsys.traceview("record", *arguments, cwd=folder, environment=environment)


def run_of(path):
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return dict(connection.execute("SELECT name, value FROM TRACEVIEW_RUN"))


def traces(folder):
    return sorted(path.name for path in folder.glob("*.sqlite"))


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_rank_records_itself(launcher, environment, tmp_path):
    (tmp_path / "train.py").write_text(SAYS)
    environment |= LAUNCHERS[launcher]
    done = traceview("-o", "run.sqlite", "train.py", folder=tmp_path, environment=environment)
    assert done.returncode == 0, done.stderr
    assert (done.stdout, done.stderr) == ("", "Wrote run.rank03.sqlite\n")
    assert traces(tmp_path) == ["run.rank03.sqlite"]
    place = load(tmp_path / "run.rank03.sqlite").rank
    sizes = (1, 2) if launcher != "srun" else (1, None)
    assert place == RankIdentity(3, 16, *sizes, pseudonym(BOOT_ID.read_text().strip()), launcher)
    again = traceview("-o", "run.sqlite", "train.py", folder=tmp_path, environment=environment)
    assert again.returncode == 1
    assert "run.rank03.sqlite exists already" in again.stderr


def test_rank_0_speaks_for_all(environment, tmp_path):
    (tmp_path / "train.py").write_text(SAYS)
    environment |= LAUNCHERS["torchrun"] | {"RANK": "0", "LOCAL_RANK": "0"}
    done = traceview("train.py", folder=tmp_path, environment=environment)
    assert "More: --all every table" in done.stdout
    lines = done.stderr.splitlines()
    assert lines[0] == "traceview: recording with nsys 2025.3.1.0"
    assert lines[-2:] == [
        "Wrote train.rank00.sqlite",
        "traceview: read all ranks with: traceview report train.rank*.sqlite",
    ]


def test_a_batch_script_of_slurm_is_one_process(environment, tmp_path):
    (tmp_path / "train.py").write_text(SAYS)
    environment |= {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "8"}
    traceview("train.py", folder=tmp_path, environment=environment)
    assert traces(tmp_path) == ["train.sqlite"]
    assert "rank" not in run_of(tmp_path / "train.sqlite")


def test_nproc_starts_ranks_as_torchrun_does(environment, tmp_path):
    (tmp_path / "train.py").write_text(SAYS)
    done = traceview("--nproc", "2", "train.py", "--lr", "1", folder=tmp_path,
                     environment=environment)  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = [json.loads((tmp_path / f"said{rank}.json").read_text()) for rank in range(2)]
    for rank, each in enumerate(told):
        port = each.pop("MASTER_PORT")
        assert 0 < int(port) == int(told[0].get("MASTER_PORT", port)) < 65536
        assert each == {
            **dict.fromkeys(("RANK", "LOCAL_RANK"), str(rank)),
            **dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), "2"),
            "MASTER_ADDR": "127.0.0.1",
            "arguments": ["--lr", "1"],
            "own": [],
        }
    written = ["train.rank0.sqlite", "train.rank1.sqlite"]
    assert traces(tmp_path) == written
    assert [load(tmp_path / name).rank.launcher for name in written] == ["nproc", "nproc"]
    assert done.stderr.count("recording with nsys") == 1
    assert "2 ranks" in done.stdout
    assert done.stderr.endswith(
        "Wrote train.rank0.sqlite\nWrote train.rank1.sqlite\n"
        "traceview: read all ranks with: traceview report train.rank*.sqlite\n"
    )
    assert not leftovers(tmp_path)


def test_a_file_in_the_way_stops_all_ranks_before_they_start(environment, tmp_path):
    (tmp_path / "train.py").write_text(SAYS)
    (tmp_path / "train.rank1.sqlite").touch()
    done = traceview("--nproc", "2", "train.py", folder=tmp_path, environment=environment)
    assert done.returncode == 1
    assert done.stderr.startswith("traceview: error: train.rank1.sqlite exists already")
    assert not list(tmp_path.glob("said*"))
    done = traceview("--force", "--nproc", "2", "train.py", folder=tmp_path,
                     environment=environment)  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_a_rank_that_fails_stops_the_others(environment, tmp_path):
    (tmp_path / "train.py").write_text(FAILS)
    begun = time.monotonic()
    done = traceview("--nproc", "2", "train.py", folder=tmp_path, environment=environment)
    assert time.monotonic() - begun < 300
    assert done.returncode == 5
    assert "traceview: rank 1 failed with exit status 5; the others are stopped" in done.stderr
    assert traces(tmp_path) == ["train.rank0.sqlite", "train.rank1.sqlite"]
    assert run_of(tmp_path / "train.rank1.sqlite")["exit_status"] == "5"
    assert not leftovers(tmp_path)


def _started(environment, folder):
    """`record --nproc 2 train.py`, once both ranks run."""
    command = [sys.executable, "-c", INTERRUPTIBLE, "record", "--nproc", "2", "train.py"]
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    _wait_for_both(folder, "running")
    return process


def _wait_for_both(folder, name):
    """Until both ranks have left a file of this name."""
    deadline = time.monotonic() + 300
    while len(list(folder.glob(f"{name}*"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)


@pytest.mark.parametrize("how", ["a rank fails", "aborted"])
def test_a_program_that_nsys_cannot_stop_is_killed(how, environment, tmp_path, request):
    """Such as one that waits for another rank inside of NCCL."""
    nsys = Path(environment["TRACEVIEW_NSYS"])
    nsys.write_text(nsys.read_text().replace(PROFILE.strip(), DEAF.strip()))
    program = FAILS if how == "a rank fails" else SLEEPS
    ignores = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
    (tmp_path / "train.py").write_text(f"{ignores}\n{program}")
    process = _started(environment, tmp_path)
    if how == "aborted":
        for _ in range(2):
            process.send_signal(signal.SIGINT)
            time.sleep(0.3)
    _, said = process.communicate(timeout=300)
    assert process.returncode == (5 if how == "a rank fails" else 130), said
    assert not leftovers(tmp_path)
    assert not _still_running(tmp_path)


def _still_running(folder):
    """The processes that work in a folder."""
    running = []
    for place in Path("/proc").glob("[0-9]*/cwd"):
        with suppress(OSError):
            running += [place.parent.name] if place.readlink() == folder else []
    return running


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_stops_all_ranks_and_twice_discards_them(times, environment, tmp_path):
    (tmp_path / "train.py").write_text(SLEEPS if times == 1 else DEFIES)
    process = _started(environment, tmp_path)
    process.send_signal(signal.SIGINT)
    if times == 2:
        # Two interrupts of which none was taken would be one.
        _wait_for_both(tmp_path, "told")
        process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 130, said
    if times == 1:
        assert traces(tmp_path) == ["train.rank0.sqlite", "train.rank1.sqlite"]
        assert "interrupted; the traces end there" in said
    else:
        assert traces(tmp_path) == []
        assert said.endswith("recording aborted; nothing was written\n")
    assert not leftovers(tmp_path)


def test_a_rank_that_cannot_be_recorded_stops_no_other(environment, tmp_path):
    """Its export fails; the other's program runs to its end."""
    nsys = Path(environment["TRACEVIEW_NSYS"])
    export = """[ "$RANK" = 1 ] || cp """
    nsys.write_text(nsys.read_text().replace("cp ", export, 1))
    (tmp_path / "train.py").write_text(
        "import os, time\ntime.sleep(4 * (os.environ['RANK'] == '0'))"
    )
    done = traceview("--nproc", "2", "train.py", folder=tmp_path, environment=environment)
    assert done.returncode == 1
    assert traces(tmp_path) == ["train.rank0.sqlite"]
    assert run_of(tmp_path / "train.rank0.sqlite")["exit_status"] == "0"
    assert "traceview: rank 1 was not recorded: nsys 2025.3.1.0 cannot export" in done.stderr
    assert not leftovers(tmp_path)


def test_nproc_within_a_launcher_is_refused(environment, tmp_path):
    (tmp_path / "train.py").write_text(SAYS)
    environment |= LAUNCHERS["srun"]
    done = traceview("--nproc", "2", "train.py", folder=tmp_path, environment=environment)
    assert done.returncode == 1
    assert "leave out --nproc" in done.stderr


def test_a_module_is_recorded_by_name(environment, tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package/train.py").write_text(SAYS)
    done = traceview("-m", "package.train", "--lr", "1", folder=tmp_path, environment=environment)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "said.json").read_text())["arguments"] == ["--lr", "1"]
    assert traces(tmp_path) == ["train.sqlite"]


def test_scrubbing_hides_the_host_and_keeps_hosts_apart(environment, tmp_path):
    (tmp_path / "train.py").write_text(SAYS)
    host = os.uname().nodename
    traceview("--keep-env", "--nproc", "2", "train.py", folder=tmp_path, environment=environment)
    assert load(tmp_path / "train.rank1.sqlite").rank.host == host
    scrub(tmp_path / "train.rank1.sqlite", tmp_path / "clean.sqlite")
    clean = load(tmp_path / "clean.sqlite").rank
    assert (clean.rank, clean.world_size, clean.host) == (1, 2, pseudonym(host))
    shutil.copy(tmp_path / "clean.sqlite", tmp_path / "again.db")
    scrub(tmp_path / "again.db", tmp_path / "twice.sqlite")
    assert load(tmp_path / "twice.sqlite").rank == clean
