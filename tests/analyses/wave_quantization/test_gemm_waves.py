"""Persistent GEMMs: waves of tiles instead of waves of blocks."""

import dataclasses
import math
from collections import defaultdict
from statistics import median

import pytest

from tests.analyses.single_answer import ask, rows
from tests.build import Export
from traceview.base.vocabulary.libraries import tile
from traceview.traces.analyses.wave_quantization.analysis import ANALYSIS
from traceview.traces.analyses.wave_quantization.sweeps import tiles
from traceview.traces.facts.work.from_ranges import shaped_gemms
from traceview.traces.trace.load import load

MS = 1_000_000
# A block of nvjet takes an SM for itself: 132 at once on the H200 that `Export` describes.
NVJET = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
ONE = {"blockX": 384, "registersPerThread": 168}


def multiply(export: Export, at: int, took: int, *sides: int, name: str = NVJET, **grid: int):
    """An aten::mm of m × k by k × n, or a batch of them, and its kernel `took` ns long."""
    *batch, m, k, n = sides
    operator = "bmm" if batch else "mm"
    export.range(
        f"aten::{operator}, op_id = {at}, sizes = [{[*batch, m, k]}, {[*batch, k, n]}]", at, at + 90
    )
    export.launch((at + 10, at + 20), (at + 100, at + 100 + took), name=name, **ONE, **grid)


def test_tiles_that_do_not_fill_the_last_wave(tmp_path):
    export = Export()
    for at in (0, MS):
        multiply(export, at, 400_000, 3712, 4096, 3712, gridX=2, gridY=66)

    result = ask(ANALYSIS, export, tmp_path)

    # 29 × 15 tiles in 4 waves of 132.
    [row] = result.tables["tiles"].rows()
    assert row == {
        "short_name": NVJET,
        "label": "cuBLAS bf16 GEMM 256×128×64 NN",
        "batch": 1,
        "m": 3712,
        "n": 3712,
        "k": 4096,
        "tile": "128x256",
        "tiles": 435,
        "blocks": 132,
        "rounds": pytest.approx(435 / 132),
        "tail_idle_pct": pytest.approx(100 * (1 - 435 / 528)),
        "tail_loss_ns": round(800_000 * (1 - 435 / 528)),
        "tiles_to_fill": "396 or 528",
        "calls": 2,
        "total_ns": 800_000,
        "median_ns": 400_000,
        "name": NVJET,
        "device_id": 0,
        "host_id": None,
    }
    assert rows(result, "kernels", "waves", "tail_loss_ns", "note") == [
        (1.0, None, "persistent: each block computes several tiles (see tiles)")
    ]
    assert result.summary["tail_loss_ns"] == row["tail_loss_ns"]
    [finding] = result.findings
    # The second call is launched late: what the first one loses would be idle time.
    assert finding.time_at_stake_ns == pytest.approx(row["tail_loss_ns"] / 2, abs=1)
    assert finding.message == (
        "cuBLAS bf16 GEMM 256×128×64 NN cuts 3,712 × 3,712 into 435 tiles of 128 × 256 "
        "for 132 persistent blocks. The last of 4 tile waves has 39 tiles and leaves 17.6 % "
        "of all tile slots unused. Up to 141 µs of 800 µs can be saved. Once this is done, the CPU "
        "limits the run."
    )
    assert finding.action.startswith(
        "Try nearby sizes that fill whole tile waves, 396 or 528 tiles instead of 435"
    )
    assert finding.evidence.row["m"] == 3712


def test_sms_without_a_block_are_idle_in_every_tile_wave(tmp_path):
    export = Export()
    multiply(export, 0, 400_000, 2304, 2304, 2304, gridX=8, gridY=15)

    result = ask(ANALYSIS, export, tmp_path)

    # 18 × 9 tiles in 2 waves of 120, on 132 SMs.
    [(idle, fills)] = rows(result, "tiles", "tail_idle_pct", "tiles_to_fill")
    assert idle == pytest.approx(100 * (1 - 162 / 264))
    assert fills == "132 or 264"
    assert rows(result, "kernels", "tail_loss_ns") == [(None,)]


def test_each_gemm_of_a_kernel_is_a_row_and_the_worst_is_in_the_finding(tmp_path):
    export = Export()
    multiply(export, 0, 300_000, 3712, 4096, 3712, gridX=132)
    multiply(export, MS, 500_000, 3712, 4096, 3712, gridX=132)
    multiply(export, 2 * MS, 100_000, 4, 1280, 64, 2048, gridX=132)
    for start, took in ((0, 300_000), (MS, 500_000)):
        export.sync("cudaStreamSynchronize_v3020", start + 30, start + took + 110)

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "tiles", "batch", "m", "calls", "tiles") == [
        (1, 3712, 2, 435),
        (4, 1280, 1, 4 * 10 * 8),
    ]
    [finding] = result.findings
    lost = [loss for (loss,) in rows(result, "tiles", "tail_loss_ns")]
    assert finding.time_at_stake_ns == sum(lost)
    assert " (1 other GEMM size too). Up to" in finding.message


def test_a_kernel_off_the_critical_path_saves_nothing(tmp_path):
    export = Export()
    multiply(export, 0, 3 * MS, 3712, 4096, 3712, gridX=132)
    export.launch((5 * MS, 5 * MS + 5), (5 * MS + 10, 6 * MS), name="after a late launch")

    [finding] = ask(ANALYSIS, export, tmp_path).findings

    assert (finding.severity, finding.time_at_stake_ns) == ("info", 0)
    assert "For now the program would gain nothing" in finding.message


@pytest.mark.parametrize(
    ("sides", "grid", "name"),
    [
        # One tile per block: waves of blocks show all.
        ((3712, 4096, 3712), {"gridX": 435}, NVJET),
        # More blocks than tiles: the sums are split among them.
        ((256, 8192, 256), {"gridX": 8}, NVJET),
        # Blocks that share a tile.
        *(((3712, 4096, 3712), {"gridX": 132}, f"{NVJET}_{how}") for how in ("splitK", "2cta")),
        # No tensor is so large, and no column holds so many.
        ((2**39, 2, 2**39), {"gridX": 132}, NVJET),
        ((2**39, 2**39, 2, 2**39), {"gridX": 132}, NVJET),
        # The name has no tile.
        ((3712, 4096, 3712), {"gridX": 132}, "my_matmul"),
    ],
)
def test_what_is_no_persistent_gemm(tmp_path, sides, grid, name):
    export = Export()
    multiply(export, 0, 400_000, *sides, name=name, **grid)

    result = ask(ANALYSIS, export, tmp_path)

    assert not len(result.tables["tiles"])
    assert "see tiles" not in (rows(result, "kernels", "note")[0][0] or "")


def test_no_loss_beside_other_kernels(tmp_path):
    export = Export()
    multiply(export, 0, 400_000, 3712, 4096, 3712, gridX=132)
    export.kernel_without_launch((100, 400_100), name="other", stream=99)

    result = ask(ANALYSIS, export, tmp_path)

    assert rows(result, "tiles", "tail_loss_ns") == [(None,)]
    assert not [each for each in result.findings if "nvjet" in each.message]


def test_without_shapes_a_note_says_how_to_record_them(tmp_path):
    export = Export().launch((0, 1), (2, MS), name=NVJET, gridX=132, **ONE)

    result = ask(ANALYSIS, export, tmp_path)

    [note] = [each for each in result.notes if "--shapes" in each]
    assert note.startswith("100.0 % of kernel time is in 1 kernel of possibly")


def test_a_block_of_older_kernels_has_one_tile(tmp_path):
    name = "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_32x6_nn"
    export = Export().launch((0, 1), (2, MS), name=name, gridX=132, **ONE)

    assert not [each for each in ask(ANALYSIS, export, tmp_path).notes if "--shapes" in each]


def test_a_small_part_in_such_kernels_is_no_note(tmp_path):
    export = Export().launch((0, 1), (2, 1000), name=NVJET, gridX=132, **ONE)
    export.launch((MS, MS + 1), (MS + 2, 2 * MS), name="other")

    assert not [each for each in ask(ANALYSIS, export, tmp_path).notes if "--shapes" in each]


def test_warm_up_is_not_in_findings(tmp_path):
    export = Export()
    export.range("warm_up", 0, MS)
    multiply(export, 100, 400_000, 3712, 4096, 3712, gridX=132)
    multiply(export, 2 * MS, 400_000, 3712, 4096, 3712, gridX=132)

    result = ask(ANALYSIS, export, tmp_path)

    [finding] = result.findings
    assert finding.time_at_stake_ns == round(400_000 * (1 - 435 / 528))
    assert any("1 call of warm-up" in note for note in result.notes)


@pytest.fixture(scope="module")
def recorded(unpack):
    """tests/data/products.py on one H200: what was multiplied, how, and how fast."""
    trace = load(unpack("products"))
    found, kernels = shaped_gemms(trace), trace.recorded("kernels")
    of = [found.gemms[number] for number in found.of.tolist()]
    table = kernels.take(found.rows)
    blocks = table["grid_x"] * table["grid_y"] * table["grid_z"]
    names = table.texts("name").decode().tolist()
    took = (table["end_ns"] - table["start_ns"]).tolist()
    return list(zip(of, map(tile, names), blocks.tolist(), took, strict=True))


def test_grids_show_which_side_of_a_tile_is_which(recorded):
    """Where each block has one tile there are as many blocks as tiles, and no more than SMs."""
    oblong = [(each, cut, blocks) for each, cut, blocks, _ in recorded if each.k < 4096]

    assert len(oblong) > 20
    assert all(tiles(each, cut) <= blocks for each, cut, blocks in oblong)
    other_way = [
        tiles(dataclasses.replace(each, m=each.n, n=each.m), cut) <= blocks
        for each, cut, blocks in oblong
    ]
    assert not all(other_way)


def test_throughput_follows_the_fraction_of_slots_that_tiles_fill(recorded):
    """Times of GEMMs of 2,048 to 8,192 rows differ by the slots that their last wave leaves."""
    times = defaultdict(list)
    for each, cut, blocks, took in recorded:
        if each.m >= 2048 and each.k == each.n == 4096:
            times[each, cut, blocks].append(took)
    rates, by_slots = defaultdict(list), defaultdict(list)
    for (each, cut, blocks), every in times.items():
        rate, rounds = each.flop / median(every), math.ceil(tiles(each, cut) / blocks)
        rates[cut.rows].append(rate)
        by_slots[cut.rows].append(rate * rounds * 132 / tiles(each, cut))

    assert {256, 320, 192} <= set(rates)
    assert all(apart(every) < 0.05 for every in by_slots.values())
    assert apart(rates[256]) > 0.07
    assert apart(by_slots[256]) < apart(rates[256]) / 2


def apart(values):
    return max(values) / min(values) - 1


def test_the_tile_waves_of_the_recording(unpack):
    result = ANALYSIS.run(load(unpack("products")))

    found = rows(result, "tiles", "m", "tiles", "rounds", "calls")
    assert (2816, 352, pytest.approx(352 / 132), 4) in found
    assert len([each for each in found if each[2] > 1]) == len(found) == 25
