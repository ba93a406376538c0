"""One kernel launched with several grids: whether its times rise by the wave, as predicted."""

import pytest

from tests.analyses.single_answer import ask, rows
from tests.analyses.wave_quantization.launches import ALONE, MS, kernel
from tests.build import Export
from tests.conftest import SHIPPED
from traceview.traces.analyses.base import Result
from traceview.traces.analyses.wave_quantization.analysis import ANALYSIS
from traceview.traces.trace.load import load

SWEEP = (131, 132, 133, 264, 265)


def sweep(times: dict[int, int], **columns: object) -> Export:
    export, at = Export(), 0
    for blocks, took in times.items():
        kernel(export, took, blocks, at=at, **columns)
        at += took
    return export


def test_times_that_rise_in_steps(tmp_path):
    times = dict(zip(SWEEP, (20_000, 20_100, 40_000, 40_200, 60_000), strict=True))

    result = ask(ANALYSIS, sweep(times, **ALONE), tmp_path)

    assert rows(result, "grids", "blocks", "predicted_ratio", "measured") == [
        (131, None, None),
        (132, 1.0, None),
        (133, 2.0, "step"),
        (264, 1.0, "level"),
        (265, 1.5, "step"),
    ]
    ratios = [r for (r,) in rows(result, "grids", "measured_ratio")]
    assert ratios[2:] == [40_000 / 20_100, 40_200 / 40_000, 60_000 / 40_200]
    assert {n.rpartition("; ")[2] for (n,) in rows(result, "kernels", "note") if n} == {
        "measured: step"
    }
    assert result.findings[0].message.endswith(" 133 blocks take 2.0× the time of 132.")


def test_kernels_whose_times_rise_steadily_lose_nothing(tmp_path):
    times = {blocks: blocks * 150 for blocks in SWEEP}

    result = ask(ANALYSIS, sweep(times, **ALONE), tmp_path)

    assert [s for (s,) in rows(result, "grids", "measured")] == [
        *(None, None, "no step", "rises", "no step")
    ]
    found = {row["blocks"]: row for row in result.tables["kernels"].rows()}
    assert found[133]["tail_loss_ns"] is None
    assert found[133]["note"].endswith("measured: no step")
    assert found[133]["tail_idle_pct"] == pytest.approx(100 * 131 / 264)
    assert not result.findings


def test_grids_of_other_work_have_no_verdict(tmp_path):
    """Four times the time at one block more: no wave and no block count explains that."""
    result = ask(ANALYSIS, sweep({132: 10_000, 133: 40_000}, **ALONE), tmp_path)

    assert rows(result, "grids", "measured") == [(None,), (None,)]
    assert rows(result, "kernels", "tail_loss_ns")[0] == (round(40_000 * 131 / 264),)


def test_grids_far_apart_cannot_tell_steps_from_a_steady_rise(tmp_path):
    result = ask(ANALYSIS, sweep({132: 10_000, 1320: 100_000}, **ALONE), tmp_path)

    assert rows(result, "grids", "measured") == [(None,), (None,)]


def test_kernels_of_another_block_or_name_are_not_compared(tmp_path):
    export = kernel(Export(), 100, 132, **ALONE)
    kernel(export, 100, 133, at=MS, blockX=512, registersPerThread=64)
    kernel(export, 100, 133, at=2 * MS, name="other", **ALONE)

    assert not len(ask(ANALYSIS, export, tmp_path).tables["grids"])


def test_the_measured_step_into_a_wave_wins_over_the_other_grids(tmp_path):
    """133 blocks take 1.89× the time of 132, though larger grids of the kernel show no step."""
    times = {132: 20_000, 133: 37_800, 264: 40_000, 265: 40_300, 396: 60_000, 397: 60_300}

    result = ask(ANALYSIS, sweep(times, **ALONE), tmp_path)

    claimed = {r["blocks"]: r["tail_loss_ns"] for r in result.tables["kernels"].rows()}
    # At the time per block of the grid of 132: 37,800 − 133 × 20,000 ÷ 132.
    assert claimed[133] == 37_800 - round(133 * 20_000 / 132)
    assert (claimed[265], claimed[397]) == (None, None)
    [finding] = result.findings
    assert finding.message.endswith("133 blocks take 1.9× the time of 132.")
    assert finding.evidence.values["measured_factor"] == pytest.approx(1.89)


def test_a_predicted_loss_that_a_neighbour_does_not_measure_is_not_claimed(tmp_path):
    """Slots worth 641 µs stay unused, and a grid of a wave less takes 46 µs less time."""
    times = {660: 4_930_000, 683: 4_976_000}

    result = ask(ANALYSIS, sweep(times, **ALONE), tmp_path)

    row = next(r for r in result.tables["kernels"].rows() if r["blocks"] == 683)
    assert row["tail_idle_pct"] * row["total_ns"] / 100 == pytest.approx(690_000, rel=0.01)
    assert row["tail_loss_ns"] is None
    assert not result.findings


@pytest.mark.parametrize("after", [20_300, 39_800])
def test_grids_outside_the_selection_count_as_measurements(tmp_path, after):
    export = Export().range("a", 0, 50_000).range("b", 60_000, 100_000)
    export.launch((10, 12), (20, 20_020), gridX=132, **ALONE)
    export.launch((60_010, 60_012), (60_020, 60_020 + after), gridX=133, **ALONE)

    result = ask(ANALYSIS, export, tmp_path, include=("b",))

    [row] = result.tables["kernels"].rows()
    assert row["blocks"] == 133
    assert rows(result, "grids", "blocks") == [(132,), (133,)]
    expected = "measured: step" if after > 30_000 else "measured: no step"
    assert row["note"].endswith(expected)
    assert bool(result.findings) == (after > 30_000)


SWEEPS = {
    "waves_competing": {"spin_alone": "step", "spin": "no step"},
    "waves": {"spin_alone": "step", "spin": "step", "compete": "no step"},
}


@pytest.mark.parametrize("name", [name for name in SWEEPS if name in SHIPPED])
def test_a_spinning_kernel_steps_where_we_say(unpack, name):
    """Recorded on an H200: around each multiple of what the GPU holds, times rise as predicted."""
    result = ANALYSIS.run(load(unpack(name)))
    assert isinstance(result, Result)
    grids = list(result.tables["grids"].rows())
    for kernel_name, verdict in SWEEPS[name].items():
        mine = [row for row in grids if row["kernel"].startswith(f"{kernel_name},")]
        at_once = mine[0]["wave_blocks"]
        crossing = [row for row in mine if row["blocks"] in (at_once + 1, 2 * at_once + 1)]
        assert len(crossing) == 2
        for row in crossing:
            off = abs(row["measured_ratio"] / row["predicted_ratio"] - 1)
            assert (off <= 0.10) == (verdict == "step"), row
            assert row["measured"] == verdict
        told = [r for r in result.tables["kernels"].rows() if r["short_name"] == kernel_name]
        assert told
        for row in told:
            assert f"measured: {verdict}" in row["note"]
            assert verdict == "step" or not row["tail_loss_ns"]
        found = [f for f in result.findings if f.message.startswith(f"{kernel_name} ")]
        assert bool(found) == (verdict == "step")


def test_two_kernels_of_one_wrapper_read_differently(unpack):
    result = ANALYSIS.run(load(unpack("cuda_graphs_nodes")))
    assert isinstance(result, Result)
    labels = {row["label"] for row in result.tables["kernels"].rows()}
    assert {
        "elementwise add fp32",
        "elementwise mul fp32",
    } <= labels
    # torch chooses their grids.
    assert not result.findings
    told = rows(result, "kernels", "label", "grid", "block")
    assert len(set(told)) == len(told)
