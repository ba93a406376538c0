"""A part for each capability, and NVIDIA's own traits of architectures against our limits."""

import re
import sys
from pathlib import Path

import pytest

from traceview.base.errors import InputError
from traceview.base.hardware import KNOWN_CAPABILITIES, limits_of, part_of

TRAITS = "cuda/__device/arch_traits.h"
NOT_IN_TRAITS = {"7.2"}
NUMBER = re.compile(r"__traits\.(\w+)\s*=\s*([\d *]+);")
INHERITED = re.compile(r"auto __traits\s*=\s*::cuda::arch_traits<arch_id::sm_(\d+)>")
START = re.compile(r"arch_traits_t arch_traits<arch_id::sm_(\d+)>\(\)")


@pytest.mark.parametrize("capability", KNOWN_CAPABILITIES)
def test_every_capability_has_a_part_that_stands_for_it(capability):
    part = part_of(capability)
    assert part.name
    assert 8 <= part.sm_count <= 192


@pytest.mark.parametrize(
    ("capability", "cores", "cores_per_sm"),
    [
        ("7.0", 5120, 64),
        ("7.2", 512, 64),
        ("7.5", 4608, 64),
        ("8.0", 6912, 64),
        ("8.6", 10752, 128),
        ("8.7", 2048, 128),
        ("8.9", 18176, 128),
        ("9.0", 16896, 128),
        ("12.0", 24064, 128),
        ("12.1", 6144, 128),
    ],
)
def test_the_sms_are_the_cores_that_the_product_is_sold_with(capability, cores, cores_per_sm):
    assert part_of(capability).sm_count * cores_per_sm == cores


def test_the_part_of_an_architecture():
    assert (part_of("sm_90a").name, part_of("sm_90").sm_count) == ("H100 SXM and H200", 132)
    with pytest.raises(InputError, match="not known"):
        part_of("sm_35")


@pytest.fixture(scope="module")
def traits() -> dict[str, dict[str, int]]:
    """What `cuda::arch_traits` of CCCL says of each architecture."""
    places = [
        *Path("/usr/local").glob(f"cuda*/include/cccl/{TRAITS}"),
        *(p for folder in sys.path for p in Path(folder).glob(f"nvidia/*/include/cccl/{TRAITS}")),
    ]
    if not places:
        pytest.skip("no arch_traits.h here: pip install nvidia-cuda-cccl")
    blocks = START.split(places[-1].read_text())
    said: dict[str, dict[str, int]] = {}
    for name, text in zip(blocks[1::2], blocks[2::2], strict=True):
        body = text.partition("return __traits;")[0]
        base = INHERITED.search(body)
        inherited = said[base[1]] if base else {}
        own = {key: _product(value) for key, value in NUMBER.findall(body)}
        said[name] = inherited | own
    return said


def _product(text: str) -> int:
    product = 1
    for factor in text.split("*"):
        product *= int(factor)
    return product


@pytest.mark.parametrize("capability", sorted(set(KNOWN_CAPABILITIES) - NOT_IN_TRAITS))
def test_the_limits_are_those_of_nvidias_traits(traits, capability):
    said, limits = traits[capability.replace(".", "")], limits_of(capability)
    assert said["max_shared_memory_per_multiprocessor"] == limits.shared_bytes_per_sm
    assert said["max_blocks_per_multiprocessor"] == limits.blocks_per_sm
    assert said["max_threads_per_multiprocessor"] == limits.threads_per_sm
