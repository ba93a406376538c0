"""Ranks of one expert-parallel pass under a CUDA graph: dispatch, the experts' GEMMs, combine."""

import json

import numpy as np
import pytest

import traceview

US = 1_000
NAMES = (
    (
        "void deep_ep::internode_ll::dispatch<true, 3>(void*)",
        "void deep_ep::internode_ll::combine<3>(void*)",
    ),
    (
        "void deep_ep::intranode::dispatch<8, 768>(int4*)",
        "void deep_ep::intranode::combine<bf16, 8>(int4*)",
    ),
)


def kernel(name, start_us, end_us):
    arguments = {"device": 0, "context": 1, "stream": 7, "correlation": 100}
    grid = {"grid": [86, 1, 1], "block": [960, 1, 1]}
    times = {"ts": round(start_us, 3), "dur": round(end_us - start_us, 3)}
    fixed = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7}
    return {**fixed, **times, "args": arguments | grid}


def passes(draw, ranks, layers, slow):
    """The kernels of each rank, and its waits in each collective in µs; `slow` adds work to one."""
    dispatch, combine = NAMES[int(draw.integers(len(NAMES)))]
    events, waits = [[] for _ in range(ranks)], np.zeros((ranks, 2))
    ready = 1000.0 + np.arange(ranks) * 20.0
    for _ in range(layers):
        for which, (name, low, high) in enumerate(((dispatch, 200, 350), (combine, 150, 700))):
            begin = ready + draw.uniform(low, high, ranks) + (np.arange(ranks) == slow) * 400
            end = begin.max() + 30 + draw.uniform(-12, 12, ranks)
            for rank in range(ranks):
                events[rank].append(kernel("fp8_gemm_kernel<4096u>(int)", ready[rank], begin[rank]))
                events[rank].append(kernel(name, begin[rank] + 0.5, end[rank]))
            waits[:, which] += begin.max() - begin
            ready = end + 0.5
    return events, waits


def job(folder, events, ranks):
    props = {"id": 0, "name": "NVIDIA H200", "computeMajor": 9, "computeMinor": 0, "numSms": 132}
    for rank in range(ranks):
        call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaGraphLaunch", "pid": 9, "tid": 9}
        call |= {"ts": 900.0, "dur": 50.0, "args": {"correlation": 100}}
        document = {
            "schemaVersion": 1,
            "deviceProperties": [props],
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": ranks},
            "traceEvents": [call, *events[rank]],
        }
        (folder / f"rank{rank}.json").write_text(json.dumps(document))
    return traceview.analyze_ranks([str(folder)])


@pytest.mark.parametrize("seed", range(4))
def test_what_each_rank_waits_and_nobody_is_late(tmp_path, seed):
    draw = np.random.default_rng(seed)
    ranks, layers = int(draw.integers(3, 9)), int(draw.integers(30, 60))
    events, waits = passes(draw, ranks, layers, slow=-1)
    report = job(tmp_path, events, ranks)
    table = {row["rank"]: row for row in report.result.tables["ranks"].rows()}
    for rank, waited in enumerate(waits.sum(axis=1)):
        assert table[rank]["wait_ns"] == pytest.approx(waited * US, rel=0.05)
    assert not len(report.result.tables["stragglers"])
    (finding,) = (each for each in report.result.findings if each.cause == "uneven-work")
    assert "in combine" in finding.message
    assert "in dispatch" in finding.message
    row = finding.evidence.row["rank"]
    assert finding.subject.name == f"rank {row}"
    wait_ns = finding.evidence.values["wait_ns"]
    assert table[row]["wait_ns"] == pytest.approx(wait_ns, rel=0.01)
    assert wait_ns in np.sort([each["wait_ns"] for each in table.values()]).tolist()[1:]


def test_a_rank_with_more_work_is_late(tmp_path):
    events, _ = passes(np.random.default_rng(9), 4, 40, slow=2)
    report = job(tmp_path, events, 4)
    assert [row["rank"] for row in report.result.tables["stragglers"].rows()] == [2]
    assert not any(each.cause == "uneven-work" for each in report.result.findings)
