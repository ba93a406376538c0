"""Waits by the line that a recording marks, or that a call chain hints at."""

import pytest

from tests.analyses.single_answer import ask, rows
from tests.build import Export
from traceview.traces.analyses.memory_copies import ANALYSIS as COPIES
from traceview.traces.analyses.sync_stalls import ANALYSIS

LOSS = "traceview:sync:train.py:31 in step: loss.item() [Tensor.item]"


def steps_with_a_loss(export: Export, mark: str = LOSS) -> Export:
    """Three steps of 100 ns: a kernel at 10 to 50, and a wait for it at 5 to 52, marked."""
    for step in range(3):
        start = 100 * step
        export.range(f"step_{step}", start, start + 90).range(mark, start + 4, start + 60)
        export.launch((start, start + 2), (start + 10, start + 50))
        export.sync("cudaStreamSynchronize_v3020", start + 5, start + 52)
    return export


def test_a_marked_wait_has_its_line_and_all_steps_are_one_row(tmp_path):
    result = ask(ANALYSIS, steps_with_a_loss(Export()), tmp_path)

    columns = ("call_site", "hint", "source", "range_path", "calls", "wait_ns", "benign_ns")
    assert rows(result, "sites", *columns) == [
        ("train.py:31 in step", "Tensor.item", "loss.item()", "step_#", 3, 141, 120)
    ]
    (found,) = result.findings
    assert found.message.startswith("train.py:31 in step, `loss.item()`, leaves the GPU idle for ")


@pytest.mark.parametrize("folder", ["", "examples/", "/work/nets/mlp/"])
def test_a_line_is_named_without_the_folders_of_its_file_as_in_all_findings(tmp_path, folder):
    export = steps_with_a_loss(Export(), LOSS.replace("train.py", f"{folder}train.py"))

    (found,) = ask(ANALYSIS, export, tmp_path).findings

    assert found.message.startswith("train.py:31 in step, `loss.item()`, leaves the GPU idle for ")
    assert (found.subject.name, found.subject.file) == ("train.py:31", f"{folder}train.py")


SITE = "/usr/lib/python3.12/site-packages"


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("clip_gradients(net)", ", by Tensor.item in fastclip.clip_gradients."),
        ("loss.item()", "."),
    ],
)
def test_a_wait_in_a_library_is_told_with_its_call_and_function(tmp_path, source, told):
    export, ms = Export(), 1_000_000
    for step in range(8):
        start, mark = 100 * ms * step, f"traceview:sync:train.py:31 in step: {source} [Tensor.item]"
        export.range(mark, start + 4 * ms, start + 60 * ms)
        export.launch((start, start + 2 * ms), (start + 10 * ms, start + 50 * ms))
        export.sync("cudaStreamSynchronize_v3020", start + 5 * ms, start + 52 * ms)
        clip = (f"{SITE}/fastclip/__init__.py", 6, "clip_gradients")
        export.python_sample(start + 20 * ms, clip, ("/work/train.py", 31, "step"))

    found, *_ = ask(ANALYSIS, export, tmp_path).findings

    assert f"calls to cudaStreamSynchronize{told}" in found.message


def test_marks_are_no_ranges_of_the_program(tmp_path):
    trace = steps_with_a_loss(Export()).load(tmp_path)

    assert {row["name"] for row in trace.ranges.rows()} == {"step_0", "step_1", "step_2"}
    assert len(trace.call_sites) == 3


def test_two_lines_in_one_range_are_two_rows(tmp_path):
    other = LOSS.replace(":31", ":32")
    export = (
        Export()
        .range(LOSS, 4, 60)
        .range(other, 104, 160)
        .launch((0, 2), (10, 50))
        .sync("cudaStreamSynchronize_v3020", 5, 52)
        .launch((100, 102), (110, 150))
        .sync("cudaStreamSynchronize_v3020", 105, 152)
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "sites", "call_site", "range_path", "calls", "idle_after_ns") == [
        # Of the gap from 50 to 110 as much as the wait lasted: without it the CPU would be ahead.
        ("train.py:31 in step", "(unattributed)", 1, 47),
        ("train.py:32 in step", "(unattributed)", 1, 0),
    ]


def test_a_mark_of_another_thread_names_nothing(tmp_path):
    export = (
        Export()
        .range(LOSS, 0, 100, thread=1)
        .launch((0, 2), (10, 50))
        .sync("cudaStreamSynchronize_v3020", 5, 52)
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "sites", "call_site", "hint") == [(None, None)]


def test_a_wait_after_the_mark_is_not_of_its_line(tmp_path):
    export = Export().range(LOSS, 0, 5).sync("cudaStreamSynchronize_v3020", 5, 52)

    assert rows(ask(ANALYSIS, export, tmp_path), "sites", "call_site") == [(None,)]


def test_without_a_mark_the_call_chain_gives_the_hint(tmp_path):
    frames = ("cudaStreamSynchronize", "at::native::_local_scalar_dense_cuda(at::Tensor const&)")
    export = (
        Export()
        .chain(7, *frames, "torch::autograd::THPVariable_item(_object*, _object*)", "main")
        .sync("cudaStreamSynchronize_v3020", 5, 52, callchain=7)
        .sync("cudaStreamSynchronize_v3020", 60, 62)
    )

    result = ask(ANALYSIS, export, tmp_path)

    assert set(rows(result, "sites", "hint", "calls")) == {("Tensor.item", 1), (None, 1)}
    assert "call chains" in result.notes[0]


def test_each_call_of_a_line_has_its_own_idle_time(tmp_path):
    """A line that copies and synchronizes is no line that synchronizes for the time of both."""
    mark = "traceview:sync:train.py:7 in step: x.cpu() [Tensor.cpu]"
    export = Export().range(mark, 4, 400)
    export.launch((0, 2), (10, 50)).copy((5, 80), (50, 78), kind="D2H", destination="pageable")
    export.launch((85, 88), (90, 120)).sync("cudaStreamSynchronize_v3020", 100, 122)
    export.launch((300, 302), (310, 350))

    result = ask(ANALYSIS, export, tmp_path)

    idle = dict(rows(result, "sites", "api", "idle_after_ns"))
    assert set(idle) == {"cudaMemcpyAsync", "cudaStreamSynchronize"}
    by_call = {str(each.evidence.values["api"]): each for each in result.findings}
    assert {api: each.evidence.values["idle_ns"] for api, each in by_call.items()} == idle
    assert all(each.subject.name == "train.py:7" for each in result.findings)


def test_a_finding_names_its_line_and_the_row_and_gap_that_show_it(tmp_path):
    result = ask(ANALYSIS, steps_with_a_loss(Export()), tmp_path)

    [finding] = result.findings
    subject, evidence = finding.subject, finding.evidence
    assert (subject.kind, subject.file, subject.line) == ("line", "train.py", 31)
    [row] = list(result.tables["sites"].rows())
    assert evidence.table == "sites"
    assert {name: row[name] for name in evidence.row} == evidence.row
    assert evidence.values["idle_ns"] == row["steady_idle_after_ns"] == 47
    assert (evidence.start_ns, evidence.end_ns) == (150, 197)


def test_a_line_that_moves_pageable_bytes_is_to_pin_them(tmp_path):
    """Ten batches of 16 MB: the GPU idles while the CPU moves their bytes, not after a read."""
    mark = "traceview:sync:serve.py:16 in serve: static.copy_(batch) [Tensor.copy_]"
    export = Export()
    for step in range(10):
        begin = 20_000 * step
        export.range(mark, begin, begin + 8_000)
        export.copy(
            (begin + 100, begin + 8_000),
            (begin + 7_000, begin + 7_900),
            source="pageable",
            bytes=16_000_000,
        )
        export.launch((begin + 8_100, begin + 8_200), (begin + 8_300, begin + 19_900))

    assert not ask(ANALYSIS, export, tmp_path).findings
    (found,) = [each for each in ask(COPIES, export, tmp_path).findings if each.severity != "info"]

    assert found.subject.name == "serve.py:16"
    assert found.evidence.values["staging_ns"] == 9 * 6_900
    assert found.action.startswith("Pin the host memory (cudaHostAlloc")
