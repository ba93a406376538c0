"""Kernels in CUTLASS DSL 4.8.1, compiled without a GPU: CUTE_DSL_ARCH=sm_90a
CUTE_DSL_KEEP_PTX=1 CUTE_DSL_LINEINFO=1 PYTHON cutlass_kernels.py."""

from pathlib import Path

import cutlass
import cutlass.cute as cute
from cutlass.cute.runtime import make_fake_compact_tensor


@cute.kernel
def scale_vectors(x: cute.Tensor, y: cute.Tensor, a: cutlass.Float32):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    threads, _, _ = cute.arch.block_dim()
    i = block * threads + thread
    y[(None, i)] = x[(None, i)].load() * a


@cute.jit
def scale(x: cute.Tensor, y: cute.Tensor, a: cutlass.Float32):
    x4, y4 = cute.zipped_divide(x, (4,)), cute.zipped_divide(y, (4,))
    blocks = cute.size(x4, mode=[1]) // 128
    scale_vectors(x4, y4, a).launch(grid=(blocks, 1, 1), block=(128, 1, 1))


if __name__ == "__main__":
    x = make_fake_compact_tensor(cutlass.Float32, (1 << 20,), assumed_align=16)
    y = make_fake_compact_tensor(cutlass.Float32, (1 << 20,), assumed_align=16)
    compiled = cute.compile(scale, x, y, cutlass.Float32(2.0))
    Path("cutlass_dsl-4.8.1-sm90.ptx").write_text(compiled.__ptx__)
