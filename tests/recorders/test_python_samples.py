"""Python stacks sampled inside the program: from the running threads to the tables of a trace."""

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tests.build import HOST, Export, process_id
from traceview.traces.recorders.options import RecordOptions, environment
from traceview.traces.recorders.written_tables import write_python_samples, write_source_tables
from traceview.traces.trace.load import load
from traceview.traces.trace.nsys.added_tables import SAMPLES, SampleClock
from traceview.traces.trace.scrub.scrubber import scrub

PROGRAM = """
import os, threading, time
def inner():
    time.sleep(0.3)
thread = threading.Thread(target=inner)
thread.start()
inner()
thread.join()
{end}
"""
INNER, CALLER, LAST = 4, 7, 9
DAY = 1_795_331_501_386_098_606


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "gathered"


def run(folder, end=""):
    script = folder.parent / "program.py"
    script.write_text(PROGRAM.format(end=end))
    options = RecordOptions(kernels=False, sync_sites=False)
    added = environment(options, folder)
    done = subprocess.run(
        [sys.executable, script], env={**os.environ, **added}, capture_output=True, text=True
    )
    assert done.stderr == ""
    return done


def lines(folder):
    [path] = folder.glob("*.stacks")
    cells = [line.split("\t") for line in path.read_text().splitlines()]
    frames, samples = {}, []
    for kind, *rest in cells:
        if kind == "F":
            frames.setdefault(rest[0], []).append((Path(rest[2]).name, int(rest[1]), rest[3]))
        else:
            samples.append(rest)
    return frames, samples


def test_every_thread_is_sampled_from_its_innermost_frame_out(folder):
    run(folder)
    frames, samples = lines(folder)

    inner, caller = ("program.py", INNER, "inner"), ("program.py", CALLER, "<module>")
    stacks = [frames[stack] for _, _, stack in samples]
    assert len({thread for _, thread, _ in samples}) == 2
    assert stacks.count([inner, caller]) > 5
    assert any(stack[0] == inner and stack[-1][0] == "threading.py" for stack in stacks)
    assert all(int(b[0]) >= int(a[0]) for a, b in pairwise(samples))


@pytest.mark.parametrize(
    "end", ["raise SystemExit", "os._exit(0) if os.fork() == 0 else os.wait()"]
)
def test_each_process_writes_a_file_of_its_own_and_a_forked_one_none(folder, end):
    run(folder, end)

    assert len(list(folder.glob("*.stacks"))) == 1


def test_a_killed_program_leaves_what_it_wrote(folder):
    run(folder, "time.sleep(1.5); os.kill(os.getpid(), 9)")

    assert len(lines(folder)[1]) > 20


def gathered(folder, *texts, process=1):
    folder.mkdir(exist_ok=True)
    path = folder / f"{process_id(process)}-{DAY}.stacks"
    path.write_text("".join(text + "\n" for text in texts))


def export(tmp_path, *, began=DAY):
    built = Export().launch((0, 10), (20, 30)).launch((0, 10), (20, 30), process=2)
    built._tables["TARGET_INFO_SESSION_START_TIME"] = "utcEpochNs"
    built._rows["TARGET_INFO_SESSION_START_TIME"] = [{"utcEpochNs": began}]
    return built.write(tmp_path / "raw.sqlite")


FRAMES = ("F\t0\t3\t/home/ann/train.py\tload", "F\t0\t9\t/home/ann/train.py\t<module>")


def rows(trace, table, *columns):
    return [tuple(row[name] for name in columns) for row in trace.table(table).rows()]


def test_samples_of_two_processes_become_one_table(tmp_path, folder):
    raw = export(tmp_path)
    main = process_id(1)
    gathered(folder, *FRAMES, f"S\t{DAY + 500}\t{main}\t0", f"S\t{DAY + 100}\t{main + 1}\t0")
    gathered(folder, "F\t0\t1\tx.py\tf", f"S\t{DAY + 300}\t{process_id(2)}\t0", process=2)

    assert write_python_samples(raw, folder) == 3

    trace = load(raw)
    assert rows(trace, "python_samples", "time_ns", "process", "stack") == [
        (100, 0, 0),
        (300, 1, 1),
        (500, 0, 0),
    ]
    assert rows(trace, "python_frames", "stack", "depth", "file", "line", "function") == [
        (0, 0, "/home/ann/train.py", 3, "load"),
        (0, 1, "/home/ann/train.py", 9, "<module>"),
        (1, 0, "x.py", 1, "f"),
    ]
    threads = trace.threads["thread_id"][trace.table("python_samples")["thread"]]
    assert threads.tolist() == [main + 1, process_id(2), main]


def test_damaged_lines_and_processes_outside_the_export_are_left_out(tmp_path, folder):
    raw = export(tmp_path)
    gathered(
        folder, *FRAMES, "S\tx\t1\t0", "S\t1", "", "?", f"S\t{DAY}\t{process_id(1)}\t0", "S\t17"
    )
    gathered(folder, *FRAMES, f"S\t{DAY}\t7\t0", process=77)

    assert write_python_samples(raw, folder) == 1


def test_nothing_gathered_leaves_the_tables_out(tmp_path):
    raw = export(tmp_path)
    assert write_python_samples(raw, tmp_path) == 0
    assert "python_samples" not in load(raw).tables


def test_marks_of_the_program_set_the_clock(tmp_path, folder):
    # The clock of the day runs 1 ns in 100 fast.
    built = Export().launch((0, 10), (20, 30))
    built.range(f"traceview:clock:{DAY}", 1_000, 1_001)
    built.range(f"traceview:clock:{DAY + 10_100}", 11_000, 11_001).range("step", 0, 100)
    raw = built.write(tmp_path / "raw.sqlite")
    day = [DAY, DAY + 5_050, DAY + 10_100, DAY + 20_000]
    gathered(folder, *FRAMES, *(f"S\t{each}\t{process_id(1)}\t0" for each in day))

    write_python_samples(raw, folder)

    trace = load(raw)
    assert trace.table("python_samples")["time_ns"].tolist() == [1_000, 6_000, 11_000, 20_900]
    assert rows(trace, "ranges", "name") == [("step",)]
    assert "call_sites" not in trace.tables


def test_the_clock_keeps_nanoseconds():
    times = np.array([DAY, DAY + 3_600_000_000_000])
    clock = SampleClock(times, np.array([5, 3_600_000_000_005]))
    assert clock.timeline_ns(times + 1).tolist() == [6, 3_600_000_000_006]


def test_the_text_of_the_programs_lines_is_stored_and_scrubbed(tmp_path, folder):
    script = tmp_path / "train.py"
    script.write_text("import time\n\n\tx = feats[nodes]  # gather\n")
    raw = export(tmp_path)
    library = f"F\t0\t1\t{os.__file__}\tf"
    gathered(
        folder, library, f"F\t0\t3\t{script}\tload", f"F\t0\t9\t{script}\tload",
        f"S\t{DAY}\t{process_id(1)}\t0",
    )  # fmt: skip

    write_python_samples(raw, folder)
    write_source_tables(raw, [tmp_path])

    assert rows(load(raw), "python_frames", "source") == [
        (None,),
        ("x = feats[nodes] # gather",),
        (None,),
    ]


def test_scrubbing_keeps_samples_and_shortens_homes(tmp_path, folder):
    raw, clean = export(tmp_path), tmp_path / "clean.sqlite"
    gathered(folder, *FRAMES, f"S\t{DAY}\t{process_id(1)}\t0")
    write_python_samples(raw, folder)

    scrub(raw, clean, own=True)

    trace = load(clean)
    assert len(trace.table("python_samples")) == 1
    assert rows(trace, "python_frames", "file") == [("~/train.py",)] * 2
    assert SAMPLES == "TRACEVIEW_PYTHON_SAMPLES"
    assert HOST == 1


def test_stacks_are_sampled_once_where_nsys_samples_them_too(tmp_path):
    def samples(options):
        return "TRACEVIEW_PYTHON_SAMPLES" in environment(options, tmp_path / "gathered")

    assert samples(RecordOptions())
    assert not samples(RecordOptions(python_samples=False))
    assert not samples(RecordOptions(nsys_options=("--python-sampling=true",)))
