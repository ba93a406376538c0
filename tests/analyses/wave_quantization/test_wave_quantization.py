"""Waves of blocks, the slots that the last one leaves unused, and kernels that lose nothing."""

import pytest

from tests.analyses.single_answer import ask, rows
from tests.analyses.wave_quantization.launches import ALONE, BIG, MS, kernel, only
from tests.build import Export
from tests.conftest import SHIPPED
from traceview.base import units
from traceview.base.findings import Subject
from traceview.traces.analyses.base import Result, Skipped
from traceview.traces.analyses.wave_quantization.analysis import ANALYSIS
from traceview.traces.trace import Selection
from traceview.traces.trace.load import load


def test_communication_is_not_judged_by_its_blocks(tmp_path):
    """NCCL takes few SMs on purpose, and waits for other GPUs most of its time."""
    export = kernel(Export(), 100_000, 32, name="ncclDevKernel_SendRecv(args)", **BIG)

    result = ask(ANALYSIS, export, tmp_path)

    assert not len(result.tables["kernels"])
    assert not result.findings


def test_a_last_wave_of_one_block(tmp_path):
    export = Export()
    for at in (0, 200_000):
        kernel(export, 100_000, 265, at=at, name="void gemm<float>(int)", **BIG)

    result = ask(ANALYSIS, export, tmp_path)

    assert only(result) == {
        "short_name": "void gemm",
        "label": "void gemm",
        "grid": "265x1x1",
        "block": "1024x1x1",
        "registers_per_thread": 32,
        "shared_memory_bytes": 0,
        "calls": 2,
        "total_ns": 200_000,
        "median_ns": 100_000,
        "blocks": 265,
        "blocks_per_sm": 2,
        "limiter": "warps",
        "theoretical_occupancy_pct": 100.0,
        "waves": pytest.approx(265 / 264),
        "tail_idle_pct": pytest.approx(100 * 263 / 528),
        "tail_loss_ns": round(200_000 * 263 / 528),
        "blocks_to_fill": "264 or 528",
        "note": "2.0 blocks per SM, fewer than 4",
        "name": "void gemm<float>(int)",
        "device_id": 0,
        "host_id": None,
    }
    [finding] = result.findings
    assert finding.time_at_stake_ns == round(200_000 * 263 / 528)
    assert finding.severity == "low"  # half of the time, but less than 100 µs
    assert finding.message == (
        "void gemm launches 265 blocks where the GPU holds 264 at once. The last of 2 waves has "
        "1 block and leaves 49.8 % of all block slots unused. Up to 99.6 µs of 200 µs can be saved."
    )
    assert finding.action.startswith("Launch whole waves: 264 blocks that loop")
    assert finding.subject == Subject("kernel", "void gemm<float>(int)")
    assert finding.evidence.row["grid"] == "265x1x1"
    assert finding.evidence.values["unused_pct"] == pytest.approx(100 * 263 / 528)


def test_full_waves_lose_nothing(tmp_path):
    result = ask(ANALYSIS, kernel(Export(), 100, 1056, **BIG), tmp_path)

    assert rows(result, "kernels", "waves", "tail_idle_pct", "tail_loss_ns", "blocks_to_fill") == [
        (4.0, 0.0, 0, "1056")
    ]
    assert not result.findings


def test_a_grid_smaller_than_the_gpu(tmp_path):
    """33 of 132 SMs work; what the shortest kernel takes, no larger grid would save."""
    export = kernel(kernel(Export(), 101_000, 33, **ALONE), 1000, 1056, at=200_000, **BIG)

    result = ask(ANALYSIS, export, tmp_path)

    row = next(result.tables["kernels"].rows())
    assert row["note"] == "smaller than the GPU: 99 of 132 SMs idle"
    assert (row["waves"], row["tail_idle_pct"]) == (0.25, 75.0)
    assert row["blocks_to_fill"] == "132"
    [finding] = result.findings
    assert finding.time_at_stake_ns == 75_000
    assert "launches 33 blocks for 132 SMs: 99 SMs stay idle. Up to 75.0 µs" in finding.message
    assert finding.action.startswith("Make the blocks smaller")
    assert row["tail_loss_ns"] == 75_000
    assert result.summary == {"tail_loss_ns": 75_000, "in_grids_smaller_than_the_gpu_ns": 101_000}


@pytest.mark.parametrize("threads", [64, 128, 256, 512, 1024])
@pytest.mark.parametrize("others", [0, 1, 3])
@pytest.mark.parametrize("blocks", [66, 99])
def test_kernels_whose_grids_leave_few_warps_are_one_finding(tmp_path, threads, others, blocks):
    """The sum of what their idle SMs cost is proven; what more warps save is not."""
    export = kernel(Export(), 1000, 1056, **BIG)
    for number in range(1 + others):
        took = {"at": 400_000 * (number + 1), "name": f"own_{number}(float*)", "blockX": threads}
        kernel(export, 301_000 - number, blocks, registersPerThread=32, **took)

    found = ask(ANALYSIS, export, tmp_path).findings

    few = threads <= 512
    assert len(found) == (1 if few else 1 + others)
    assert (f"the others hold {threads // 32} of 64 warps" in found[0].message) is few
    if few:
        each_ns = round(300_000 * (132 - blocks) / 132)
        assert found[0].time_at_stake_ns == pytest.approx((1 + others) * each_ns, rel=0.01)
        assert ("own_1 leaves SMs idle, too." in found[0].message) is (others == 1)
        assert ("own_1 and 2 other kernels leave" in found[0].message) is (others == 3)
        assert "Idle SMs alone cost up to" in found[0].message


def test_a_program_of_one_long_kernel_in_one_block_leaves_the_other_sms_idle(tmp_path):
    """It is the shortest kernel itself; none takes 100 µs just to start and end."""
    result = ask(ANALYSIS, kernel(Export(), 132 * MS, 1, **ALONE), tmp_path)

    [finding] = result.findings
    assert finding.time_at_stake_ns == round((132 * MS - 100_000) * 131 / 132)
    assert "launches 1 block for 132 SMs: 131 SMs stay idle" in finding.message


def test_a_grid_of_less_than_a_wave_without_an_idle_sm_is_no_finding(tmp_path):
    """The 68 blocks that have a neighbour share its SM with it: no slot is unused for long."""
    result = ask(ANALYSIS, kernel(Export(), 100_000, 200, **BIG), tmp_path)

    row = only(result)
    assert row["tail_idle_pct"] == pytest.approx(100 * 64 / 264)
    assert row["tail_loss_ns"] is None
    assert row["note"] == "one wave, 1.5 blocks per SM: no SM idle"
    assert result.summary == {"tail_loss_ns": 0, "in_grids_smaller_than_the_gpu_ns": 0}
    assert not result.findings


def test_half_a_wave_on_nearly_every_sm_loses_little(tmp_path):
    """Two blocks would fit an SM, but one uses all of it: 4 idle SMs of 132 are lost, not half."""
    export = kernel(kernel(Export(), 101_000, 128, **BIG), 1000, 1056, at=200_000, **BIG)

    result = ask(ANALYSIS, export, tmp_path)

    row = next(result.tables["kernels"].rows())
    assert row["tail_idle_pct"] == pytest.approx(100 * 136 / 264)
    assert row["tail_loss_ns"] == round(100_000 * 4 / 132)
    assert result.summary["tail_loss_ns"] == row["tail_loss_ns"]
    assert [each.time_at_stake_ns for each in result.findings] == [row["tail_loss_ns"]]


@pytest.mark.parametrize("name", SHIPPED)
def test_table_summary_and_findings_agree(unpack, name):
    """Findings claim part of what the rows claim; the summary is the sum of these."""
    result = ANALYSIS.run(load(unpack(name)))
    if isinstance(result, Skipped) or not len(result.tables["kernels"]):
        return
    table, tiles = (list(result.tables[name].rows()) for name in ("kernels", "tiles"))
    claimed = sum(row["tail_loss_ns"] or 0 for row in (*table, *tiles))
    assert result.summary["tail_loss_ns"] == claimed
    # Findings round once a kernel where rows round once each.
    rows = len(table) + len(tiles)
    assert sum(each.time_at_stake_ns for each in result.findings) <= claimed + rows
    for row in table:
        if (row["waves"] or 2) < 1:
            empty = max(132 - row["blocks"], 0) / 132
            assert (row["tail_loss_ns"] or 0) <= row["total_ns"] * empty + 1


def test_one_block_on_each_sm_is_no_finding(tmp_path):
    """Two would fit. Whether each loops over several tiles, the trace does not show."""
    result = ask(ANALYSIS, kernel(Export(), 100_000, 132, **BIG), tmp_path)

    row = only(result)
    assert (row["tail_idle_pct"], row["tail_loss_ns"]) == (50.0, None)
    assert row["note"] == "one wave, 1 block on each SM"
    assert not result.findings


def test_a_kernel_that_overlaps_others_is_no_finding(tmp_path):
    export = kernel(Export(), 100_000, 133, name="tail", **ALONE)
    kernel(export, 60_000, 1056, at=40_000, name="other", stream=8, **BIG)

    found = {row["name"]: row for row in ask(ANALYSIS, export, tmp_path).tables["kernels"].rows()}

    assert found["tail"]["tail_loss_ns"] is None
    assert found["tail"]["note"].startswith(
        "concurrent: other kernels run beside it for 60.0 % of its time"
    )


def test_a_short_overlap_does_not_hide_a_loss(tmp_path):
    export = kernel(Export(), 100_000, 133, name="tail", **ALONE)
    kernel(export, 60_000, 1056, at=60_000, name="other", stream=8, **BIG)

    found = {row["name"]: row for row in ask(ANALYSIS, export, tmp_path).tables["kernels"].rows()}

    assert found["tail"]["tail_loss_ns"] == round(100_000 * 131 / 264)


def test_copies_take_no_sm(tmp_path):
    export = kernel(Export(), 100_000, 133, **ALONE).copy((0, 1), (0, 100_000))

    assert only(ask(ANALYSIS, export, tmp_path))["tail_loss_ns"] == round(100_000 * 131 / 264)


@pytest.mark.parametrize(
    ("columns", "blocks", "limiter"),
    [
        ({"blockX": 32, "registersPerThread": 16}, 32, "blocks"),
        ({"blockX": 256, "registersPerThread": 16}, 8, "warps"),
        ({"blockX": 256, "registersPerThread": 64}, 4, "registers"),
        (
            {"blockX": 256, "registersPerThread": 16, "dynamicSharedMemory": 65536},
            3,
            "shared memory",
        ),
        (
            {
                "blockX": 256,
                "registersPerThread": 16,
                "dynamicSharedMemory": 31_744,
                "sharedMemoryExecuted": 65_536,
            },
            2,
            "shared memory config",
        ),
    ],
)
def test_what_limits_an_sm(tmp_path, columns, blocks, limiter):
    result = ask(ANALYSIS, kernel(Export(), 100, 5000, **columns), tmp_path)

    assert rows(result, "kernels", "blocks_per_sm", "limiter") == [(blocks, limiter)]


def test_a_shared_memory_config_that_would_hold_no_block_is_ignored(tmp_path):
    columns = {"dynamicSharedMemory": 65_536, "sharedMemoryExecuted": 8192}
    result = ask(ANALYSIS, kernel(Export(), 100, 500, **ALONE | columns), tmp_path)

    assert rows(result, "kernels", "blocks_per_sm", "limiter") == [(1, "registers")]


def test_clusters_bound_what_the_gpu_holds(tmp_path):
    """30 clusters of 4: 120 blocks at once, where 132 SMs have room for one each."""
    clusters = {"clusterX": 2, "clusterY": 2, "clusterZ": 1, "maxActiveClusters": 30}
    export = kernel(Export("3.24.0"), 100_000, 132, **ALONE, **clusters)

    row = only(ask(ANALYSIS, export, tmp_path))

    assert (row["blocks_per_sm"], row["limiter"], row["waves"]) == (1, "clusters", 1.1)
    assert row["blocks_to_fill"] == "120 or 240"


def test_without_clusters_an_export_that_knows_them_is_as_any(tmp_path):
    none = {"clusterX": 0, "clusterY": 0, "clusterZ": 0, "maxActiveClusters": 0}
    row = only(ask(ANALYSIS, kernel(Export("3.24.0"), 100, 264, **ALONE, **none), tmp_path))

    assert (row["limiter"], row["waves"]) == ("registers", 2.0)


def test_the_traces_own_limits_come_first(tmp_path):
    export = kernel(Export(), 100, 100, blockX=32, registersPerThread=16).gpu(
        0, smCount=10, maxBlocksPerSm=5, maxWarpsPerSm=64
    )

    row = only(ask(ANALYSIS, export, tmp_path))

    assert (row["blocks_per_sm"], row["limiter"], row["waves"]) == (5, "blocks", 2.0)


def test_the_figures_of_an_unknown_gpu_can_be_given(tmp_path):
    trace = kernel(Export(), 100, 133, **ALONE).gpu_unknown(0).load(tmp_path)

    skipped = ANALYSIS.run(trace)
    assert isinstance(skipped, Skipped)
    assert skipped.reason == (
        "the trace does not have the compute capability and number of SMs of GPU 0"
    )
    assert skipped.remedy == "give its figures: --peak capability=9.0 --peak sms=132"

    told = ANALYSIS.run(trace.but(peaks={"capability": 9.0, "sms": 132}))
    assert isinstance(told, Result)
    assert only(told)["waves"] == pytest.approx(133 / 132)


def test_an_unknown_capability_is_reported(tmp_path):
    skipped = ANALYSIS.run(kernel(Export(), 100, 133).gpu(0, computeMajor=13).load(tmp_path))

    assert isinstance(skipped, Skipped)
    assert skipped.reason == "the SM limits of '13.0' are not known (GPU 0)"
    assert skipped.remedy == "give its figures: --peak capability=9.0"


@pytest.mark.parametrize(("major", "minor"), [(5, 0), (5, 2), (6, 0), (6, 1)])
@pytest.mark.parametrize(("blocks", "threads"), [(1, 1), (1, 1024), (7, 256)])
def test_a_gpu_before_volta_is_known_by_its_own_row(tmp_path, major, minor, blocks, threads):
    of_sm = {"maxRegistersPerSm": 65_536, "maxShmemPerSm": 98_304, "maxShmemPerBlockOptin": 49_152}
    of_sm |= {"maxBlocksPerSm": 32, "maxWarpsPerSm": 64}
    export = kernel(Export(), 10**8, blocks, blockX=threads, registersPerThread=32)
    export.gpu(0, smCount=10, computeMajor=major, computeMinor=minor, **of_sm)

    result = ask(ANALYSIS, export, tmp_path)

    assert only(result)["blocks_per_sm"] == min(2048 // max(threads, 32), 32)
    [finding] = result.findings
    assert f"for 10 SMs: {units.counted(10 - blocks, 'SM')} stay idle" in finding.message

    without = export.gpu(0, maxBlocksPerSm=None, computeMajor=major, computeMinor=minor)
    assert isinstance(ANALYSIS.run(without.load(tmp_path)), Skipped)


def test_one_unknown_gpu_of_two_is_a_note(tmp_path):
    export = kernel(Export(), 100, 133, **ALONE).gpu(1, smCount=0)
    kernel(export, 100, 133, device=1, **ALONE)

    result = ask(ANALYSIS, export, tmp_path)

    assert sorted(rows(result, "kernels", "device_id", "blocks_per_sm")) == [(0, 1), (1, None)]
    assert "the trace does not have the number of SMs of GPU 1" in result.notes[0]


@pytest.mark.parametrize("gpus", [1, 2, 4])
def test_a_grid_that_several_gpus_run_is_one_finding(tmp_path, gpus):
    export = Export()
    for device in range(gpus):
        kernel(export, 100 + device, 140, device=device, **ALONE)

    [finding] = ask(ANALYSIS, export, tmp_path).findings

    assert "launches 140 blocks" in finding.message


@pytest.mark.parametrize(
    "damaged",
    [
        {"blockX": 0},
        {"gridX": 0},
        {"gridX": -7},
        {"registersPerThread": -1},
        {"registersPerThread": 4096},
        {"dynamicSharedMemory": 1 << 40},
        {"blockX": 1 << 31, "blockY": 1 << 31, "blockZ": 1 << 31},
    ],
)
def test_damaged_figures_have_no_waves(tmp_path, damaged):
    export = Export().kernel_without_launch((0, 100), **{"gridX": 5, **ALONE, **damaged})

    row = only(ask(ANALYSIS, export, tmp_path))

    assert (row["waves"], row["blocks_per_sm"], row["tail_loss_ns"]) == (None, None, None)
    assert row["note"] == "blocks per SM unknown"


def test_an_absurd_grid_stays_a_number(tmp_path):
    most = 2**31 - 1
    export = Export().kernel_without_launch((0, 100), gridX=most, gridY=most, gridZ=most, **ALONE)

    assert only(ask(ANALYSIS, export, tmp_path))["blocks"] == 1 << 60


def test_a_range_selects_launches(tmp_path):
    export = Export().range("a", 0, 50).range("b", 60, 100)
    export.launch((10, 12), (20, 1020), gridX=133, **ALONE)
    export.launch((70, 72), (1020, 2020), gridX=134, **ALONE)
    trace = export.load(tmp_path)

    chosen = ANALYSIS.run(trace.but(selection=Selection(("b",))))

    assert rows(chosen, "kernels", "blocks", "calls") == [(134, 1)]


@pytest.mark.parametrize(
    ("blocks", "once"), [(265, round(MS * 263 / 528)), (33, round((MS - 10_000) * 99 / 132))]
)
def test_launches_of_warm_up_are_in_the_table_and_not_in_findings(tmp_path, blocks, once):
    export = kernel(Export().range("warm_up", 0, 40), 10_000, 1056, **BIG)
    for place, asked in enumerate((10, 20, 30, 50)):
        start = (place + 1) * MS
        export.launch((asked, asked + 5), (start, start + MS), gridX=blocks, name="gemm", **BIG)

    result = ask(ANALYSIS, export, tmp_path)

    assert (blocks, 4) in rows(result, "kernels", "blocks", "calls")
    [finding] = result.findings
    assert finding.time_at_stake_ns == once
    assert finding.evidence.values["total_ns"] == MS
    assert "3 calls of warm-up (before the first steady step, " in result.notes[-1]


def test_graphs_recorded_whole_hide_their_kernels(tmp_path):
    export = kernel(Export(), 100, 264, **ALONE).graph_whole((0, 1), (200, 300))

    assert "1 CUDA graph launch recorded as a whole" in ask(ANALYSIS, export, tmp_path).notes[0]


def test_at_most_five_findings(tmp_path):
    export = Export()
    for place in range(8):
        kernel(export, 100_000, 133, at=place * 100_000, name=f"k{place}", **ALONE)

    assert len(ask(ANALYSIS, export, tmp_path).findings) == 5


def test_the_grids_of_a_kernel_are_one_finding(tmp_path):
    """Thirty grids that lose little each: together they are worth a word."""
    export = kernel(Export(), 3_000_000, 13_200, name="long", **ALONE)
    for place in range(30):
        kernel(export, 20_000, 140 + place, at=3_000_000 + 20_000 * place, name="moe", **ALONE)

    result = ask(ANALYSIS, export, tmp_path)

    lost = sum(r["tail_loss_ns"] for r in result.tables["kernels"].rows() if r["name"] == "moe")
    [finding] = result.findings
    assert finding.time_at_stake_ns == lost
    assert "moe launches 140 blocks where the GPU holds 132 at once" in finding.message
    assert "(29 other grid sizes too)" in finding.message


def test_grids_of_another_shape_and_as_many_blocks_are_one_size(tmp_path):
    export = kernel(Export(), 20_000, 132, **ALONE)
    export.kernel_without_launch((MS, MS + 21_000), gridX=66, gridY=2, **ALONE)
    kernel(export, 40_000, 133, at=2 * MS, **ALONE)

    result = ask(ANALYSIS, export, tmp_path)

    assert len(result.tables["kernels"]) == 3
    assert [blocks for (blocks,) in rows(result, "grids", "blocks")] == [132, 133]


@pytest.mark.parametrize(
    ("streams", "blocks", "idle"), [(2, 1, 130), (8, 3, 108), (4, 30, 12), (4, 33, 0), (2, 264, 0)]
)
def test_small_grids_side_by_side_leave_the_sms_that_none_uses(tmp_path, streams, blocks, idle):
    """Other kernels fill a GPU only if they have the blocks for it."""
    export = Export()
    for at in (0, 2 * MS, 4 * MS):
        for stream in range(streams):
            span = (at, at + MS)
            export.kernel_without_launch(
                span, gridX=blocks, stream=7 + stream, name="product(float*)", **BIG
            )
    export.kernel_without_launch((6 * MS, 6 * MS + 2_000), name="short()", gridX=264)

    messages = [each.message for each in ask(ANALYSIS, export, tmp_path).findings]

    assert [f": {idle} SMs stay idle" in each for each in messages] == [True] * (idle > 0)
    assert all(f"beside {(streams - 1) * blocks} block" in each for each in messages)
