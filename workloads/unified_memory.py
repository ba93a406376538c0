"""Share memory between CPU and GPU: pages migrate on access, or are prefetched.

    python workloads/unified_memory.py

cudaMallocManaged returns one address for both sides. A GPU that touches a page on the CPU faults:
the page migrates in small pieces in the middle of the kernel, and back again when the CPU touches
it. A prefetch moves the same pages in one piece before the kernel starts.

Expect: `memory-copies` finds UVM H2D and UVM D2H migrations by page fault under on_demand, and `kernel-share` its kernel slower than the one under prefetched.

The ranges: step_N around on_demand and prefetched, each around cpu_writes and gpu_adds. Needs a
GPU to share memory with.
"""  # noqa: E501 (the finding is one line, for a program to read)

import ctypes
import sys

import torch
from arguments import Arguments, count
from torch import Tensor

FOR_ALL = 1
"""CU_MEM_ATTACH_GLOBAL: any stream may use it."""
MOST_MEGABYTES = 256


class Managed:
    """Managed memory as two torch tensors, `on_cpu` and `on_gpu`, of the same bytes."""

    def __init__(self, elements: int) -> None:
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.bytes = 4 * elements
        self.address = ctypes.c_uint64()
        self.call("cuMemAllocManaged", ctypes.byref(self.address), self.size(), FOR_ALL)
        held = (ctypes.c_float * elements).from_address(self.address.value)
        self.on_cpu = torch.frombuffer(held, dtype=torch.float32)
        # torch.as_tensor reads this to use memory that it did not allocate.
        self.__cuda_array_interface__ = {
            "shape": (elements,),
            "typestr": "<f4",
            "data": (self.address.value, False),
            "version": 2,
        }
        self.on_gpu: Tensor = torch.as_tensor(self, device="cuda")
        if self.on_gpu.data_ptr() != self.address.value:
            sys.exit("torch copied the shared memory: nothing would migrate")

    def size(self) -> ctypes.c_size_t:
        return ctypes.c_size_t(self.bytes)

    def call(self, name: str, *arguments: object) -> None:
        """Call the driver. Exits if it returns an error."""
        error = getattr(self.driver, name)(*arguments)
        if error:
            sys.exit(f"{name}: CUDA error {error}; this machine does not offer unified memory")

    def prefetch(self) -> None:
        """Prefetch all of it to the GPU, in the order of torch's stream."""
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        device = ctypes.c_int(torch.cuda.current_device())
        self.call("cuMemPrefetchAsync", self.address, self.size(), device, stream)


def run(elements: int, steps: int) -> float:
    """Write on the CPU and add on the GPU, with pages on demand and with a prefetch."""
    torch.cuda.init()
    result = torch.zeros(elements, device="cuda")
    shared = Managed(elements)
    for step in range(steps):
        with torch.cuda.nvtx.range(f"step_{step}"):
            for name in ("on_demand", "prefetched"):
                with torch.cuda.nvtx.range(name):
                    with torch.cuda.nvtx.range("cpu_writes"):
                        shared.on_cpu.fill_(step + 1.0)
                    if name == "prefetched":
                        shared.prefetch()
                    with torch.cuda.nvtx.range("gpu_adds"):
                        result.add_(shared.on_gpu)
                    # The CPU must not write again before the GPU has read.
                    torch.cuda.synchronize()
    return float(result[-1])


def main() -> None:
    parser = Arguments(__doc__, steps=3)
    parser.add_argument(
        "--megabytes", type=count, default=32, help="size of the shared memory, at most 256"
    )
    given = parser.given()
    if given.megabytes > MOST_MEGABYTES:
        parser.error(f"--megabytes: give between 1 and {MOST_MEGABYTES}")
    if given.device == "cpu":
        print("a CPU has no GPU to share memory with: this workload needs a GPU", file=sys.stderr)
        return
    elements = given.megabytes * (1 << 20) // 4
    print(f"sum {run(elements, given.steps):.0f}")


if __name__ == "__main__":
    main()
