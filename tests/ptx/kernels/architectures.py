"""One kernel per feature that architectures differ in, launched where the GPU has it.

GELU and a pipelined product run everywhere, TMA from sm_90, warp specialization and scaled products
from sm_100, Gluon's own layouts on sm_90 (wgmma) and sm_100 (tcgen05).
"""

import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import blackwell, hopper
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as GluonDescriptor
from triton.tools.tensor_descriptor import TensorDescriptor

# Renamed in Triton 3.9.
load_tile = getattr(hopper.tma, "async_load", None) or hopper.tma.async_copy_global_to_shared
CAPABILITY = torch.cuda.get_device_capability()
HAS_TMA = CAPABILITY >= (9, 0)
# Consumer GPUs of the Blackwell family have no tcgen05 and no wgmma.
HAS_TCGEN05, HAS_WGMMA = CAPABILITY[0] == 10, CAPABILITY[0] == 9


@triton.jit
def gelu(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, 0.5 * x * (1 + tl.erf(x * 0.7071067811865476)), mask=mask)


@triton.jit
def product(a_ptr, b_ptr, c_ptr, K, TILE: tl.constexpr, DEPTH: tl.constexpr):
    rows, inner = tl.arange(0, TILE), tl.arange(0, DEPTH)
    left = a_ptr + rows[:, None] * K + inner[None, :]
    right = b_ptr + inner[:, None] * TILE + rows[None, :]
    total = tl.zeros((TILE, TILE), dtype=tl.float32)
    for _ in tl.range(0, K, DEPTH, num_stages=3):
        total = tl.dot(tl.load(left), tl.load(right), total)
        left += DEPTH
        right += DEPTH * TILE
    tl.store(c_ptr + rows[:, None] * TILE + rows[None, :], total)


@triton.jit
def tma_copy(source, target, TILE: tl.constexpr):
    row = tl.program_id(0) * TILE
    target.store([row, 0], source.load([row, 0]))


@triton.jit
def specialized_product(a, b, c, K, TILE: tl.constexpr, DEPTH: tl.constexpr):
    row, column = tl.program_id(0) * TILE, tl.program_id(1) * TILE
    total = tl.zeros((TILE, TILE), dtype=tl.float32)
    for k in tl.range(0, K, DEPTH, num_stages=3, warp_specialize=True):
        total = tl.dot(a.load([row, k]), b.load([column, k]).T, total)
    c.store([row, column], total.to(tl.float16))


@triton.jit
def scaled_product(a_ptr, b_ptr, a_scale_ptr, b_scale_ptr, c_ptr, TILE: tl.constexpr):
    rows, inner, scales = tl.arange(0, TILE), tl.arange(0, TILE), tl.arange(0, TILE // 32)
    a = tl.load(a_ptr + rows[:, None] * TILE + inner[None, :])
    b = tl.load(b_ptr + inner[:, None] * TILE + rows[None, :])
    a_scale = tl.load(a_scale_ptr + rows[:, None] * (TILE // 32) + scales[None, :])
    b_scale = tl.load(b_scale_ptr + rows[:, None] * (TILE // 32) + scales[None, :])
    total = tl.dot_scaled(a, a_scale, "e4m3", b, b_scale, "e4m3")
    tl.store(c_ptr + rows[:, None] * TILE + rows[None, :], total)


@gluon.jit
def gluon_wgmma(a, b, c_ptr, TILE: gl.constexpr):
    a_tile = gl.allocate_shared_memory(a.dtype, [TILE, TILE], a.layout)
    b_tile = gl.allocate_shared_memory(b.dtype, [TILE, TILE], b.layout)
    bar = gl.allocate_shared_memory(gl.int64, [1], hopper.mbarrier.MBarrierLayout())
    hopper.mbarrier.init(bar, count=1)
    hopper.mbarrier.expect(bar, a.block_type.nbytes + b.block_type.nbytes)
    load_tile(a, [0, 0], bar, a_tile)
    load_tile(b, [0, 0], bar, b_tile)
    hopper.mbarrier.wait(bar, 0)
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, TILE, 16])
    total = gl.zeros([TILE, TILE], gl.float32, layout)
    total = hopper.warpgroup_mma(a_tile, b_tile, total)
    rows = gl.arange(0, TILE, gl.SliceLayout(1, layout))
    columns = gl.arange(0, TILE, gl.SliceLayout(0, layout))
    gl.store(c_ptr + rows[:, None] * TILE + columns[None, :], total)


@gluon.jit
def gluon_tcgen05(a, b, c_ptr, TILE: gl.constexpr):
    a_tile = gl.allocate_shared_memory(a.dtype, [TILE, TILE], a.layout)
    b_tile = gl.allocate_shared_memory(b.dtype, [TILE, TILE], b.layout)
    bar = gl.allocate_shared_memory(gl.int64, [1], blackwell.mbarrier.MBarrierLayout())
    done = gl.allocate_shared_memory(gl.int64, [1], blackwell.mbarrier.MBarrierLayout())
    blackwell.mbarrier.init(bar, count=1)
    blackwell.mbarrier.init(done, count=1)
    blackwell.mbarrier.expect(bar, a.block_type.nbytes + b.block_type.nbytes)
    load_tile(a, [0, 0], bar, a_tile)
    load_tile(b, [0, 0], bar, b_tile)
    blackwell.mbarrier.wait(bar, 0)
    layout: gl.constexpr = blackwell.TensorMemoryLayout([TILE, TILE], col_stride=1)
    total = blackwell.allocate_tensor_memory(gl.float32, [TILE, TILE], layout)
    blackwell.tcgen05_mma(a_tile, b_tile, total, use_acc=False)
    blackwell.tcgen05_commit(done)
    blackwell.mbarrier.wait(done, 0)
    rows_of_threads: gl.constexpr = gl.BlockedLayout([1, TILE], [32, 1], [4, 1], [0, 1])
    sums = total.load(rows_of_threads)
    rows = gl.arange(0, TILE, gl.SliceLayout(1, rows_of_threads))
    columns = gl.arange(0, TILE, gl.SliceLayout(0, rows_of_threads))
    gl.store(c_ptr + rows[:, None] * TILE + columns[None, :], sums)


def half(*shape):
    return torch.randn(*shape, device="cuda").half()


def described(tensor, tile):
    return TensorDescriptor(tensor, list(tensor.shape), list(tensor.stride()), tile)


def gluon_described(tensor, tile):
    layout = gl.NVMMASharedLayout.get_default_for(tile, gl.float16)
    shape, strides = list(tensor.shape), list(tensor.stride())
    return GluonDescriptor(tensor, shape, strides, tile, layout)


x = torch.randn(1 << 20, device="cuda")
gelu[(1024,)](x, torch.empty_like(x), x.numel(), BLOCK=1024)
a, b = half(128, 1024), half(1024, 128)
product[(1,)](a, b, torch.empty(128, 128, device="cuda"), 1024, TILE=128, DEPTH=64)
if HAS_TMA:
    from_, to = half(1024, 64), half(1024, 64)
    tma_copy[(16,)](described(from_, [64, 64]), described(to, [64, 64]), TILE=64)
if CAPABILITY >= (10, 0):
    parts = [half(512, 1024), half(512, 1024), half(512, 512)]
    tiles = ([128, 64], [128, 64], [128, 128])
    descriptors = [described(part, tile) for part, tile in zip(parts, tiles, strict=True)]
    specialized_product[(4, 4)](*descriptors, 1024, TILE=128, DEPTH=64)
    operands = [half(128, 128).to(torch.float8_e4m3fn) for _ in range(2)]
    scales = [torch.ones(128, 4, device="cuda", dtype=torch.uint8) for _ in range(2)]
    out = torch.empty(128, 128, device="cuda")
    scaled_product[(1,)](*operands, *scales, out, TILE=128)
if HAS_WGMMA or HAS_TCGEN05:
    kernel = gluon_wgmma if HAS_WGMMA else gluon_tcgen05
    tile = [64, 64] if HAS_WGMMA else [128, 128]
    operands = [gluon_described(half(*tile), tile) for _ in range(2)]
    kernel[(1,)](*operands, torch.empty(tile, device="cuda"), TILE=tile[0])
