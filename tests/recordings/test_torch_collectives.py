"""Collectives of torch.distributed on two H200, traced by torch.profiler: sizes as called."""

import lzma

import pytest

from tests.places import DATA
from traceview import load
from traceview.traces.facts.collectives import transfers
from traceview.traces.facts.ranges.ranges import attributed_operations, range_tree

# KiB of the larger buffer and on the link, by the range around the call.
CALLED = {
    "all_reduce": (1024, 1024),
    "all_gather_into_tensor": (512, 256),
    "all_gather_list": (256, 128),
    "reduce_scatter_tensor": (512, 256),
    "reduce_scatter_list": (256, 128),
    "all_to_all_even": (512, 256),
    "all_to_all_list": (128, 64),
    "broadcast": (2048, 2048),
    "reduce": (768, 768),
    "gather": (192, 96),
    "scatter": (160, 80),
    "message": (160, 160),
    "messages_both_ways": (224, 224),
    "messages_of_one_way": (144, 144),
    "all_gathers_coalesced": (192, 96),
    "all_reduces_coalesced": (80, 80),
    "functional": (1024, 1024),
}
# Rank 0 sends 128 and 384 KiB and takes 2 x 128, rank 1 takes 2 x 384.
UNEVEN = {0: (512, 384), 1: (768, 384)}


@pytest.mark.parametrize("rank", [0, 1])
def test_sizes_are_those_that_the_program_asked_for(tmp_path, rank: int):
    packed = DATA / f"ranks/kinds.rank{rank}.json.xz"
    path = tmp_path / "kinds.json"
    path.write_bytes(lzma.decompress(packed.read_bytes()))
    trace = load(path)
    moved, tree = transfers(trace), range_tree(trace)
    paths = tree.paths.texts(attributed_operations(trace).path(tree)[moved.operation]).decode()
    expected = CALLED | dict.fromkeys(("all_to_all_uneven", "all_to_all_rows"), UNEVEN[rank])
    checked = 0
    for where, size, bus in zip(paths, moved.bytes.tolist(), moved.bus_bytes.tolist(), strict=True):
        for call in expected.keys() & set((where or "").split("/")):
            assert (call, size / 1024, bus / 1024) == (call, *expected[call])
            checked += 1
    assert checked == 2 * len(expected)
