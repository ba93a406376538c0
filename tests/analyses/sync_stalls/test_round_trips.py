"""Reads of a loop, and rows copied one by one: one finding, whatever the calls and lines."""

import pytest

import traceview
from tests.build import Export
from traceview.traces.facts.round_trips import round_trips

US = 1_000
STEPS = 24
CALLS = ("item", "cpu", "nonzero", "memcpy")
NAMES = {"": "step", "torch": "at::native::add", "cupy": "cupy_add", "openacc": "main_9_gpu"}


def read(export: Export, at: int, free: int, call: str, size: int, **ends: object) -> int:
    """A read that is called at `at`, of work that ends at `free`. Returns when the CPU goes on."""
    begin = max(at + 3 * US, free + US)
    end = begin + 2 * US + size // 10
    blocks = call == "memcpy"
    api = "cudaMemcpy_v3020" if blocks else "cudaMemcpyAsync_v3020"
    pinned = call == "nonzero"
    returns = end + 2 * US if blocks else at + 2 * US if pinned else end
    memory = "pinned" if pinned else "pageable"
    kind = {"kind": "D2H", "source": "device", "destination": memory, "bytes": size, **ends}
    export.copy((at, returns), (begin, end), api=api, **kind)
    if blocks:
        return returns
    done = max(returns + 3 * US, end + 2 * US)
    export.sync("cudaStreamSynchronize_v3020", returns + US // 2, done)
    return done


def loop(export: Export, calls: list[str], lines: int, size: int = 4, name: str = "step") -> Export:
    """Steps of a kernel before each read, and of twenty short ones behind the last."""
    at = 0
    for step in range(STEPS):
        begin = at
        for number, call in enumerate(calls):
            free = at + 60 * US
            export.launch((at, at + 4 * US), (at + 8 * US, free), name=name)
            done = read(export, at + 6 * US, free, call, size)
            if lines:
                line = 10 + number % lines
                mark = f"traceview:sync:train.py:{line} in step: x.{call}() [Tensor.{call}]"
                export.range(mark, at + 5 * US, done + 100)
            at = done + 9 * US
        for number in range(20):
            export.launch((at, at + 4 * US), (at + 6 * US, at + 9 * US), name=f"{name}_{number}")
            at += 8 * US
        export.range(f"step_{step}", begin, at)
        at += US
    return export


def told(export: Export, folder) -> list:
    """The findings of a report that are about copies or waits of the steps."""
    report = traceview.analyze(export.load(folder))
    chosen = ("memory-copies", "sync-stalls")
    return [each for each in report.findings if each.analysis in chosen]


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
@pytest.mark.parametrize("lines", [0, 1, 3])
@pytest.mark.parametrize("calls", [*([call] * n for call in CALLS for n in (1, 4)), [*CALLS]])
def test_the_reads_of_a_loop_are_one_finding(tmp_path, calls, lines, name):
    [found] = told(loop(Export(), calls, lines, name=name), tmp_path)
    values = found.finding.evidence.values

    assert found.analysis == "sync-stalls"
    assert found.finding.action.startswith("Read results on the CPU less often, or ")
    assert (values["calls"], values["per_step"]) == (len(calls) * (STEPS - 1), len(calls))
    assert values["bytes"] == 4 * values["calls"]
    assert found.finding.subject.kind == ("line" if lines else "call")
    assert values.get("lines", 0) == max(min(lines, len(calls)) - 1, 0)
    # Each read leaves the GPU idle, and no kernel runs during its copy: the whole is ranked.
    lost_ns = values["idle_ns"] + values["copy_ns"]
    assert found.finding.time_at_stake_ns >= 0.7 * lost_ns
    assert found.finding.severity in ("medium", "high")


@pytest.mark.parametrize("call", ["item", "memcpy"])
@pytest.mark.parametrize("size", [4, 4_000_000])
def test_large_reads_are_to_be_fewer_bytes(tmp_path, call, size):
    found, *notes = told(loop(Export(), [call], 1, size), tmp_path)

    assert {each.severity for each in notes} <= {"info"}
    small = found.finding.action.startswith("Read results on the CPU less often")
    assert small is (size == 4)
    assert found.finding.action.startswith("Read back only what the CPU needs") is not small
    assert "of copies." in found.finding.message


@pytest.mark.parametrize("direction", ["H2D", "D2H"])
@pytest.mark.parametrize("steps", [0, 5])
@pytest.mark.parametrize("rows", [40, 100])
@pytest.mark.parametrize(("name", "pointers"), [("main_9_gpu", True), ("at::native::add", False)])
def test_rows_are_one_finding_in_both_directions(tmp_path, direction, steps, rows, name, pointers):
    ends = {"source": "pageable", "destination": "device"}
    ends = {"kind": "H2D", **ends} if direction == "H2D" else {"kind": "D2H"}
    export, at = Export(), 0
    for step in range(5):
        begin = at
        for _ in range(rows):
            at = read(export, at, at, "memcpy", 4096, **ends) + 5 * US
        export.launch((at, at + 4 * US), (at + 8 * US, at + 400 * US), name=name)
        at += 410 * US
        if steps:
            export.range(f"step_{step}", begin, at)

    trips = round_trips(export.load(tmp_path))
    found = [each for each in told(export, tmp_path) if each.severity != "info"]

    assert any(each.of_rows for each in trips) is pointers
    if pointers:
        [only] = found
        assert only.finding.action.startswith("Allocate the array in one block of memory")
    assert pointers or not any("one block" in each.finding.action for each in found)


@pytest.mark.parametrize("every", [1, 12])
@pytest.mark.parametrize("waits", [True, False])
def test_what_no_loop_reads_or_nobody_waits_for_is_no_round_trip(tmp_path, every, waits):
    """A checkpoint in one of twelve steps; copies back that run while more is launched."""
    export, at = Export(), 0
    for step in range(STEPS):
        begin = at
        export.launch((at, at + 4 * US), (at + 8 * US, at + 60 * US))
        if step % every == 0:
            to = {"source": "device", "destination": "pageable" if waits else "pinned"}
            end = at + 70 * US if waits else at + 8 * US
            export.copy((at + 6 * US, end), (at + 61 * US, at + 69 * US), kind="D2H", **to)
        export.launch((at + 72 * US, at + 76 * US), (at + 80 * US, at + 110 * US))
        at += 115 * US
        export.sync("cudaStreamSynchronize_v3020", at - 38 * US, at - US)
        export.range(f"step_{step}", begin, at)

    assert bool(round_trips(export.load(tmp_path))) is (every == 1 and waits)
