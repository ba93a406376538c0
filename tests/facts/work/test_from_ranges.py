"""Which range tells the work of which kernel, against plain loops over random nestings."""

import random

import numpy as np
import pytest

from tests.build import Export
from traceview.traces.facts.work.from_ranges import (
    declaration,
    declared_in,
    from_declared,
    from_shapes,
)
from traceview.traces.facts.work.kernel_work import kernel_work


def test_a_trace_without_such_ranges(tmp_path):
    trace = Export().range("step", 0, 9).launch((1, 2), (3, 4)).load(tmp_path)

    assert from_declared(trace) is None
    assert from_shapes(trace) is None
    assert kernel_work(trace).is_unknown


@pytest.mark.parametrize("seed", range(20))
def test_declared_against_brute_force(tmp_path, seed):
    """The innermost declaring range around the call; by itself only where alone in its passage."""
    chance = random.Random(seed)
    export, ranges = Export(), []

    def nested(start, end, depth):
        name = declaration(f"r{chance.randrange(3)}", bytes=chance.randrange(1, 9))
        if chance.random() < 0.5:
            name = "plain"
        export.range(name, start, end)
        ranges.append((start, end, name))
        middle = (start + end) // 2
        for low, high in ((start + 1, middle - 1), (middle + 1, end - 1)):
            if depth and high - low > 4 and chance.random() < 0.7:
                nested(low, high, depth - 1)

    nested(0, 1000, 4)
    calls = sorted(chance.sample(range(2, 1100), 12))
    for number, call in enumerate(calls):
        export.launch((call, call), (2000 + 10 * number, 2005 + 10 * number))
    found = from_declared(export.load(tmp_path))

    around = []
    for call in calls:
        mine = [r for r in ranges if r[0] <= call < r[1] and r[2] != "plain"]
        around.append(max(mine) if mine else None)
    if found is None:
        assert not any(name != "plain" for *_, name in ranges)
        return
    part, passages = found
    for row, mine in enumerate(around):
        alone = mine is not None and around.count(mine) == 1
        assert np.isnan(part.bytes[row]) == (not alone)
        assert (passages.of[row] >= 0) == (mine is not None and not alone)
        if mine is not None:
            declared = float(mine[2].rpartition(" ")[2].rstrip("}"))
            told = part.bytes[row] if alone else passages.estimate.bytes[passages.of[row]]
            assert told == declared
    together = [mine for mine in around if mine is not None and around.count(mine) > 1]
    assert len(passages.name) == len(set(together))


def test_an_operator_between_keeps_the_product_from_a_kernel(tmp_path):
    """aten::copy_ inside aten::matmul is no product."""
    export = Export()
    export.range("aten::matmul, sizes = [[4, 8], [8, 16]]", 0, 100)
    export.range("aten::copy_, sizes = [[4, 8], [4, 8], []]", 10, 50)
    export.launch((20, 21), (200, 300), name="copy")

    assert np.isnan(from_shapes(export.load(tmp_path)).flop).all()


def test_counters_come_before_a_passage(tmp_path):
    """A kernel with samples of its own counts by itself, and the passage is left out."""
    us = 1000
    export = Export().range(declaration("both", bytes=5), 0, 100)
    export.launch((10, 11), (us, 1000 * us)).launch((20, 21), (1000 * us, 1001 * us))
    export.sampled(*((time * us, 40, 10) for time in range(0, 1200, 100)))

    work = kernel_work(export.load(tmp_path))

    assert work.bytes_from.tolist() == [1, -1]
    assert work.passages.of.tolist() == [-1, -1]


def test_payloads(tmp_path):
    """One text, two sizes; a column that is only read where a text refers to it."""
    said = 'gelu {"bytes": "payload", "flop_per_byte": 2}'
    export = Export()
    for number, size in enumerate((10, 30, None)):
        export.range(said, 100 * number, 100 * number + 50, payload=size)
        export.launch((100 * number + 1, 100 * number + 2), (1000 + number, 1001 + number))
    trace = export.load(tmp_path)

    part, _ = from_declared(trace)
    assert part.bytes.tolist()[:2] == [10.0, 30.0]
    assert part.flop.tolist()[:2] == [20.0, 60.0]
    assert np.isnan(part.bytes[2])
    assert trace.ranges.cells("payload") == [10, 30, None]


def test_payloads_that_nobody_asks_for_are_not_read(tmp_path):
    assert Export().range("a", 0, 9, payload=5).load(tmp_path).ranges.cells("payload") == [None]


def test_a_payload_that_is_missing_declares_nothing(tmp_path):
    missing = 'r {"bytes": "payload"}'
    alone = Export().range(missing, 0, 90).launch((10, 20), (30, 40))
    assert list(declared_in(alone.load(tmp_path)).decode()) == [None]

    folder = tmp_path / "two"
    folder.mkdir()
    behind = Export().range('a {"bytes": 8}', 0, 90).launch((10, 20), (30, 40))
    behind.range(missing, 100, 190).launch((110, 120), (130, 140))
    assert list(declared_in(behind.load(folder)).decode()) == ["a", None]
