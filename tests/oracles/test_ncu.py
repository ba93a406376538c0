"""What Nsight Compute says of 110 launches on an H200 against what we compute from a recording.

The two ran the same script; the launches come in the same order. Nsight Compute's limit by shared
memory is that of the configuration which the driver chose for the launch; the recording has it.
"""

import csv
import io
import lzma
from dataclasses import replace

import pytest

from tests.places import DATA
from traceview.base.hardware import limits_of, occupancy
from traceview.traces.analyses.wave_quantization import analysis
from traceview.traces.facts.launch_configurations import configurations
from traceview.traces.trace.load import load

# These use 16 named barriers, which no table of a recording holds and no code here tells.
WITH_BARRIERS = "barriers"
OF_NCU = "launch__"


@pytest.fixture(scope="module")
def said() -> list[dict[str, str]]:
    text = lzma.decompress((DATA / "launches.ncu.csv.xz").read_bytes()).decode()
    _units, *rows = csv.DictReader(io.StringIO(text))
    return [{name: cell.replace(",", "") for name, cell in row.items()} for row in rows]


@pytest.fixture(scope="module")
def trace(unpack):
    return load(unpack("launches"))


@pytest.fixture(scope="module")
def pairs(said, trace):
    """A launch as Nsight Compute has it, and as the recording has it."""
    return list(zip(said, trace.kernels.rows(), strict=True))


def number(row: dict[str, str], name: str) -> int:
    return int(row[OF_NCU + name])


def test_they_are_the_same_launches(pairs):
    assert len(pairs) == 110
    for ncu, ours in pairs:
        grid = ours["grid_x"] * ours["grid_y"] * ours["grid_z"]
        block = ours["block_x"] * ours["block_y"] * ours["block_z"]
        assert (number(ncu, "grid_size"), number(ncu, "block_size")) == (grid, block)
        short = str(ours["short_name"])
        assert short in ncu["Kernel Name"] or len(ncu["Kernel Name"]) == 120, short


def test_registers_and_shared_memory(pairs):
    reserved = limits_of("9.0").reserved_shared_bytes_per_block
    for ncu, ours in pairs:
        assert number(ncu, "registers_per_thread") == ours["registers_per_thread"]
        assert number(ncu, "shared_mem_per_block_static") == ours["static_shared_memory_bytes"]
        assert number(ncu, "shared_mem_per_block_dynamic") == ours["dynamic_shared_memory_bytes"]
        assert number(ncu, "shared_mem_per_block_driver") == reserved
        assert number(ncu, "shared_mem_config_size") == ours["shared_memory_config_bytes"]


def test_every_limit_of_the_occupancy(pairs):
    for ncu, ours in pairs:
        limits = replace(limits_of("9.0"), shared_bytes_per_sm=ours["shared_memory_config_bytes"])
        found = occupancy(
            limits,
            number(ncu, "block_size"),
            ours["registers_per_thread"],
            ours["static_shared_memory_bytes"],
            ours["dynamic_shared_memory_bytes"],
            number(ncu, "barrier_count"),
        ).blocks_by_limit
        # Nsight Compute says how many barriers allow only up to the limit of blocks.
        allowed = {**found, "barriers": min(found.get("barriers", 32), 32)}
        for limit, name in (
            ("blocks", "blocks"),
            ("warps", "warps"),
            ("registers", "registers"),
            ("shared memory", "shared_mem"),
            ("barriers", "barriers"),
        ):
            assert allowed[limit] == number(ncu, f"occupancy_limit_{name}"), (limit, ncu)


def test_blocks_an_sm_occupancy_and_waves(pairs, trace):
    answer = analysis.ANALYSIS.run(trace)
    ours = {key(row): row for row in answer.tables["kernels"].rows()}
    compared = 0
    for ncu, launch in pairs:
        if launch["name"] == WITH_BARRIERS:
            continue
        row = ours[key({**launch, **sizes(launch)})]
        least = min(
            number(ncu, f"occupancy_limit_{limit}")
            for limit in ("blocks", "warps", "registers", "shared_mem", "barriers")
        )
        assert row["blocks_per_sm"] == least
        occupied = float(ncu["sm__maximum_warps_per_active_cycle_pct"])
        assert row["theoretical_occupancy_pct"] == pytest.approx(occupied, abs=0.005001)
        waves = float(ncu["launch__waves_per_multiprocessor"])
        assert row["waves"] == pytest.approx(waves, abs=0.005001)
        compared += 1
    assert compared == 108


def test_named_barriers_are_the_one_thing_that_only_code_tells(pairs, trace):
    """16 barriers let 4 blocks on an SM; what the driver set aside tells that it is few."""
    mine = [ncu for ncu, launch in pairs if launch["name"] == WITH_BARRIERS]
    assert [number(ncu, "occupancy_limit_barriers") for ncu in mine] == [4, 4]
    found = [each for each in configurations(trace) if each.name == WITH_BARRIERS]
    assert [each.barriers for each in found] == [0]
    answer = analysis.ANALYSIS.run(trace)
    [row] = [r for r in answer.tables["kernels"].rows() if r["name"] == WITH_BARRIERS]
    assert (row["blocks_per_sm"], row["limiter"]) == (8, "shared memory config")


def sizes(launch):
    return {
        "grid": "x".join(str(launch[f"grid_{axis}"]) for axis in "xyz"),
        "block": "x".join(str(launch[f"block_{axis}"]) for axis in "xyz"),
        "shared_memory_bytes": launch["static_shared_memory_bytes"]
        + launch["dynamic_shared_memory_bytes"],
    }


def key(row):
    names = ("name", "grid", "block", "registers_per_thread", "shared_memory_bytes")
    return tuple(row[name] for name in names)
