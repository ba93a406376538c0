"""Python stack samples of an nsys export, of its own sampler and of ours."""

import json

import pytest

from tests.build import Export
from traceview.traces.trace.nsys.added_tables import NOT_EXPORTED

LINEAR = ("/usr/lib/python3.12/site-packages/torch/nn/modules/linear.py", 134, "forward")
TRAIN = ("/work/train.py", 31, "train")
MAIN = ("/work/train.py", 40, "<module>")


def rows(trace, table, *columns):
    return [tuple(row[name] for name in columns) for row in trace.table(table).rows()]


def test_equal_stacks_are_stored_once(tmp_path):
    trace = (
        Export()
        .python_sample(30, TRAIN, MAIN)
        .python_sample(10, LINEAR, TRAIN, MAIN)
        .python_sample(20, LINEAR, TRAIN, MAIN, thread=1, state="Blocking Wait")
        .load(tmp_path)
    )

    samples = rows(trace, "python_samples", "time_ns", "thread", "stack", "state")
    frames = rows(trace, "python_frames", "stack", "depth", "file", "line", "function")

    assert [sample[:2] for sample in samples] == [(10, 0), (20, 1), (30, 0)]
    assert samples[0][2] == samples[1][2] != samples[2][2]
    assert [sample[3] for sample in samples] == ["Running", "Blocking Wait", "Running"]
    assert {frame[1:] for frame in frames if frame[0] == samples[0][2]} == {
        (0, *LINEAR),
        (1, *TRAIN),
        (2, *MAIN),
    }
    assert len(frames) == 5


def test_samples_are_no_ranges(tmp_path):
    export = Export().range("step", 0, 100).python_sample(10, TRAIN)
    export.python_sample(20, TRAIN, domain="Python Backtrace on CUDA").range("mine", 5, None)

    trace = export.load(tmp_path)

    assert rows(trace, "ranges", "name") == [("step",), ("mine",)]
    assert rows(trace, "python_samples", "time_ns") == [(10,)]


def test_the_domain_of_another_process_with_the_same_number_is_its_own(tmp_path):
    export = Export().python_sample(10, TRAIN, process=1)
    export.raw("NVTX_EVENTS", start=0, eventType=75, text="mine", domainId=1, globalTid=2 << 24)
    export.raw("NVTX_EVENTS", start=5, eventType=34, text="here", domainId=1, globalTid=2 << 24)

    trace = export.load(tmp_path)

    assert rows(trace, "ranges", "name", "domain") == [("here", "mine")]
    assert rows(trace, "python_samples", "time_ns") == [(10,)]


def test_without_samples_there_is_no_table(tmp_path):
    trace = Export().range("step", 0, 100).load(tmp_path)

    assert "python_samples" not in trace.tables
    assert "python_frames" not in trace.tables


def test_an_export_without_the_stacks_says_how_to_get_them(tmp_path):
    export = Export().python_sample(10, TRAIN)
    export._rows["NVTX_EVENTS"][-1]["jsonText"] = None

    trace = export.load(tmp_path)

    assert NOT_EXPORTED in trace.warnings
    assert not len(trace.ranges)


def sample(**columns):
    frame = {"Function": 1, "File": 2, "Line": 3}
    return json.dumps({"Python Periodic Sampling": {"Frames": [frame], **columns}})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[" * 100_000,
        sample(Frames=7),
        sample(Frames=[{"Function": 1}]),
        sample(Frames=[{"Function": 1, "File": 2, "Line": "x"}]),
        '{"Python Periodic Sampling": null}',
    ],
)
def test_a_damaged_sample_is_left_out_with_a_warning(tmp_path, text):
    export = Export().python_sample(10, TRAIN).python_sample(20, TRAIN)
    export._rows["NVTX_EVENTS"][-1]["jsonText"] = text

    trace = export.load(tmp_path)

    assert rows(trace, "python_samples", "time_ns") == [(10,)]
    assert "1 Python stack samples could not be read" in trace.warnings


def test_another_spelling_of_the_same_json_is_read(tmp_path):
    export = Export().python_sample(10, TRAIN)
    known = export._rows["NVTX_EVENTS"][-1]
    known["jsonText"] = json.dumps(json.loads(known["jsonText"]), indent=1)
    frame = {"Line": -1, "File": "<b&gt;", "Function": "f", "more": {}}
    export.python_sample(20, TRAIN)
    export._rows["NVTX_EVENTS"][-1]["jsonText"] = sample(Frames=[frame])

    trace = export.load(tmp_path)

    assert rows(trace, "python_frames", "file", "line", "function") == [
        TRAIN,
        ("<b>", None, "f"),
    ]
