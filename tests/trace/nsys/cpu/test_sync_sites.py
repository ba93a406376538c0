"""Our marks among NVTX ranges: parted, parsed, absent and empty."""

import time

import pytest

from tests.build import Export
from traceview.traces.trace.nsys.ranges import DOMAIN, PREFIX, Mark, parsed

TEXT = "src/train.py:31 in Model.step: loss.item() [Tensor.item]"


@pytest.mark.parametrize(
    ("text", "mark"),
    [
        (TEXT, Mark("src/train.py", 31, "Model.step", "loss.item()", "Tensor.item")),
        ("a.py:2 in <module>:  [torch.save]", Mark("a.py", 2, "<module>", "", "torch.save")),
        ("a:b.py:2 in f: x[i: j] [g]", Mark("a:b.py", 2, "f", "x[i: j]", "g")),
        ("a.py:2 in f: d[3] = y in x: z []", Mark("a.py", 2, "f", "d[3] = y in x: z", None)),
        ("something else", Mark(None, None, None, "something else", None)),
        ("", Mark(None, None, None, "", None)),
    ],
)
def test_a_text_is_taken_apart(text, mark):
    assert parsed(text) == mark


def test_hostile_texts_take_no_time():
    begun = time.process_time()
    for text in ("a:1 in " * 300_000, "a:1 in b: " + "[" * 1_000_000, "x" * 3_000_000):
        assert parsed(text).file is None
    assert time.process_time() - begun < 1


def test_both_ways_of_carrying_them_are_read(tmp_path):
    trace = (
        Export()
        .range("step", 0, 100)
        .range(PREFIX + TEXT, 10, 20)
        .range(TEXT, 30, 40, domain=DOMAIN, process=2)
        .range(TEXT, 50, 60)
        .range(PREFIX + TEXT, 70, 80, domain="of the user")
        .load(tmp_path)
    )

    columns = ("start_ns", "end_ns", "process", "file", "line", "function", "hint")
    assert [tuple(row[c] for c in columns) for row in trace.call_sites.rows()] == [
        (10, 20, 0, "src/train.py", 31, "Model.step", "Tensor.item"),
        (30, 40, 1, "src/train.py", 31, "Model.step", "Tensor.item"),
    ]
    names = [row["name"] for row in trace.ranges.rows()]
    assert names == ["step", TEXT, PREFIX + TEXT]


def test_a_mark_that_never_ended_has_no_end(tmp_path):
    (site,) = Export().range(PREFIX + TEXT, 10, None).load(tmp_path).call_sites.rows()

    assert site["end_ns"] is None


def test_absent_where_nobody_asked_and_empty_where_nothing_waited(tmp_path):
    assert "call_sites" not in Export().range("step", 0, 1).load(tmp_path).tables
    (tmp_path / "asked").mkdir()
    asked = Export().range("step", 0, 1).run(sync_sites="marked").load(tmp_path / "asked")
    assert len(asked.call_sites) == 0


def test_call_chains_come_by_chain_from_the_inside_out(tmp_path):
    trace = Export().chain(9, "c", "d").chain(2, "a", "b").load(tmp_path)

    columns = ("callchain_id", "depth", "symbol", "module")
    assert [tuple(row[c] for c in columns) for row in trace.callchains.rows()] == [
        (2, 0, "a", "libtorch.so"),
        (2, 1, "b", "libtorch.so"),
        (9, 0, "c", "libtorch.so"),
        (9, 1, "d", "libtorch.so"),
    ]
