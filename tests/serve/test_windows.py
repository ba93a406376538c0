"""What the server says of a window, a step and a query, beside sums over the recorded tables."""

import numpy as np
import pytest

import traceview
from tests.places import DATA
from traceview.base.errors import InputError
from traceview.serve import windows
from traceview.serve.answers import MOST_CHARACTERS, Answers, compact
from traceview.serve.folder import ServedFolder

NAMES = ("training", "streams", "ddp_late")


@pytest.fixture(scope="module", params=NAMES)
def report(request):
    return (
        traceview.report(DATA / f"{request.param}.sqlite.xz")
        if request.param != "ddp_late"
        else (traceview.analyze(traceview.load(DATA / "ddp_late.sqlite.xz")))
    )


def test_a_window_sums_to_its_length_and_clips_what_crosses_its_ends(report):
    trace, random = report.recording, np.random.default_rng(7)
    kernels = trace.kernels.to_pandas()
    first, last = kernels["start_ns"].min(), kernels["end_ns"].max()
    for _ in range(10):
        start, end = sorted(random.integers(first, last, 2).tolist())
        found = windows.window_of(trace, start, end + 1, 10_000)
        clipped = kernels["end_ns"].clip(upper=end + 1) - kernels["start_ns"].clip(lower=start)
        inside = kernels.assign(time=clipped)[clipped > 0]
        sums = inside.groupby("label", observed=True)["time"].agg(["sum", "count"])
        assert {each["name"]: (each["time_ns"], each["calls"]) for each in found["kernels"]} == {
            label: (row["sum"], row["count"]) for label, row in sums.iterrows()
        }
        for gpu in found["gpus"]:
            device = [row["device_id"] for row in trace.devices.rows()].index(gpu["device_id"])
            work = [trace.recorded(name) for name in ("kernels", "copies", "sets")]
            work = [table.take(table["device"] == device) for table in work]
            begins = min(table["start_ns"].min() for table in work if len(table))
            ends = max(table["end_ns"].max() for table in work if len(table))
            # Idle time lies between the first and the last work of a GPU.
            whole = max(0, min(end + 1, ends) - max(start, begins))
            assert gpu["busy_ns"] + sum(gpu["idle_ns_by_cause"].values()) == whole


def test_a_step_is_where_its_work_is(report):
    steps = report["steps"].tables["steps"].to_pandas()
    for name in steps["step"].astype(str)[:3]:
        told = windows.step_of(report, name, 5)
        window = told["window"]
        assert window["end_ns"] - window["start_ns"] == told["step"]["duration_ns"]
        busy = {gpu["busy_ns"] for gpu in window["gpus"]}
        assert (
            told["step"]["gpu_busy_ns"] is None
            or len(busy) > 1
            or busy == {told["step"]["gpu_busy_ns"]}
        )
    with pytest.raises(InputError, match="no step is named"):
        windows.step_of(report, "nothing like it", 5)


def test_windows_outside_the_recording_are_refused(report):
    for start, end in ((5, 5), (10, 5), (-10, 0), (10**18, 10**18 + 1)):
        with pytest.raises(InputError, match="the recording reaches from"):
            windows.window_of(report.recording, start, end, 5)


def test_answers_are_short_and_say_when_rows_are_left_out(tmp_path):
    pytest.importorskip("duckdb")
    (tmp_path / "a.sqlite.xz").write_bytes((DATA / "training.sqlite.xz").read_bytes())
    answers = Answers(ServedFolder.of(tmp_path))
    found = answers.query("a.sqlite.xz", "SELECT label, start_ns FROM kernels", None)
    assert (found["columns"], found["more"]) == (["label", "start_ns"], True)
    assert len(compact(found)) <= MOST_CHARACTERS
    assert answers.query("a.sqlite.xz", "SELECT 1 AS one, NULL, [1, 2]", 5)["rows"][0][0] == 1
    step = answers.step("a.sqlite.xz", "epoch_0/batch_3", None)
    assert len(compact(step)) <= MOST_CHARACTERS
    with pytest.raises(InputError, match="the query fails"):
        answers.query("a.sqlite.xz", "SELECT * FROM read_text('a.sqlite.xz')", None)
