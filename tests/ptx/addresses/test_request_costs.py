"""What a warp's request costs, from the addresses in PTX."""

import pytest

from tests.ptx.compiled_kernels import HEADER, a_compiled, ptx_kernel
from traceview.kernels.ptx.accesses import accesses
from traceview.kernels.ptx.addresses.request_costs import RequestCosts
from traceview.kernels.ptx.addresses.slicing import Provenance
from traceview.kernels.ptx.model import Argument
from traceview.kernels.ptx.parser import parse_ptx

ARGUMENTS = (Argument("x", "*fp32", True), Argument("y", "*fp32", True), Argument("n", "i32"))


def costs(ptx, arguments=ARGUMENTS, **changes):
    """The cost of each access of the only kernel, in order."""
    (function,) = parse_ptx(ptx).kernels()
    compiled = a_compiled(ptx, arguments=arguments, **changes)
    found = RequestCosts.of(Provenance.of(function, arguments), compiled)
    return [found.cost(access) for access in accesses(function)]


@pytest.mark.parametrize(
    ("stride", "width", "sectors", "ideal"),
    [
        (4, "b32", 4, 4),
        (8, "b32", 8, 4),
        (4096, "b32", 32, 4),
        (16, "v4.b32", 16, 16),
        (4096, "v4.b32", 32, 16),
    ],
)
def test_the_stride_between_threads_sets_the_sectors(stride, width, sectors, ideal):
    registers = "{%r10, %r11, %r12, %r13}" if "v4" in width else "%r10"
    (cost,) = costs(
        ptx_kernel(
            f"mad.wide.s32 %rd5, %r1, {stride}, %rd1; ld.global.{width} {registers}, [%rd5];"
        )
    )
    assert (cost.sectors, cost.ideal_sectors) == (sectors, ideal)
    assert cost.wavefronts is None


def test_an_array_that_is_launched_unaligned_costs_a_sector_more():
    shifted = (Argument("x", "*fp32"), *ARGUMENTS[1:])
    (cost,) = costs(ptx_kernel("ld.global.b32 %r10, [%rd3];"), shifted, how="launched")
    assert (cost.sectors, cost.ideal_sectors) == (5, 4)


def test_masked_threads_touch_nothing():
    body = "setp.lt.s32 %p1, %r1, 8; @%p1 ld.global.b32 %r10, [%rd3];"
    (cost,) = costs(ptx_kernel(body))
    assert (cost.sectors, cost.ideal_sectors) == (1, 1)


def test_a_gather_has_no_known_cost():
    body = (
        "ld.global.b32 %r10, [%rd3]; mad.wide.s32 %rd5, %r10, 4, %rd2; "
        "ld.global.v2.b32 {%r11, %r12}, [%rd5];"
    )
    first, gathered = costs(ptx_kernel(body))
    assert first.sectors == 4
    assert gathered is None


def test_an_offset_that_all_threads_load_is_no_gather():
    body = (
        "ld.global.b32 %r10, [%rd2]; shl.b32 %r12, %r10, 3; add.s32 %r13, %r12, %r1; "
        "mad.wide.s32 %rd5, %r13, 4, %rd1; ld.global.v2.b32 {%r14, %r15}, [%rd5];"
    )
    _, moved = costs(ptx_kernel(body))
    assert moved.sectors <= moved.ideal_sectors + 1


@pytest.mark.parametrize("stride", ["ld.global.s32 %r9, [%rd2];", "ld.param.b32 %r9, [k_s];"])
def test_a_stride_that_the_code_does_not_tell_has_no_known_cost(stride):
    """Loaded, as the leading dimension of a grouped GEMM, or of unknown type."""
    body = (
        f"{stride} mul.lo.s32 %r8, %r1, %r9; mad.wide.s32 %rd5, %r8, 4, %rd1; "
        "ld.global.b32 %r10, [%rd5]; mad.wide.s32 %rd6, %r9, 4, %rd3; ld.global.u32 %r11, [%rd6];"
    )
    ptx = ptx_kernel(body, ".param .u64 k_x, .param .u64 k_y, .param .u32 k_n, .param .u32 k_s")
    *_, scaled, moved = costs(ptx, ())
    assert scaled is None
    # The same for all threads, it moves their run.
    assert moved.ideal_sectors == 4


def shared(at: str) -> str:
    """A kernel that reads the word of shared memory at an expression over %r1, the thread."""
    body = f"mov.u32 %r3, smem; {at} add.s32 %r5, %r3, %r4; ld.shared.b32 %r6, [%r5+16];"
    return f"{HEADER}\n.extern .shared .align 16 .b8 smem[];\n{_body(body)}"


def _body(text: str) -> str:
    return ptx_kernel(text).removeprefix(HEADER)


@pytest.mark.parametrize(
    ("at", "wavefronts"),
    [
        ("shl.b32 %r4, %r1, 2;", 1),
        ("shl.b32 %r4, %r1, 3;", 2),
        ("shl.b32 %r4, %r1, 7;", 32),
        # Padded to 33 words per row.
        ("mul.lo.s32 %r4, %r1, 132;", 1),
        # The column is swizzled with the row.
        ("and.b32 %r7, %r1, 31; mul.lo.s32 %r8, %r7, 33; shl.b32 %r4, %r8, 2;", 1),
        ("shl.b32 %r8, %r1, 5; xor.b32 %r9, %r8, %r1; shl.b32 %r4, %r9, 2;", 1),
    ],
)
def test_the_banks_of_shared_addresses_set_the_wavefronts(at, wavefronts):
    (cost,) = costs(shared(at))
    assert (cost.wavefronts, cost.ideal_wavefronts) == (wavefronts, 1)
    assert cost.sectors is None


def test_a_copy_costs_sectors_at_its_source_and_wavefronts_at_its_destination():
    body = (
        "mov.u32 %r3, smem; shl.b32 %r4, %r1, 7; add.s32 %r5, %r3, %r4; "
        "mad.wide.s32 %rd5, %r1, 16, %rd1; cp.async.cg.shared.global [%r5], [%rd5], 0x10;"
    )
    (cost,) = costs(f"{HEADER}\n.extern .shared .align 16 .b8 smem[];\n{_body(body)}")
    assert (cost.sectors, cost.ideal_sectors) == (16, 16)
    assert (cost.wavefronts, cost.ideal_wavefronts) == (32, 4)


def test_a_value_of_one_lane_is_the_same_for_its_warp():
    body = (
        "shr.u32 %r3, %r1, 5; shfl.sync.idx.b32 %r4, %r3, 0, 31, -1; "
        "mad.wide.s32 %rd5, %r4, 4, %rd1; ld.global.b32 %r10, [%rd5];"
    )
    (cost,) = costs(ptx_kernel(body))
    assert (cost.sectors, cost.ideal_sectors) == (1, 1)


def brute_force(
    stride: int, size: int, elements: int, grid: tuple[int, int], columns: int
) -> float:
    """The mean sectors of the requests of all blocks: one of 128 threads begins at its row."""
    touched = []
    for x in range(grid[0]):
        for y in range(grid[1]):
            for warp in range(4):
                threads = range(32 * warp, min(32 * warp + 32, elements))
                at = [(x * stride + y * columns + thread) * size for thread in threads]
                if at:
                    touched.append(len({byte // 32 for byte in at}))
    return sum(touched) / len(touched)


ROW = (
    "mov.u32 %r20, %ctaid.x; mul.lo.s32 %r21, %r20, %r2; mov.u32 %r22, %ctaid.y; "
    "mad.lo.s32 %r23, %r22, {columns}, %r21; mov.u32 %r25, %tid.x; add.s32 %r24, %r23, %r25; "
    "setp.lt.s32 %p1, %r25, {elements}; mad.wide.s32 %rd5, %r24, {size}, %rd1; "
    "@%p1 ld.global.b{bits} {register}, [%rd5];"
)


@pytest.mark.parametrize("stride", [1000, 1001, 1002, 1004, 1007, 1008])
@pytest.mark.parametrize("size", [4, 8])
@pytest.mark.parametrize("grid", [(64, 1), (5, 1), (9, 1), (16, 16)])
def test_sectors_are_the_mean_over_the_blocks_of_the_launch(stride, size, grid):
    """Rows begin at a sector only where their stride is a multiple of it: row 0 always does."""
    elements, columns = 100, 32
    body = ROW.format(
        columns=columns, elements=elements, size=size, bits=8 * size,
        register="%r10" if size == 4 else "%rd6",
    )  # fmt: skip
    known = (*ARGUMENTS[:2], Argument("n", "i32", value=stride))
    (cost,) = costs(ptx_kernel(body), known, how="launched", grid=(*grid, 1))
    assert cost.sectors == pytest.approx(
        brute_force(stride, size, elements, grid, columns), rel=0.03
    )
