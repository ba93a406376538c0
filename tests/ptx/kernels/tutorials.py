"""Kernels such as those of Triton's tutorials, launched once each and checked against PyTorch.

Compiled without a GPU for the parser's sake, and launched on one to compare the PTX of both ways:
python tutorials.py launches all, python tutorials.py NAME… some.
"""

import sys

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.tools.tensor_descriptor import TensorDescriptor

LAUNCHES = {}


def launches(function):
    """Add a launch; it gives what the kernel made and what PyTorch makes."""
    LAUNCHES[function.__name__] = function
    return function


def random(*shape, dtype=torch.float32):
    return torch.randn(*shape, device="cuda").to(dtype)


@triton.jit
def gelu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, 0.5 * x * (1 + tl.erf(x * 0.7071067811865476)), mask=mask)


@launches
def gelu():
    x = random(4097)
    y, odd = torch.empty_like(x), torch.empty_like(x)
    gelu_kernel[(4,)](x, y, 4096, BLOCK=1024)
    gelu_kernel[(5,)](x, odd, 4097, BLOCK=1024)
    want = torch.nn.functional.gelu(x)
    return (y[:4096], odd), (want[:4096], want)


@triton.jit
def softmax_kernel(y_ptr, x_ptr, stride, columns, BLOCK: tl.constexpr):
    row, inside = tl.program_id(0) * stride, tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row + inside, mask=inside < columns, other=-float("inf"))
    shares = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row + inside, shares / tl.sum(shares, axis=0), mask=inside < columns)


@launches
def softmax():
    x = random(64, 781)
    y = torch.empty_like(x)
    softmax_kernel[(64,)](y, x, x.stride(0), 781, BLOCK=1024, num_warps=8)
    return y, x.softmax(1)


@triton.autotune(
    configs=[
        triton.Config({"TILE": 64, "DEPTH": 32}, num_warps=4, num_stages=3),
        triton.Config({"TILE": 128, "DEPTH": 64}, num_warps=8, num_stages=3),
    ],
    key=["M", "N", "K"],
)
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, a_stride, b_stride, c_stride,
    TILE: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    columns = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inner = tl.arange(0, DEPTH)
    left = a_ptr + rows[:, None] * a_stride + inner[None, :]
    right = b_ptr + inner[:, None] * b_stride + columns[None, :]
    total = tl.zeros((TILE, TILE), dtype=tl.float32)
    for k in range(tl.cdiv(K, DEPTH)):
        rest = K - k * DEPTH
        a = tl.load(left, mask=inner[None, :] < rest, other=0.0)
        b = tl.load(right, mask=inner[:, None] < rest, other=0.0)
        total = tl.dot(a, b, total)
        left += DEPTH
        right += DEPTH * b_stride
    mask = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c_ptr + rows[:, None] * c_stride + columns[None, :], total.to(tl.float16), mask=mask)


@launches
def matmul():
    a, b = random(256, 192, dtype=torch.float16), random(192, 256, dtype=torch.float16)
    c = torch.empty(256, 256, device="cuda", dtype=torch.float16)

    def grid(meta):
        return triton.cdiv(256, meta["TILE"]), triton.cdiv(256, meta["TILE"])

    matmul_kernel[grid](a, b, c, 256, 256, 192, a.stride(0), b.stride(0), c.stride(0))
    return c, a @ b


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, head_stride, scale, LENGTH: tl.constexpr,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1) * head_stride
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = tl.arange(0, WIDTH)
    q = tl.load(q_ptr + head + rows[:, None] * WIDTH + inside[None, :])
    top = tl.full((ROWS,), -float("inf"), tl.float32)
    weight = tl.zeros((ROWS,), tl.float32)
    total = tl.zeros((ROWS, WIDTH), tl.float32)
    for start in range(0, LENGTH, STEP):
        keys = start + tl.arange(0, STEP)
        k = tl.load(k_ptr + head + keys[None, :] * WIDTH + inside[:, None])
        scores = tl.dot(q, k) * scale
        new_top = tl.maximum(top, tl.max(scores, 1))
        shares = tl.exp2(scores - new_top[:, None])
        fade = tl.exp2(top - new_top)
        weight = weight * fade + tl.sum(shares, 1)
        v = tl.load(v_ptr + head + keys[:, None] * WIDTH + inside[None, :])
        total = tl.dot(shares.to(tl.float16), v, total * fade[:, None])
        top = new_top
    result = (total / weight[:, None]).to(tl.float16)
    tl.store(out_ptr + head + rows[:, None] * WIDTH + inside[None, :], result)


@launches
def attention():
    q, k, v = (random(2, 256, 64, dtype=torch.float16) for _ in range(3))
    out = torch.empty_like(q)
    scale = 1.4426950408889634 / 8
    attention_kernel[(4, 2)](q, k, v, out, q.stride(0), scale, 256, 64, ROWS=64, STEP=64)
    return out, torch.nn.functional.scaled_dot_product_attention(q, k, v)


@triton.jit
def count_kernel(values_ptr, counts_ptr, most_ptr, lock_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    values = tl.load(values_ptr + offsets, mask=mask, other=0)
    tl.atomic_add(counts_ptr + values, 1, mask=mask, sem="relaxed")
    tl.atomic_max(most_ptr, tl.max(values, 0))
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    tl.store(lock_ptr + 1, tl.load(lock_ptr + 1) + 1)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr, 0)


@launches
def atomics():
    values = torch.arange(5000, device="cuda", dtype=torch.int32) % 17
    counts, most, lock = (
        torch.zeros(size, device="cuda", dtype=torch.int32) for size in (17, 1, 2)
    )
    count_kernel[(5,)](values, counts, most, lock, 5000, BLOCK=1024)
    want = torch.bincount(values, minlength=17).to(torch.int32)
    return (counts, most, lock), (want, want.new_tensor([16]), want.new_tensor([0, 5]))


@triton.jit
def strided_kernel(x_ptr, y_ptr, n, stride, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets * stride, mask=offsets < n)
    tl.store(y_ptr + offsets, x, mask=offsets < n)


@launches
def strided_copy():
    x = random(3, 2048)
    y = torch.empty(3, 2048, device="cuda")
    for row, stride in enumerate((1, 2, 16)):
        strided_kernel[(1,)](x[row], y[row], 2048 // stride, stride, BLOCK=2048 // stride)
    return (y[0], y[1, :1024], y[2, :128]), (x[0], x[1, ::2], x[2, ::16])


@triton.jit
def transpose_kernel(x_ptr, y_ptr, x_stride, y_stride, TILE: tl.constexpr):
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    columns = tl.program_id(1) * TILE + tl.arange(0, TILE)
    x = tl.load(x_ptr + rows[:, None] * x_stride + columns[None, :])
    tl.store(y_ptr + columns[:, None] * y_stride + rows[None, :], tl.trans(x))


@launches
def transpose():
    x = random(128, 256)
    y = torch.empty(256, 128, device="cuda")
    transpose_kernel[(2, 4)](x, y, x.stride(0), y.stride(0), TILE=64)
    return y, x.t()


@triton.jit
def layer_norm_kernel(x_ptr, w_ptr, b_ptr, y_ptr, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0) * columns
    total = tl.zeros((BLOCK,), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        inside = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row + inside, mask=inside < columns, other=0.0).to(tl.float32)
        total += x
        squares += x * x
    mean = tl.sum(total, 0) / columns
    scale = tl.rsqrt(tl.sum(squares, 0) / columns - mean * mean + eps)
    for start in range(0, columns, BLOCK):
        inside = start + tl.arange(0, BLOCK)
        mask = inside < columns
        x = tl.load(x_ptr + row + inside, mask=mask, other=0.0).to(tl.float32)
        y = (x - mean) * scale * tl.load(w_ptr + inside, mask=mask) + tl.load(b_ptr + inside, mask)
        tl.store(y_ptr + row + inside, y.to(y_ptr.dtype.element_ty), mask=mask)


@launches
def layer_norm():
    x, w, b = random(32, 1536, dtype=torch.bfloat16), random(1536), random(1536)
    y = torch.empty_like(x)
    layer_norm_kernel[(32,)](x, w, b, y, 1536, 1e-5, BLOCK=512)
    want = torch.nn.functional.layer_norm(x.float(), (1536,), w, b, 1e-5)
    return y, want.to(torch.bfloat16)


@triton.jit
def dropout_kernel(x_ptr, y_ptr, n, p, seed, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = tl.rand(seed, offsets) > p
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(y_ptr + offsets, tl.where(keep, x / (1 - p), 0.0), mask=offsets < n)


@launches
def dropout():
    x = random(4096).abs() + 1
    y = torch.empty_like(x)
    dropout_kernel[(4,)](x, y, 4096, 0.25, 42, BLOCK=1024)
    return y, torch.where(y > 0, x / 0.75, 0.0)


@triton.jit
def narrow_kernel(x_ptr, small_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask).to(tl.float8e5), mask=mask)
    small = tl.load(small_ptr + offsets, mask=mask)
    tl.store(small_ptr + offsets, small + 1, mask=mask)


@launches
def narrow_types():
    numbers = torch.arange(4096, device="cuda")
    # Numbers that fp8 holds exactly: how the others are rounded is no matter here.
    x, small = (numbers % 9 - 4).to(torch.float16), (numbers % 99).to(torch.int8)
    want = (x.float(), small + 1)
    y = torch.empty(4096, device="cuda", dtype=torch.float8_e5m2)
    narrow_kernel[(1,)](x, small, y, 4096, BLOCK=4096)
    return (y.float(), small), want


@triton.jit
def scan_kernel(x_ptr, sums_ptr, y_ptr, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + place)
    tl.store(sums_ptr + place, tl.cumsum(x, 0))
    tl.store(y_ptr + place, tl.sort(x))


@launches
def scan_and_sort():
    x = random(8, 256)
    sums, y = torch.empty_like(x), torch.empty_like(x)
    scan_kernel[(8,)](x, sums, y, BLOCK=256)
    return (sums, y), (x.cumsum(1), x.sort(1).values)


@triton.jit
def argmax_kernel(x_ptr, at_ptr, columns, BLOCK: tl.constexpr):
    inside = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    x = tl.load(x_ptr + row * columns + inside, mask=inside < columns, other=-float("inf"))
    tl.store(at_ptr + row, tl.argmax(x, 0))


@launches
def argmax():
    x = random(16, 1000)
    at = torch.empty(16, device="cuda", dtype=torch.int32)
    argmax_kernel[(16,)](x, at, 1000, BLOCK=1024)
    return at, x.argmax(1).to(torch.int32)


@triton.jit
def tile_product(a, b, c, row, column, depth, TILE: tl.constexpr, DEPTH: tl.constexpr):
    total = tl.zeros((TILE, TILE), dtype=tl.float32)
    for start in range(0, depth, DEPTH):
        left = a.load([row, start])
        right = b.load([start, column])
        total = tl.dot(left, right, total)
    c.store([row, column], total.to(tl.float16))


@triton.jit
def descriptor_kernel(a, b, c, depth, TILE: tl.constexpr, DEPTH: tl.constexpr):
    row, column = tl.program_id(0) * TILE, tl.program_id(1) * TILE
    tile_product(a, b, c, row, column, depth, TILE, DEPTH)


@launches
def tma_matmul():
    a, b = random(256, 128, dtype=torch.float16), random(128, 256, dtype=torch.float16)
    c = torch.empty(256, 256, device="cuda", dtype=torch.float16)
    shapes = ((a, [128, 64]), (b, [64, 128]), (c, [128, 128]))
    described = [TensorDescriptor.from_tensor(tensor, shape) for tensor, shape in shapes]
    descriptor_kernel[(2, 2)](*described, 128, TILE=128, DEPTH=64, num_warps=8)
    return c, a @ b


@triton.jit
def persistent_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, SMS: tl.constexpr, TILE: tl.constexpr, DEPTH: tl.constexpr
):
    a = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [TILE, DEPTH])
    b = tl.make_tensor_descriptor(b_ptr, [K, N], [N, 1], [DEPTH, TILE])
    c = tl.make_tensor_descriptor(c_ptr, [M, N], [N, 1], [TILE, TILE])
    across = tl.cdiv(N, TILE)
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, TILE) * across, SMS):
        row, column = tile // across * TILE, tile % across * TILE
        tile_product(a, b, c, row, column, K, TILE, DEPTH)


@launches
def persistent_matmul():
    a, b = random(512, 128, dtype=torch.float16), random(128, 512, dtype=torch.float16)
    c = torch.empty(512, 512, device="cuda", dtype=torch.float16)
    triton.set_allocator(lambda size, _, __: torch.empty(size, device="cuda", dtype=torch.int8))
    blocks = min(16, torch.cuda.get_device_properties(0).multi_processor_count)
    persistent_kernel[(blocks,)](a, b, c, 512, 512, 128, SMS=blocks, TILE=128, DEPTH=64)
    return c, a @ b


@triton.jit
def foreign_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    """A function of libdevice and a line of assembly."""
    place = tl.arange(0, BLOCK)
    x = libdevice.asin(tl.load(x_ptr + place))
    y = tl.inline_asm_elementwise("neg.f32 $0, $1;", "=r,r", [x], tl.float32, True, 1)
    tl.store(y_ptr + place, y)


@launches
def foreign_code():
    x = torch.rand(512, device="cuda")
    y = torch.empty_like(x)
    foreign_kernel[(1,)](x, y, BLOCK=512)
    return y, -torch.asin(x)


def close(made, wanted):
    pairs = zip(made, wanted, strict=True) if isinstance(made, tuple) else [(made, wanted)]
    for one, other in pairs:
        torch.testing.assert_close(one, other, rtol=2e-2, atol=2e-2)


if __name__ == "__main__":
    torch.manual_seed(0)
    for name in sys.argv[1:] or LAUNCHES:
        close(*LAUNCHES[name]())
        print(name, "agrees with PyTorch")
