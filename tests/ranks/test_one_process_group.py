"""Recordings of torch.profiler that name few of their collectives or none, of one process group."""

import json

import numpy as np
import pytest

import traceview
from tests.ranks.test_expert_parallel import US, kernel

KINDS = ("ReduceScatter_Sum_bf16_RING_LL", "AllGather_RING_LL")


def recordings(folder, draw, ranks, groups, scatter_us, last_us=30):
    """Each rank begins to record at another collective; returns who waited how long, in µs."""
    last, begins = 40, draw.integers(0, 9, ranks)
    kinds, waits = draw.integers(len(KINDS), size=last), np.zeros(ranks)
    events, ready = [[] for _ in range(ranks)], np.full(ranks, 1_000.0)
    for number in range(last):
        begin = ready + draw.uniform(100, 900, ranks)
        took = last_us if number == last - 1 else 30
        end = begin.max() + took + draw.uniform(-scatter_us, scatter_us, ranks)
        for rank in np.flatnonzero(number >= begins).tolist():
            name = f"ncclDevKernel_{KINDS[kinds[number]]}(ncclDevKernelArgsStorage<4096ul>)"
            events[rank].append(kernel("gelu", ready[rank], begin[rank]))
            events[rank].append(kernel(name, begin[rank] + 0.5, end[rank]))
        if number >= begins.max():
            waits += begin.max() - begin
        ready = end + 0.5
    call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaGraphLaunch", "pid": 9, "tid": 9}
    call |= {"ts": 900.0, "dur": 50.0, "args": {"correlation": 100}}
    props = {"id": 0, "name": "NVIDIA H200", "computeMajor": 9, "computeMinor": 0, "numSms": 132}
    for rank in range(ranks):
        job = {"backend": "nccl", "rank": rank, "world_size": ranks, "pg_count": groups}
        document = {"schemaVersion": 1, "deviceProperties": [props], "distributedInfo": job}
        document["traceEvents"] = [call, *events[rank]]
        (folder / f"rank{rank}.json").write_text(json.dumps(document))
    return waits


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("scatter_us", [2, 10])
def test_collectives_of_one_group_belong_together_without_names(tmp_path, seed, scatter_us):
    draw = np.random.default_rng(seed)
    ranks = int(draw.integers(2, 9))
    waits = recordings(tmp_path, draw, ranks, 1, scatter_us)

    report = traceview.analyze_ranks([str(tmp_path)])

    (of,) = report.matched
    assert of.ranks == tuple(range(ranks))
    for row, waited in zip(report.result.tables["ranks"].rows(), waits, strict=True):
        # Others may have recorded a few collectives more.
        assert int(row["wait_ns"]) >= 0.9 * waited * US
    assert not any("no collective has a counterpart" in note for note in report.result.notes)


def test_collectives_of_several_groups_stay_without_a_name(tmp_path):
    recordings(tmp_path, np.random.default_rng(0), 3, 2, 2)
    report = traceview.analyze_ranks([str(tmp_path)])
    assert any("communicators of collectives are not" in note for note in report.result.notes)


@pytest.mark.parametrize(("last_us", "single"), [(30, False), (20_000, True), (90_000, True)])
@pytest.mark.parametrize("ranks", [2, 4])
def test_a_single_call_that_takes_most_of_the_communication_is_named(
    tmp_path, last_us, single, ranks
):
    """A pass exchanges small results between layers, and all logits at its end."""
    recordings(tmp_path, np.random.default_rng(ranks), ranks, 1, 2, last_us)
    findings = traceview.analyze_ranks([str(tmp_path)]).result.findings
    named = [each for each in findings if "in a single call" in each.message]
    assert [each.action.split(":")[0] for each in named] == (
        ["Exchange fewer bytes in that call"] * single
    )
