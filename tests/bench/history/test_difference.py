"""Bench runs against earlier ones, from files of known content."""

import json
import random
from dataclasses import asdict

import jsonschema
import pytest

import traceview
from traceview.base.errors import ComparisonRefusedError, InputError
from traceview.render.bench_text import render_difference
from traceview.render.json import schema
from traceview.trials.bench.history import bench_difference, read_bench

US = 1000.0


def samples(middle_us, number=30, seed=0):
    drawn = random.Random(seed)
    return [middle_us * US * (1 + drawn.uniform(-0.01, 0.01)) for _ in range(number)]


def row(version="triton", middle_us=100.0, *, bits=128, status="timed", seed=0, **changes):
    timed = status == "timed"
    times = sorted(samples(middle_us, seed=seed)) if timed else []
    return {
        "size": 4096,
        "value": None,
        "dtype": "float32",
        "version": version,
        "status": status,
        "clock": "cuda-events" if timed else None,
        "cache": "cold" if timed else None,
        "median_ns": (times[14] + times[15]) / 2 if timed else None,
        "samples_ns": times,
        "load_width": {"bits": bits, "kernel": "k"},
        **changes,
    }


def written(path, *rows, gpu="NVIDIA H200", **changes):
    machine = {"gpu": gpu, "torch_version": "2.11", **changes.pop("machine", {})}
    document = {"schema_version": 1, "operation": "gelu", "over": "size", "machine": machine}
    path.write_text(json.dumps(document | {"rows": list(rows)} | changes))
    return path


def compared(folder, before, after, **changes):
    old, new = written(folder / "old.json", before), written(folder / "new.json", after, **changes)
    return traceview.compare_benchmarks(old, new)


@pytest.mark.parametrize(
    ("after_us", "change"), [(105, "slower"), (95, "faster"), (100, "unclear")]
)
def test_trials_of_one_run_are_a_lower_bound(tmp_path, after_us, change):
    difference = compared(tmp_path, row(), row(middle_us=after_us, seed=2))
    [found] = difference.rows
    assert (found.change, found.basis, found.is_certain) == (change, "trials", False)
    assert found.delta_pct == pytest.approx(after_us - 100, abs=1)
    assert found.low_ns < (after_us - 100) * US + 500
    assert found.high_ns > (after_us - 100) * US - 500
    assert "One run per side: its trials scatter less" in render_difference(difference)


def test_four_runs_a_side_are_certain(tmp_path):
    before = [written(tmp_path / f"b{n}.json", row(middle_us=100 + n / 10)) for n in range(4)]
    after = [written(tmp_path / f"a{n}.json", row(middle_us=104 + n / 10)) for n in range(4)]
    [found] = traceview.compare_benchmarks(before, after).rows
    assert (found.change, found.basis, found.is_certain) == ("slower", "runs", True)
    # Three prove nothing, and neither do equal sides.
    [few] = traceview.compare_benchmarks(before[:3], after[:3]).rows
    assert (few.change, few.is_certain, few.low_ns) == ("unclear", False, None)
    [equal] = traceview.compare_benchmarks(before, before).rows
    assert (equal.change, equal.is_certain) == ("unclear", False)


def test_widths_and_statuses_are_compared_exactly(tmp_path):
    text = render_difference(compared(tmp_path, row(), row(bits=32, seed=1)))
    assert "triton, size 4,096, float32: load width 32, was 128 bits per thread" in text
    difference = compared(tmp_path, row(), row(status="wrong"))
    assert difference.rows[0].change == "untimed"
    assert "triton, size 4,096, float32: wrong, was timed" in render_difference(difference)


def test_versions_that_one_side_has(tmp_path):
    difference = compared(tmp_path, row("old"), row("new"))
    assert {r.version: r.change for r in difference.rows} == {"new": "appeared", "old": "vanished"}


@pytest.mark.parametrize("other", [{"cache": "warm"}, {"clock": "wall"}])
def test_another_clock_or_cache_is_not_compared(tmp_path, other):
    [found] = compared(tmp_path, row(), row(middle_us=200, **other)).rows
    assert (found.change, found.delta_pct, found.low_ns) == ("untimed", None, None)


def test_files_without_samples_have_no_interval(tmp_path):
    [found] = compared(tmp_path, row(samples_ns=[]), row(middle_us=200)).rows
    assert (found.change, found.basis) == ("unclear", "none")
    assert found.delta_pct == pytest.approx(100, abs=2)


def test_what_explains_a_difference_is_noted(tmp_path):
    difference = compared(tmp_path, row(), row(), machine={"torch_version": "2.12"})
    assert difference.notes == ("torch 2.12 instead of 2.11",)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gpu": "NVIDIA A100"}, "measured on NVIDIA H200 and NVIDIA A100; measure both on one"),
        ({"operation": "add"}, "these are of gelu and add over size; compare runs of one"),
        ({"over": "batch"}, "these are of gelu over size and batch"),
    ],
)
def test_refusals(tmp_path, changes, message):
    with pytest.raises(ComparisonRefusedError, match=message):
        compared(tmp_path, row(), row(), **changes)


def test_another_gpu_can_be_forced(tmp_path):
    old, new = written(tmp_path / "a", row()), written(tmp_path / "b", row(), gpu="NVIDIA A100")
    difference = traceview.compare_benchmarks(old, new, force=True)
    assert difference.notes == ("GPU NVIDIA A100 instead of NVIDIA H200",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is not from traceview bench"),
        ("[1, 2]", "is not from traceview bench"),
        ('{"schema_version": 1, "analyses": {}}', "is not from traceview bench"),
        ('{"schema_version": 1, "program": "x.py"}', "is of a program, not of an operation"),
        ("\xff", "is not from traceview bench"),
        ("[" * 100_000, "is not from traceview bench"),
    ],
)
def test_other_files(tmp_path, content, message):
    path = tmp_path / "old.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(InputError, match=message):
        read_bench(path)


@pytest.mark.parametrize(
    "rows",
    [[row(median_ns=-1.0)], [row(samples_ns=[0.0])], [row(median_ns=None)], [row(), row()]],
)
def test_damaged_files(tmp_path, rows):
    with pytest.raises(InputError, match="is damaged"):
        read_bench(written(tmp_path / "old.json", *rows))


def test_the_json_of_a_comparison_follows_its_schema(tmp_path):
    difference = compared(tmp_path, row(), row("new", status="wrong"))
    wanted = schema("bench")["properties"]["comparison"]
    jsonschema.validate(json.loads(json.dumps(asdict(difference))), wanted)


def test_a_file_that_is_missing(tmp_path):
    with pytest.raises(InputError, match=r"cannot read .*: No such file"):
        read_bench(tmp_path / "none.json")
    with pytest.raises(InputError, match="a side without runs"):
        traceview.compare_benchmarks([], [])


def test_hostile_names_reach_no_terminal(tmp_path):
    path = written(tmp_path / "a", row("\x1b[31mred\u202e", bits=32))
    other = written(tmp_path / "b", row("\x1b[31mred\u202e", bits=64))
    text = render_difference(bench_difference([read_bench(path)], [read_bench(other)]))
    assert "\x1b" not in text
    assert "\u202e" not in text
