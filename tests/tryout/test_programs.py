"""Remedies on real programs, on the CPU. The programs make some remedies slow, wrong or fail."""

import hashlib
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

import traceview
from tests.places import DATA, REPOSITORY
from traceview.cli import run
from traceview.trials.remedies import BY_NAME
from traceview.trials.remedies.loading import workers
from traceview.trials.tryout import ledger
from traceview.trials.tryout.patch import patch_of
from traceview.trials.tryout.planned import Planned
from traceview.trials.tryout.runs import Program, Runs
from traceview.trials.tryout.schedule import too_few_steps
from traceview.trials.tryout.spec import RunResult
from traceview.trials.tryout.verdict import Trial

pytestmark = pytest.mark.skipif(not find_spec("torch"), reason="needs PyTorch")

PROGRAM = """
import os, sys, time
import torch
from torch.utils.data import DataLoader, Dataset

class Samples(Dataset):
    def __len__(self):
        return 100_000
    def __getitem__(self, index):
        if not torch.utils.data.get_worker_info():
            time.sleep(WAIT_S)
        generator = torch.Generator().manual_seed(index)
        return torch.randn(16, generator=generator), index % 4

def main():
    torch.set_num_threads(1)
    model = torch.nn.Linear(16, 4)
    optimizer = torch.optim.Adam(model.parameters())
    if optimizer.defaults["foreach"]:
        raise RuntimeError("planted")
    scale = 1.2 if optimizer.defaults["fused"] else 1.0
    total = 0.0
    for x, y in DataLoader(Samples(), 4):
        if torch.get_float32_matmul_precision() == "high":
            time.sleep(2 * WAIT_S)
        loss = torch.nn.functional.cross_entropy(model(x), y) * scale
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.item()
        with open("log.txt", "a") as log:
            log.write(f"{float(total)}\\n")
        torch.save(model.state_dict(), "model.pt")
        os.environ["LEFT_BY_PROGRAM"] = "1"
    print("trained for hours")
    open("finished.txt", "w").close()

if __name__ == "__main__":
    main()
"""
WAIT_S = 0.01
LIBRARY = """
from torch.utils.data import DataLoader as Loads, DataLoader
def named():
    return Loads([1.0] * 99)
def own():
    return DataLoader([1.0] * 99)
"""
USES_LIBRARY = """
import torch
from torch.utils.data import DataLoader
import library
weight = torch.nn.Parameter(torch.ones(()))
optimizer = torch.optim.SGD([weight], 1e-3)
loaders = [library.own(), library.named()]
first, second = DataLoader([1.0, 2.0], **dict(batch_size=1)), DataLoader([3.0] * 99)
for x in range(99):
    (weight * x).sum().backward()
    optimizer.step()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A user's folder with a program, and a data folder of its own."""
    users = tmp_path / "user"
    users.mkdir()
    (users / "train.py").write_text(PROGRAM.replace("WAIT_S", str(WAIT_S)))
    (users / "log.txt").write_text("mine\n")
    (users / "model.pt").write_text("mine")
    monkeypatch.chdir(users)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return users


def state_of(folder):
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture
def runs(folder, tmp_path):
    made = Runs(Program.of(["train.py"]), tmp_path / "work")

    def run_once(*remedies, **options):
        return made.run(made.spec(remedies=remedies, **options), 60)

    return run_once


def test_remedies_are_kept_and_rejected_and_the_user_s_files_stay(folder, capsys):
    before, environment = state_of(folder), dict(os.environ)
    named = ("num_workers", "fused", "foreach", "channels_last", "zero_grad")
    report = traceview.try_remedies("train.py", remedies=named, runs=4, steps=10)
    outcome = {trial.planned.name: trial.outcome for trial in report.trials}
    assert outcome == {
        "num_workers": "keep",
        "fused": "changes results",
        "foreach": "failed",
        "channels_last": "rejected",
        "zero_grad": "rejected",
    }
    reasons = {trial.planned.name: trial.reason for trial in report.trials}
    assert reasons["foreach"] == "RuntimeError: planted"
    assert reasons["zero_grad"] == "it changes nothing in this program"
    assert state_of(folder) == before
    assert dict(os.environ) == environment
    patch = report.patch()
    assert "+    for x, y in DataLoader(Samples(), 4, num_workers=" in patch.diff
    assert patch.by_hand == ()
    subprocess.run(["git", "apply", "--check", "-"], input=patch.diff, text=True, check=True)
    assert report.table.stat().st_mode & 0o777 == 0o600
    assert run(["accuracy"]) == 0
    shown = capsys.readouterr().out
    assert "num_workers" in shown
    assert "keep" in shown
    kept = [row for row in ledger.read() if row.outcome == "keep"]
    assert [(row.program, row.device) for row in kept] == [("user/train.py", "cpu")]
    # The samples sleep; how long the rest takes is the machine's affair.
    assert 10 < kept[0].saved_pct < 100


def test_a_run_ends_after_its_steps_in_a_folder_of_its_own(folder, runs, tmp_path):
    result = runs(warmup=8, steps=4)
    assert result.error == ""
    assert [step for step, _ in result.steps] == list(range(12))
    assert min(time for _, time in result.steps) > 4 * WAIT_S * 1e9
    assert [step for step, _ in result.losses] == list(range(8))
    assert len(result.norms) == 8
    scratch = tmp_path / "work" / "1" / "scratch"
    log = (scratch / "log.txt").read_text().splitlines()
    assert (log[0], len(log)) == ("mine", 12)
    assert not (scratch / "finished.txt").exists()
    assert (folder / "log.txt").read_text() == "mine\n"
    assert result.outside == ()


def test_equal_seeds_give_equal_results(runs):
    one, same, other = (runs(warmup=4, steps=4, seed=seed) for seed in (0, 0, 1))
    assert one.losses == same.losses != other.losses


def test_reads_that_are_deferred_leave_results_as_they_are(runs):
    plain, deferred = runs(warmup=4, steps=4), runs("deferred_reads", warmup=4, steps=4)
    assert deferred.applied == ("deferred_reads",)
    assert (deferred.error, deferred.losses) == ("", plain.losses)


def test_a_switched_remedy_is_off_in_half_of_the_blocks(runs):
    result = runs("matmul_precision", warmup=8, steps=64, alternates=True)
    times = dict(result.steps)
    on = [step for step in range(8, 72) if (step - 8) // 8 % 4 in (0, 3)]
    slow = min(times[step] for step in on)
    off = [times[step] for step in range(8, 72) if step not in on]
    assert sorted(off)[len(off) // 2] < slow + WAIT_S * 1e9


def test_a_dry_run_runs_nothing(folder, monkeypatch, capsys):
    monkeypatch.setattr(subprocess, "Popen", None)
    trace = REPOSITORY / "examples" / "loader.sqlite.xz"
    assert run(["try", "--from", str(trace), "--dry-run", "train.py"]) == 0
    shown = capsys.readouterr().out
    assert "num_workers" in shown
    assert "about 54.7 %" in shown
    assert "pin_memory" not in shown
    assert not (folder.parent / "data").exists()


def test_a_dry_run_of_nothing_known_says_what_to_pass(folder, capsys):
    assert run(["try", "--dry-run", "train.py"]) == 1
    assert "--from TRACE" in capsys.readouterr().err


def test_a_finding_without_a_mechanical_remedy_is_none_to_try(folder, capsys):
    trace = DATA / "jax.sqlite.xz"
    assert run(["try", "--from", str(trace), "--dry-run", "train.py"]) == 0
    assert "No finding asks for a mechanical remedy." in capsys.readouterr().out


@pytest.mark.programs
def test_a_program_is_recorded_for_some_steps(folder, capfd):
    before = state_of(folder)
    assert run(["try", "train.py"]) == 0
    # Without a GPU a recording has no finding. What nsys and the program print is not on stdout.
    shown = capfd.readouterr().out
    assert shown.startswith("Remedies to try  train.py")
    assert "No finding asks for a mechanical remedy." in shown
    assert state_of(folder) == before


@pytest.mark.parametrize("waits", ["time.sleep(600)", "main()"])
def test_a_recorded_run_ends_in_time_with_what_it_has(folder, runs, waits):
    text = PROGRAM.replace("WAIT_S", str(WAIT_S)).replace("    main()\n", f"    {waits}\n")
    (folder / "train.py").write_text(text)
    result = runs(records=True, steps=1_000_000, limit_s=3.0)
    assert (result.error, result.is_late) == ("", True)
    assert (len(result.steps) > 0) is (waits == "main()")
    assert too_few_steps(RunResult(is_late=True)) == "time was up: it made 0 training steps"


def test_a_patch_says_which_calls_it_does_not_change(folder, runs):
    (folder / "library").mkdir()
    (folder / "library" / "__init__.py").write_text(LIBRARY)
    (folder / "train.py").write_text(USES_LIBRARY)
    result = runs("num_workers", warmup=2, steps=4)
    assert result.error == ""
    planned_ = Planned("num_workers", (BY_NAME["num_workers"],))
    trial = Trial(planned_, "keep", sites=result.sites)
    made = patch_of(Program.of(["train.py"]), [trial])
    keywords = f"num_workers={workers()}, persistent_workers=True"
    changed = [line for line in made.diff.splitlines() if line.startswith("+") and "Load" in line]
    assert changed == [
        f"+    return DataLoader([1.0] * 99, {keywords})",
        "+first, second = DataLoader([1.0, 2.0], **dict(batch_size=1)), "
        f"DataLoader([3.0] * 99, {keywords})",
    ]
    given = f"DataLoader({keywords})"
    assert made.by_hand == (
        ("num_workers", f"{given} (from {Path('library', '__init__.py')}:4)"),
        ("num_workers", f"{given} (from train.py:8)"),
    )


def test_misuse(folder, capsys):
    assert run(["try", "--remedy", "pin_memry", "train.py"]) == 1
    assert "did you mean pin_memory?" in capsys.readouterr().err
    assert run(["try", "train.sh"]) == 1
    assert "script train.sh is not a .py file" in capsys.readouterr().err
    (folder / "empty.py").write_text("import torch\n")
    assert run(["try", "--remedy", "fused", "empty.py"]) == 1
    assert "made 0 training steps" in capsys.readouterr().err
    (folder / "bad.py").write_text("import torch\n1 / 0\n")
    assert run(["try", "--remedy", "fused", "bad.py"]) == 1
    assert "the program failed: ZeroDivisionError" in capsys.readouterr().err
    (folder / "asks.py").write_text("import torch\ninput()\n")
    assert run(["try", "--remedy", "fused", "asks.py"]) == 1
    assert "its standard input is empty" in capsys.readouterr().err
    (folder / "hung.py").write_text("import time\nwhile True:\n    time.sleep(1)\n")
    assert run(["try", "--remedy", "fused", "--seconds", "2", "hung.py"]) == 1
    assert "did not finish 104 steps in 2 s; pass more seconds" in capsys.readouterr().err
    assert run(["try", "-m", "package.train"]) == 1
    assert "module package.train is not in this folder" in capsys.readouterr().err


@pytest.mark.programs
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_nothing_behind(folder, tmp_path, number):
    before, temporary = state_of(folder), tmp_path / "temporary"
    temporary.mkdir()
    command = [sys.executable, "-m", "traceview", "try", "--remedy", "num_workers"]
    process = subprocess.Popen(
        [*command, "--patch", "out.diff", "train.py"],
        env={**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    deadline = time.monotonic() + 120
    # Links become files when the program writes to them: it is in its steps.
    while time.monotonic() < deadline:
        if any(not path.is_symlink() for path in temporary.rglob("log.txt")):
            break
        time.sleep(0.05)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert b"Traceback" not in err
    # torch leaves a folder of its own there.
    assert not list(temporary.glob("traceview*"))
    assert state_of(folder) == before
    assert not (tmp_path / "data").exists()
    assert not [
        line
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if (line := _command(path)) and str(temporary) in line
    ]


def _command(path):
    try:
        return path.read_text()
    except OSError:
        return ""
