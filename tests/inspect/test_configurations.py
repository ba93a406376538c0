"""Which configurations fall away, each for one property that another one does not share."""

import json

import jsonschema
import pytest

from tests.inspect.targets.python_scripts import HEADER, needs_torch, needs_triton
from tests.ptx.compiled_kernels import a_compiled, a_report
from traceview.base.hardware import limits_of, occupancy
from traceview.cli import run
from traceview.kernels.inspect.configurations import TunedConfiguration, fill, judged
from traceview.render.json import schema

GOOD = {
    "registers": 128,
    "spill_bytes": 0,
    "shared_memory_bytes": 98_304,
    "warps_per_sm": 16,
    "buffer_bytes_per_sm": 196_608,
    "tensor_cores": 2,
    "fill": 0.97,
    "flop_per_byte": 64.0,
}
CORES = {"tensor_cores": 0, "flop_per_byte": None}


def tuned(number=0, values=None, **changes):
    fields = {**GOOD, "code": str(number).encode(), **changes}
    return TunedConfiguration(values or {"BLOCK": 64, "num_warps": 4, "num_stages": 2}, **fields)


DROPPED = (
    ({"spill_bytes": 400}, {}, "spills 400 B per thread"),
    ({"tensor_cores": 1}, {}, "mma.sync, others use wgmma"),
    ({"fill": 0.5}, {}, "its grid fills 50.0 % of the SMs' time, another one's 97.0 %"),
    (
        {"flop_per_byte": 32.0},
        {},
        "32 FLOP per loaded byte, BLOCK=64, num_warps=4, num_stages=2 has 64",
    ),
    # Of four blocks of 64×128 on 64 columns, as of 64×64, half is padding.
    (
        {"values": {"M": 64, "N": 128}, "grid": (4,), "stored": 8192},
        {"values": {"M": 64, "N": 64}, "grid": (4,), "stored": 4096},
        "N=64 covers as much with as many blocks",
    ),
    ({"dropped": "PTXASError: no"}, {}, "PTXASError: no"),
    (
        {"buffer_bytes_per_sm": 98_304},
        {},
        "98.3 kB instead of 197 kB in flight per SM, as num_warps=4, num_stages=2 has",
    ),
    (
        {"warps_per_sm": 8, **CORES},
        CORES,
        "8 instead of 16 warps per SM, as num_warps=4, num_stages=2 has",
    ),
)


@pytest.mark.parametrize(("worse", "better", "reason"), DROPPED)
def test_one_property_drops_a_configuration_in_any_order(worse, better, reason):
    for order in (1, -1):
        pair = [tuned(1, **worse), tuned(2, **better)][::order]
        found = judged(pair)[::order]
        assert [each.dropped for each in found] == [reason, None]


KEPT = (
    # Two that spill: neither is better for it.
    ({"spill_bytes": 400}, {"spill_bytes": 40}),
    # A few bytes that are spilled once need not cost time.
    ({"spill_bytes": 96}, {"spill_bytes": 0}),
    ({"fill": 0.8}, {}),
    ({"flop_per_byte": 40.0}, {}),
    # Twice as much per byte, on a grid that leaves more SMs idle.
    ({"flop_per_byte": 32.0}, {"fill": 0.9}),
    # Older tensor cores with more warps for the rest of the work, and as much per byte.
    ({"tensor_cores": 1, "warps_per_sm": 20}, {"buffer_bytes_per_sm": 230_000}),
    # Newer ones, and twice as much per byte, of a tile half beyond the data.
    (
        {"tensor_cores": 1, "flop_per_byte": 30.0, "grid": (8,), "stored": 2048},
        {"values": {"BLOCK": 128}, "grid": (4,), "stored": 8192},
    ),
    # Two splits, which store a result each.
    (
        {"values": {"N": 64, "SPLITS": 2}, "grid": (8,), "stored": 4096},
        {"values": {"N": 64, "SPLITS": 1}, "grid": (4,), "stored": 4096},
    ),
    # Fewer warps behind a pipeline that is as deep, on tensor cores.
    ({"warps_per_sm": 8}, {}),
    # Fewer warps of a larger tile.
    ({"warps_per_sm": 8, "values": {"BLOCK": 128}, **CORES}, CORES),
    # Fewer warps, more in flight.
    ({"warps_per_sm": 8, "buffer_bytes_per_sm": 400_000, **CORES}, CORES),
)


@pytest.mark.parametrize(("one", "other"), KEPT)
def test_what_only_a_measurement_weighs_is_kept(one, other):
    found = judged([tuned(1, **one), tuned(2, **other)])
    assert [each.dropped for each in found] == [None, None]


@pytest.mark.parametrize("blocks_per_sm", [1, 2, 8])
@pytest.mark.parametrize("blocks", [1, 66, 132, 133, 264, 400, 1056, 1057, 1188, 100_000])
def test_the_fill_of_a_grid_is_that_of_its_waves(blocks, blocks_per_sm):
    """Counted slot by slot: of the last wave's blocks, or of SMs without any."""
    sms, slots = 132, 132 * blocks_per_sm
    limits = occupancy(limits_of("sm_90"), 2048 // blocks_per_sm // 2, 32, 200_000 // blocks_per_sm)
    assert limits.blocks_per_sm == blocks_per_sm
    compiled = a_compiled(grid=(blocks, 1, 1))
    taken = len({block // slots for block in range(blocks)}) * slots
    expected = blocks / taken if blocks > slots else min(blocks, sms) / sms
    assert fill(a_report(compiled=compiled, occupancy=limits), sms) == pytest.approx(expected)


def test_the_first_of_equal_code_is_kept():
    values = [{"BLOCK": 64, "num_stages": stages} for stages in (1, 2, 3)]
    found = judged([tuned(7, values=each) for each in values])
    text = "the same machine code as BLOCK=64, num_stages=1"
    assert [each.dropped for each in found] == [None, text, text]
    # The same code in a grid of another size is another launch.
    other = judged([tuned(7), tuned(7, fill=0.9)])
    assert [each.dropped for each in other] == [None, None]


TUNED = """
import torch

@triton.autotune(
    [
        triton.Config({"BLOCK": 1024}, num_warps=4, num_stages=2),
        triton.Config({"BLOCK": 1024}, num_warps=4, num_stages=3),
        triton.Config({"BLOCK": 65536}, num_warps=1),
        triton.Config({"BLOCK": 2048}, num_warps=4),
        triton.Config({"BLOCK": 2000}, num_warps=4),
    ],
    key=["n"],
)
@triton.jit
def scale(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n)
    tl.store(x + at, v * tl.sum(v) / tl.max(v), mask=at < n)

n = 1 << 24
scale[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](torch.empty(n, device="cuda"), n)
"""


@pytest.mark.programs
@needs_triton
@needs_torch
def test_the_list_of_a_script(tmp_path, capfd):
    path = tmp_path / "tuned.py"
    path.write_text(HEADER + TUNED)
    assert run(["ptx", str(path), "--configs", "--json"]) == 0
    document = json.loads(capfd.readouterr().out)
    jsonschema.validate(document, schema("ptx-configs"))
    [kernel] = document["kernels"]
    dropped = [each["dropped"] or "" for each in kernel["configurations"]]
    reasons = [text.partition(" ")[0] for text in dropped]
    assert reasons == ["", "the", "spills", "", "CompilationError"]
    assert [each["values"]["BLOCK"] for each in kernel["configurations"]] == [
        1024,
        1024,
        65536,
        2048,
        2000,
    ]


def test_targets_without_an_autotuner(capsys, tmp_path):
    assert run(["ptx", str(tmp_path), "--configs"]) == 1
    assert "has no autotuner" in capsys.readouterr().err
    assert run(["ptx", "a.py", "--configs", "--triton", "3.6.0"]) == 2
    assert "--triton cannot be combined with --configs" in capsys.readouterr().err
