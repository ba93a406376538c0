"""Launch one kernel at many grid sizes: its time is a staircase, one step per wave.

    python workloads/wave_quantization.py

A GPU holds a limited number of blocks at once: blocks per SM × SMs. One block more needs a second
wave to itself, in which nearly the whole GPU has nothing to do. The staircase is sharp if a block
takes the same time whatever else its SM does. Blocks that compete for the issue slots of their SM,
or that take unequal times, show none.

Expect: `wave-quantization` finds the last wave of spin_alone nearly empty one block past each multiple of the SMs.

Three kernels: `spin_alone` asks for so much shared memory that an SM holds one block; `spin`
leaves room for as many blocks as its threads allow and sleeps while it waits; `compete` does not
sleep, so that four blocks keep an SM as busy as eight, and the step comes where no wave ends.
"""  # noqa: E501 (the finding is one line, for a program to read)

import sys

import torch
from arguments import Arguments, count

SOURCE = r"""
extern "C" __global__ void spin(long long* out, int cycles) {
    long long begin = clock64();
    while (clock64() - begin < cycles) __nanosleep(100);
    if (cycles < 0) out[0] = begin;
}
extern "C" __global__ void compete(long long* out, int cycles) {
    long long begin = clock64();
    while (clock64() - begin < cycles) {}
    if (cycles < 0) out[0] = begin;
}
extern "C" __global__ void spin_alone(long long* out, int cycles) {
    extern __shared__ long long room[];
    long long begin = clock64();
    while (clock64() - begin < cycles) {}
    if (cycles < 0) out[0] = begin + room[0];
}
"""
THREADS = 256
# Just over half of an SM's shared memory: a second block does not fit.
ROOM_BYTES = 120 * 1024


def grids(at_once: int) -> list[int]:
    """Grid sizes around each multiple of the blocks that the GPU holds at once, and in between."""
    whole = [at_once // 4, at_once // 2, at_once, 2 * at_once, 3 * at_once]
    return sorted({1, *whole, *(n - 1 for n in whole[2:]), *(n + 1 for n in whole[2:])})


def sweep(cycles: int, repeats: int) -> None:
    gpu = torch.cuda.get_device_properties()
    alone, spin, compete = (
        torch.cuda._compile_kernel(SOURCE, name) for name in ("spin_alone", "spin", "compete")
    )
    alone.set_shared_memory_config(ROOM_BYTES)
    sms = gpu.multi_processor_count
    together = sms * (gpu.max_threads_per_multi_processor // THREADS)
    out = torch.zeros(1, dtype=torch.int64, device="cuda")
    for kernel, at_once, shared in (
        (alone, sms, ROOM_BYTES),
        (spin, together, 0),
        (compete, together, 0),
    ):
        for blocks in grids(at_once):
            with torch.cuda.nvtx.range(f"blocks_{blocks}"):
                for _ in range(repeats):
                    kernel((blocks, 1, 1), (THREADS, 1, 1), (out, cycles), shared_mem=shared)
    torch.cuda.synchronize()


def main() -> None:
    parser = Arguments(__doc__, steps=10, of="launches of each grid; ")
    parser.add_argument(
        "--cycles", type=count, default=40_000, help="how long a block spins; default: 40000"
    )
    given = parser.given()
    if given.device == "cpu":
        print("a CPU has no waves of blocks: this workload needs a GPU", file=sys.stderr)
        return
    sweep(given.cycles, given.steps)


if __name__ == "__main__":
    main()
