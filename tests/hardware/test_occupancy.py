"""Occupancy: known kernels by hand, and thousands of cases against NVIDIA's own calculator."""

import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceview.base.errors import InputError
from traceview.base.hardware import KNOWN_CAPABILITIES, Occupancy, limits_of, occupancy

HEADER = "cuda_occupancy.h"
# The first version of the header that has barriers in its sums as of today.
FIRST_WITH_BARRIERS = (12, 1)
# In the order of the header's bits, lowest first, and of PROGRAM's columns.
LIMITERS = ("warps", "registers", "shared memory", "blocks", "barriers")
UNBOUND = 2**31 - 1
CASES_PER_CAPABILITY = 300

PROGRAM = r"""
#include <climits>
#include <cstdio>
#include "cuda_occupancy.h"

int main() {
  int major, minor, threads, sm_shared, opt_in, reserved, block, regs, stat, dyn, barriers;
  while (scanf("%d %d %d %d %d %d %d %d %d %d %d", &major, &minor, &threads, &sm_shared, &opt_in,
               &reserved, &block, &regs, &stat, &dyn, &barriers) == 11) {
    cudaOccDeviceProp device;
    device.computeMajor = major;
    device.computeMinor = minor;
    device.maxThreadsPerBlock = 1024;
    device.maxThreadsPerMultiprocessor = threads;
    device.regsPerBlock = device.regsPerMultiprocessor = 65536;
    device.warpSize = 32;
    device.sharedMemPerBlock = 48 * 1024;
    device.sharedMemPerMultiprocessor = sm_shared;
    device.numSms = 1;
    device.sharedMemPerBlockOptin = opt_in;
    device.reservedSharedMemPerBlock = reserved;
    cudaOccFuncAttributes kernel;
    kernel.maxThreadsPerBlock = INT_MAX;
    kernel.numRegs = regs;
    kernel.sharedSizeBytes = stat;
    kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    kernel.maxDynamicSharedSizeBytes = dyn;
    kernel.numBlockBarriers = barriers;
    cudaOccDeviceState state;
    cudaOccResult r;
    int status = cudaOccMaxActiveBlocksPerMultiprocessor(&r, &device, &kernel, &state, block, dyn);
    printf("%d %d %u %d %d %d %d %d\n", status, r.activeBlocksPerMultiprocessor, r.limitingFactors,
           r.blockLimitWarps, r.blockLimitRegs, r.blockLimitSharedMem, r.blockLimitBlocks,
           r.blockLimitBarriers);
  }
}
"""


def test_a_register_hungry_matmul_on_an_h200():
    got = occupancy(limits_of("9.0"), 128, registers=168, dynamic_shared_bytes=98_304)
    assert got == Occupancy(
        blocks_per_sm=2,
        active_warps=8,
        theoretical_occupancy_pct=12.5,
        limiters=("shared memory",),
        blocks_by_limit={"warps": 16, "blocks": 32, "registers": 3, "shared memory": 2},
    )
    assert got.limiter == "shared memory"


def test_full_occupancy_is_bound_by_warps():
    got = occupancy(limits_of("8.0"), 256, registers=32)
    assert (got.theoretical_occupancy_pct, got.limiters) == (100.0, ("warps", "registers"))
    assert got.limiter == "warps"


def test_small_blocks_run_into_the_limit_of_blocks():
    got = occupancy(limits_of("8.6"), 32, registers=16)
    assert (got.blocks_per_sm, got.limiter) == (16, "blocks")
    assert got.theoretical_occupancy_pct == pytest.approx(100 / 3)


def test_barriers_bound_from_hopper_on():
    assert occupancy(limits_of("9.0"), 128, 32, barriers=16).limiters == ("barriers",)
    assert "barriers" not in occupancy(limits_of("8.0"), 128, 32, barriers=16).blocks_by_limit


@pytest.mark.parametrize(
    ("case", "limiter"),
    [
        ({"block_threads": 1025, "registers": 16}, "warps"),
        ({"block_threads": 1024, "registers": 72}, "registers"),
        (
            {"block_threads": 32, "registers": 16, "dynamic_shared_bytes": 99 * 1024 + 1},
            "shared memory",
        ),
    ],
)
def test_what_cannot_be_launched_has_no_block(case, limiter):
    got = occupancy(limits_of("8.6"), **case)
    assert (got.blocks_per_sm, got.limiter, got.theoretical_occupancy_pct) == (0, limiter, 0.0)


def test_the_largest_shared_memory_fits_once():
    largest = limits_of("8.6").opt_in_shared_bytes_per_block
    assert occupancy(limits_of("8.6"), 32, 16, dynamic_shared_bytes=largest).blocks_per_sm == 1


@pytest.mark.parametrize("case", [(0, 32), (-1, 32), (128, -1), (128, 32, -1), (128, 32, 0, -1)])
def test_impossible_numbers_are_an_error(case):
    with pytest.raises(InputError, match="no kernel has"):
        occupancy(limits_of("9.0"), *case)


@given(
    st.sampled_from(KNOWN_CAPABILITIES),
    st.integers(1, 1024),
    st.integers(0, 254),
    st.integers(0, 100_000),
)
def test_a_kernel_that_takes_more_never_gets_more_blocks(capability, block, registers, shared):
    limits = limits_of(capability)
    lean = occupancy(limits, block, registers, shared)
    assert occupancy(limits, block, registers + 1, shared).blocks_per_sm <= lean.blocks_per_sm
    assert occupancy(limits, block, registers, shared + 1).blocks_per_sm <= lean.blocks_per_sm
    assert 0 <= lean.theoretical_occupancy_pct <= 100


@pytest.fixture(scope="module")
def calculator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """NVIDIA's occupancy calculator as a program that reads cases and prints its answers."""
    header, compiler = _header(), shutil.which("g++")
    if not header:
        pytest.skip(f"no {HEADER} (of CUDA 13 or newer) here: install the CUDA toolkit")
    if not compiler:
        pytest.skip("no g++ here")
    folder = tmp_path_factory.mktemp("occupancy")
    (folder / "program.cpp").write_text(PROGRAM)
    command = [compiler, "-I", header.parent, "program.cpp", "-o", "program"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "program"


def _header() -> Path | None:
    nvcc = shutil.which("nvcc")
    places = [
        *([Path(nvcc).resolve().parent.parent / "include"] if nvcc else []),
        *sorted(Path("/usr/local").glob("cuda*/include"), reverse=True),
    ]
    found = (place / HEADER for place in places)
    return next(
        (path for path in found if path.exists() and _version(path) >= FIRST_WITH_BARRIERS), None
    )


def _version(header: Path) -> tuple[int, ...]:
    text = header.read_text()
    return tuple(
        int(re.search(rf"#define __CUDA_OCC_{part}__ (\d+)", text)[1])
        for part in ("MAJOR", "MINOR")
    )


def _cases(capability: str) -> list[tuple[int, int, int, int, int]]:
    """Block, registers, static and dynamic shared bytes, barriers: seeded, with the edges."""
    draw = random.Random(capability)
    largest = limits_of(capability).opt_in_shared_bytes_per_block
    edges = [
        (block, registers, 0, shared, barriers)
        for block in (1, 32, 33, 1024, 1025)
        for registers in (0, 1, 64, 65, 255)
        for shared in (0, 1, largest, largest + 1)
        for barriers in (0, 16)
    ]
    return edges + [
        (
            draw.choice((draw.randint(1, 1024), 32 * draw.randint(1, 32))),
            draw.randint(0, 255),
            draw.choice((0, draw.randint(0, 4_096), draw.randint(0, 48 * 1024))),
            draw.choice((0, draw.randint(0, 16_384), draw.randint(0, largest))),
            draw.randint(0, 16),
        )
        for _ in range(CASES_PER_CAPABILITY)
    ]


def _question(capability: str, case: tuple[int, ...]) -> str:
    limits = limits_of(capability)
    device = (
        *map(int, capability.split(".")),
        limits.threads_per_sm,
        limits.shared_bytes_per_sm,
        limits.opt_in_shared_bytes_per_block,
        limits.reserved_shared_bytes_per_block,
    )
    return " ".join(map(str, (*device, *case)))


def _answer(line: str) -> tuple[int, set[str], dict[str, int]]:
    """Blocks an SM, limiters, and the blocks by each limit that binds at all."""
    status, blocks, factors, *by_limit = map(int, line.split())
    assert status == 0
    allowed = {n: b for n, b in zip(LIMITERS, by_limit, strict=True) if b != UNBOUND}
    # Where barriers bind, the header leaves the bits of what would have bound without them.
    limiters = {name for name, value in allowed.items() if value == blocks}
    assert limiters <= {name for bit, name in enumerate(LIMITERS) if factors >> bit & 1}
    return blocks, limiters, allowed


def test_it_equals_nvidias_calculator(calculator):
    asked = [(capability, case) for capability in KNOWN_CAPABILITIES for case in _cases(capability)]
    assert len(asked) >= 3_000
    text = "\n".join(_question(*one) for one in asked)
    done = subprocess.run([calculator], input=text, capture_output=True, text=True, check=True)
    answers = done.stdout.splitlines()
    for (capability, case), line in zip(asked, answers, strict=True):
        block, registers, static, dynamic, barriers = case
        ours = occupancy(limits_of(capability), block, registers, static, dynamic, barriers)
        got = ours.blocks_per_sm, set(ours.limiters), dict(ours.blocks_by_limit)
        assert got == _answer(line), (capability, case)
