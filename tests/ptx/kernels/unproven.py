"""Kernels of which a declaration would be false, and the same with what is advised instead.

A kernel that ends in `_mended` computes what its namesake does.
"""

import triton
import triton.language as tl


@triton.jit
def rows(x_ptr, y_ptr, PITCH: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    row, offsets = tl.program_id(0), tl.arange(0, BLOCK)
    mask = offsets < SIZE
    x = tl.load(x_ptr + row * PITCH + offsets, mask=mask)
    tl.store(y_ptr + row * PITCH + offsets, x + x, mask=mask)


@triton.jit
def columns(x_ptr, y_ptr, PITCH: tl.constexpr, EACH: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for column in tl.static_range(EACH):
        total += tl.load(x_ptr + row * PITCH + column)
    tl.store(y_ptr + row, total)


@triton.jit
def columns_mended(x_ptr, y_ptr, PITCH: tl.constexpr, EACH: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tile = tl.load(x_ptr + row[:, None] * PITCH + tl.arange(0, EACH)[None, :])
    tl.store(y_ptr + row, tl.sum(tile, 1))


@triton.jit
def chosen(x_ptr, y_ptr, n, FILL: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    start, at = tl.program_id(0) * n, tl.where(offsets < n, offsets, FILL)
    tl.store(y_ptr + start + at, tl.load(x_ptr + start + at, mask=at != FILL), mask=at != FILL)


@triton.jit
def chosen_mended(x_ptr, y_ptr, n, FILL: tl.constexpr, BLOCK: tl.constexpr):
    at, start = tl.arange(0, BLOCK), tl.program_id(0) * n
    tl.store(y_ptr + start + at, tl.load(x_ptr + start + at, mask=at < n), mask=at < n)


@triton.jit
def counted(ids_ptr, counts_ptr, tiles, BINS: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(counts_ptr + tl.load(ids_ptr + offsets) * tiles + tl.program_id(0), 1.0)


@triton.jit
def counted_mended(ids_ptr, counts_ptr, tiles, BINS: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    found = tl.histogram(tl.load(ids_ptr + offsets), BINS).to(tl.float32)
    tl.atomic_add(counts_ptr + tl.arange(0, BINS) * tiles + tl.program_id(0), found)


@triton.jit
def slots(x_ptr, slots_ptr, y_ptr, stride, SIZE: tl.constexpr):
    token, offsets = tl.program_id(0), tl.arange(0, SIZE)
    slot = tl.load(slots_ptr + token)
    tl.store(y_ptr + slot * stride + offsets, tl.load(x_ptr + token * SIZE + offsets))


@triton.jit
def of_lengths(x_ptr, ends_ptr, y_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < tl.load(ends_ptr)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask), mask=mask)


@triton.jit
def of_masks(x_ptr, keep_ptr, y_ptr, n, KIND: tl.constexpr, BLOCK: tl.constexpr):
    """Copies under masks that no declaration is true of."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    if KIND == "every third":
        mask &= offsets % 3 == 0
    elif KIND == "causal":
        offsets = tl.arange(0, BLOCK)
        mask = offsets <= tl.program_id(0)
    elif KIND == "loaded":
        mask &= tl.load(keep_ptr + offsets * 2) != 0
    elif KIND == "groups":
        mask &= offsets // 3 < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask), mask=mask)


@triton.jit
def groups(x_ptr, y_ptr, scale_ptr, SIZE: tl.constexpr, GROUP: tl.constexpr, COUNT: tl.constexpr):
    row = tl.program_id(0)
    for group in tl.static_range(COUNT):
        offsets = group * GROUP + tl.arange(0, GROUP)
        x = tl.load(x_ptr + row * SIZE + offsets, mask=offsets < SIZE, other=0.0)
        scale = tl.max(tl.abs(x))
        tl.store(y_ptr + row * SIZE + offsets, x / scale, mask=offsets < SIZE)
        tl.store(scale_ptr + row * COUNT + group, scale)


@triton.jit
def shaped(x_ptr, y_ptr, z_ptr, n, KIND: tl.constexpr, BLOCK: tl.constexpr):
    """Loads a value per element of a tile, and it is not the element's own."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if KIND == "remainder":
        other = tl.load(y_ptr + offsets % n)
    elif KIND == "clamp":
        other = tl.load(y_ptr + tl.minimum(offsets, tl.load(z_ptr)))
    elif KIND == "quotient":
        other = tl.load(y_ptr + (offsets // 8 + tl.program_id(1) * n))
    tl.store(x_ptr + offsets, tl.load(x_ptr + offsets) * other)


@triton.jit
def outer(x_ptr, y_ptr, z_ptr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """A tile whose columns are scaled: the scales are few, and each thread of a column has one."""
    rows, columns = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    at = tl.program_id(0) * ROWS * COLUMNS + rows[:, None] * COLUMNS + columns[None, :]
    tile = tl.load(x_ptr + at) * tl.load(y_ptr + columns)[None, :]
    tl.store(x_ptr + at, tile)
    tl.store(z_ptr + tl.program_id(0) * ROWS + rows, tl.sum(tile, 1))


@triton.jit
def turned_pieces(x_ptr, y_ptr, rows, columns, SIDE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    along, across = row * columns + at, at * rows + row
    x = tl.load(x_ptr + (along if SIDE == "store" else across), at < columns)
    tl.store(y_ptr + (across if SIDE == "store" else along), x, at < columns)


@triton.jit
def turned_tiles(x_ptr, y_ptr, rows, columns, SIDE: tl.constexpr, BLOCK: tl.constexpr):
    row = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))[:, None]
    at = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK))[None, :]
    inside = (row < rows) & (at < columns)
    x = tl.trans(tl.load(x_ptr + row * columns + at, inside))
    tl.store(y_ptr + tl.trans(at) * rows + tl.trans(row), x, tl.trans(inside))


@triton.jit
def windows(x_ptr, y_ptr, pitch, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    rows, columns = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    x = tl.load(x_ptr + tl.program_id(0) * ROWS * pitch + rows * pitch + columns)
    start = tl.program_id(0) * ROWS * COLUMNS
    tl.store(y_ptr + start + rows * COLUMNS + columns, x)


@triton.jit
def pairs(x_ptr, y_ptr, PITCH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    rows, columns = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    first = x_ptr + rows * PITCH + 2 * tl.program_id(0) * COLUMNS + columns
    a, b = tl.load(first), tl.load(first + COLUMNS)
    tl.store(y_ptr + rows * PITCH + columns, a * b)


@triton.jit
def scaled_rows(x_ptr, scale_ptr, y_ptr, n, TURNS: tl.constexpr, BLOCK: tl.constexpr):
    scale = tl.load(scale_ptr + tl.arange(0, 128))
    at = tl.arange(0, 128)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    for turn in range(TURNS):
        x = tl.load(x_ptr + turn * 128 * BLOCK + at)
        tl.store(y_ptr + turn * 128 * BLOCK + at, x * scale[:, None])


@triton.jit
def turned(x_ptr, y_ptr, pitch, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(y_ptr + columns * pitch + row, tl.load(x_ptr + row * BLOCK + columns))


@triton.jit
def unpacked(w_ptr, y_ptr, n, bits, KIND: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Each element takes its bits of a word; a scale of its group it takes whole."""
    per_word = 32 // bits
    rows, columns = tl.arange(0, ROWS), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    words = tl.load(w_ptr + rows[:, None] * n + (columns // per_word)[None, :])
    if KIND == "packed":
        words = (words >> ((columns % per_word) * bits)[None, :]) & 15
    tl.store(
        y_ptr + rows[:, None] * n + columns[None, :], words.to(tl.float16), mask=rows[:, None] < n
    )


@triton.jit
def outer_state(u_ptr, y_ptr, steps, width, SIDE: tl.constexpr):
    """A recurrence whose state is a square of the row that each step stores."""
    at = tl.arange(0, SIDE)
    state = tl.zeros((SIDE, SIDE), tl.float32)
    for step in range(steps):
        u = tl.load(u_ptr + step * width + at)
        state = state * 0.5 + u[:, None] * u[None, :]
        tl.store(y_ptr + step * width + at, tl.sum(state, 1))
