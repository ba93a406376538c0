"""Distances of elements, masks and starts, from PTX written by hand."""

import pytest

from tests.ptx.compiled_kernels import a_compiled, ptx_kernel
from traceview.kernels.ptx.accesses import accesses
from traceview.kernels.ptx.addresses.slicing import Provenance
from traceview.kernels.ptx.addresses.strides import Layout, Samples, Stride
from traceview.kernels.ptx.model import Argument
from traceview.kernels.ptx.parser import parse_ptx

N = Argument("n", "i32")
ARGUMENTS = (Argument("x", "*fp32", True), Argument("y", "*fp32", True), N)


def layout(body: str, arguments: tuple[Argument, ...] = ARGUMENTS) -> Layout:
    """How the loads of fp32 of a kernel lie; see ptx_kernel for its registers."""
    function = parse_ptx(ptx_kernel(body)).kernels()[0]
    provenance = Provenance.of(function, arguments)
    samples = Samples.of(provenance, a_compiled(arguments=arguments))
    (access,) = (a for a in accesses(function) if a.opcode == "ld.global.b32")
    return samples.layout(access, provenance.instructions(access), provenance.element_bits(access))


def loads(base: str, *offsets: int) -> str:
    return " ".join(f"ld.global.b32 %r9, [{base}+{offset}];" for offset in offsets)


FOUR = "shl.b32 %r3, %r1, 2; mad.wide.s32 %rd5, %r3, 4, %rd1;"
EIGHT = "shl.b32 %r3, %r1, 3; mad.wide.s32 %rd5, %r3, 4, %rd1;"


@pytest.mark.parametrize(
    ("body", "step"),
    [
        (FOUR + loads("%rd5", 0, 4, 8, 12), Stride(4)),
        (EIGHT + loads("%rd5", 0, 8, 16, 24), Stride(8)),
        (FOUR + loads("%rd5", 12, 8, 4, 0), Stride(-4)),
        (FOUR + loads("%rd5", 0, 0, 0, 0), Stride(0)),
        # Each thread has elements far apart, but its neighbour's lie next to them.
        (loads("%rd3", 0, 512, 1024, 1536), Stride(4)),
        (
            "mul.lo.s32 %r3, %r1, %r2; mad.wide.s32 %rd5, %r3, 4, %rd1;" + loads("%rd5", 0),
            Stride(4, N),
        ),
        # A power of two by a parameter, which is sampled as a size: not 0.
        (
            "mov.u32 %r4, 1; shl.b32 %r5, %r4, %r2; mul.wide.s32 %rd6, %r5, 4;"
            "add.s64 %rd7, %rd3, %rd6;" + loads("%rd3", 0) + loads("%rd7", 0),
            Stride(4),
        ),
        # or of bits that are clear, as LLVM writes an addition.
        (
            "shl.b32 %r3, %r1, 2; or.b32 %r4, %r3, 1; mad.wide.u32 %rd5, %r3, 4, %rd1;"
            "mad.wide.u32 %rd6, %r4, 4, %rd1;" + loads("%rd5", 0) + loads("%rd6", 0),
            Stride(4),
        ),
        (
            "ld.global.b64 %rd7, [%rd4]; shl.b64 %rd7, %rd7, 2; add.s64 %rd5, %rd1, %rd7;"
            + loads("%rd5", 0),
            None,
        ),
        # The pointer of a loop: what it is before the first pass counts.
        (FOUR + "L:" + loads("%rd5", 0, 4) + "add.s64 %rd5, %rd5, 4096; bra L;", Stride(4)),
    ],
    ids=["four", "every second", "reversed", "same", "lanes", "n", "shift", "or", "loaded", "loop"],
)
def test_steps(body, step):
    assert layout(body).step == step


def test_of_an_unknown_kernel_constants_are_known_and_sizes_are_not():
    assert layout(FOUR + loads("%rd5", 0, 4), ()).step == Stride(4)
    body = "mul.lo.s32 %r3, %r1, %r2; mad.wide.s32 %rd5, %r3, 4, %rd1;" + loads("%rd5", 0)
    assert layout(body, ()).step is None


def masked(*compared: str) -> str:
    """Two neighbours of a thread, each under a comparison of its own."""
    return FOUR + " ".join(
        f"{setup} @%p{at} ld.global.b32 %r9, [%rd5+{4 * at - 4}];"
        for at, setup in enumerate(compared, start=1)
    )


@pytest.mark.parametrize(
    ("body", "differ"),
    [
        # n is a multiple of 16, so that it never parts a thread's neighbours.
        (
            "add.s32 %r4, %r3, 1;"
            + masked("setp.lt.s32 %p1, %r3, %r2;", "setp.lt.s32 %p2, %r4, %r2;"),
            False,
        ),
        (
            masked(
                "mov.u32 %r5, %ctaid.x; setp.le.s32 %p1, %r3, %r5;",
                "setp.lt.s32 %p2, %r3, %r5;",
            ),
            True,
        ),
        (
            masked(
                "ld.global.v2.b32 {%r5, %r6}, [%rd4]; setp.ne.s32 %p1, %r5, 0;",
                "setp.ne.s32 %p2, %r6, 0;",
            ),
            True,
        ),
    ],
    ids=["bound", "row", "loaded"],
)
def test_masks(body, differ):
    assert layout(body.replace("add.s32 %r4", FOUR + "add.s32 %r4")).masks_differ is differ


def test_starts():
    assert layout(FOUR + loads("%rd5", 0, 4)).starts_wide
    assert not layout(FOUR + loads("%rd5", 4, 8)).starts_wide
    rows = "mov.u32 %r5, %ctaid.x; mad.lo.s32 %r3, %r5, %r2, %r1; mad.wide.s32 %rd5, %r3, 4, %rd1;"
    assert layout(rows + loads("%rd5", 0)).starts_wide
    assert not layout(rows.replace("%r5, %r2", "%r5, 3") + loads("%rd5", 0)).starts_wide


def test_blocks_that_take_a_stretch_each():
    tile = "mov.u32 %r5, %ctaid.x; mad.lo.s32 %r3, %r5, 128, %r1; mad.wide.s32 %rd5, %r3, 4, %rd1;"
    assert layout(tile + loads("%rd5", 0)).moves_with_block
    assert not layout(tile.replace("%r5, 128", "%r5, %r2") + loads("%rd5", 0)).moves_with_block
    assert not layout(loads("%rd3", 0)).moves_with_block


# One row of `n` or of a constant number of elements per thread, in a loop that nvcc unrolls.
ROW = "mul.lo.s32 %r3, %r1, {}; mad.wide.s32 %rd5, %r3, 4, %rd1;"


@pytest.mark.parametrize("loaded", [1, 2, 4])
@pytest.mark.parametrize(
    ("pitch", "apart"), [("%r2", Stride(4, N)), ("64", Stride(256)), ("8", Stride(32)), ("1", None)]
)
def test_threads_that_leave_gaps_between_them(pitch, apart, loaded):
    """Gaps are at least as large as what a thread covers."""
    body = ROW.format(pitch) + loads("%rd5", *range(0, 4 * loaded, 4))
    covers = apart is not None and not apart.parameter and apart.of < 2 * 4 * loaded
    assert layout(body).threads_apart == (None if covers else apart)


@pytest.mark.parametrize(("elements", "apart"), [(27, Stride(108)), (28, None), (3, None)])
def test_rows_side_by_side_that_no_vectors_make_up(elements, apart):
    body = ROW.format(elements) + loads("%rd5", *range(0, 4 * elements, 4))
    assert layout(body).threads_apart == apart


def test_parameters_of_cuda_are_named_in_the_distance():
    function = parse_ptx(ptx_kernel(ROW.format("%r2") + loads("%rd5", 0))).kernels()[0]
    provenance = Provenance.of(function)
    (access,) = (a for a in accesses(function) if a.opcode == "ld.global.b32")

    def named(*names: str) -> Stride | None:
        samples = Samples.of(provenance, a_compiled(parameter_names=names))
        return samples.layout(access, provenance.instructions(access), 32).threads_apart

    apart = named("x", "y", "C")
    assert apart
    assert (apart.of, apart.parameter.name if apart.parameter else "") == (4, "C")
    assert named() is named("x", "C") is None
