"""What a cold recording is cold of: its longest call, and the time before its first GPU work."""

import random
from pathlib import Path

import pytest

from tests.trace.kineto.traces import Event, call, kernel, python, span, write
from traceview.traces.reporting import analyze
from traceview.traces.trace.load import load

OPERATORS = ["aten::add_", "aten::gelu", "aten::index_put_", "aten::mean"]


def said(folder: Path, events: list[Event]) -> str:
    health = analyze(load(write(folder / "t.json", events))).outcomes["trace-health"]
    return "\n".join(each.message for each in health.findings if "is cold" in each.message)


def one_pass(seed: int, slow: list[int], begin: int = 0) -> tuple[list[Event], str]:
    """A pass of 30 operators in layers, and the place of the longest of its `slow` launches."""
    chosen, events, at, place = random.Random(seed), list[Event](), begin, ""
    slow_at = dict(zip(chosen.sample(range(8, 30), len(slow)), slow, strict=True))
    for number in range(30):
        length, layer = slow_at.get(number, 8), f"Layer_{chr(97 + number)}x"
        name = chosen.choice(OPERATORS)
        events.append(span("user_annotation", layer, at, length + 20))
        events.append(span("cpu_op", "aten::outer", at + 1, length + 18))
        events.append(span("cpu_op", name, at + 2, length + 16))
        events.append(call("cudaLaunchKernel", at + 4, length, number + 1))
        events.append(kernel(f"k{number}", at + length + 6, 5, number + 1))
        at += length + 40
        if length == max(slow):
            place = f"k{number} in {layer}/{name}."
    return events, place


@pytest.mark.parametrize("seed", range(8))
def test_the_longest_first_launch_is_named(seed, tmp_path):
    events, place = one_pass(seed, [12_000, 300])
    text = said(tmp_path, events)
    assert (
        f"The longest call is one cudaLaunchKernel of 12.0 ms, the first launch of {place}" in text
    )
    assert "before the first GPU work" not in text


@pytest.mark.parametrize("seed", range(3))
def test_none_is_named_of_many(seed, tmp_path):
    text = said(tmp_path, one_pass(seed, [2_000 + 10 * number for number in range(8)])[0])
    assert "is cold" in text
    assert "longest call" not in text


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("shown", ["ranges", "functions", "nothing"])
def test_a_long_start_is_told_with_what_it_does(shown, seed, tmp_path):
    begin = 11_000_000 + 1_000_000 * seed
    events, _ = one_pass(seed, [12_000], begin)
    if shown == "ranges":
        events.append(span("cpu_op", "prepare", 0, begin // 10))
        events.append(span("cpu_op", "trace_model", begin // 10, begin // 2))
    elif shown == "functions":
        events.append(python("run.py(1): <module>", 0, begin + 20_000, 1, None))
        events.append(python("model/net.py(31): unroll", 10, begin * 4 // 5, 2, 1))
    else:
        events.append(call("cudaGetDeviceCount", 0, 5, 900))
    text = said(tmp_path, events)
    assert f"{begin / 1e6:.1f} s pass before the first GPU work" in text
    assert ("s of it in trace_model." in text) is (shown == "ranges")
    assert ("% of it in unroll (net.py:31)." in text) is (shown == "functions")
