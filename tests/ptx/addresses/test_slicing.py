"""What the address of an access is computed from."""

import pytest

from tests.ptx.compiled_kernels import ptx_kernel
from traceview.kernels.ptx.addresses.slicing import Origin, Slices
from traceview.kernels.ptx.parser import parse_ptx


def slices_of(body: str) -> Slices:
    return Slices.of(parse_ptx(ptx_kernel(body)).kernels()[0])


def address(body: str, opcode: str) -> Origin:
    slices = slices_of(body)
    (access,) = (i for i in slices.function.instructions if i.opcode == opcode)
    return slices.address(access)


@pytest.mark.parametrize(
    ("body", "opcode", "parameters", "loaded", "per_thread"),
    [
        ("ld.global.b32 %r3, [%rd3];", "ld.global.b32", {"k_x"}, False, True),
        ("ld.global.b32 %r3, [%rd1+16];", "ld.global.b32", {"k_x"}, False, False),
        ("st.global.b32 [%rd4], %r1;", "st.global.b32", {"k_y"}, False, True),
        (
            "mul.lo.s32 %r4, %r1, %r2; mad.wide.s32 %rd5, %r4, 4, %rd1; ld.global.b32 %r3, [%rd5];",
            "ld.global.b32",
            {"k_x", "k_n"},
            False,
            True,
        ),
        (
            "ld.global.u32 %r4, [%rd4]; mad.wide.s32 %rd5, %r4, 4, %rd1;ld.global.b32 %r3, [%rd5];",
            "ld.global.b32",
            {"k_x"},
            True,
            False,
        ),
    ],
    ids=["by thread", "uniform", "store", "stride", "gather"],
)
def test_origins(body, opcode, parameters, loaded, per_thread):
    origin = address(body, opcode)
    assert origin.parameters == parameters
    assert (origin.loaded, origin.per_thread) == (loaded, per_thread)


def test_the_source_of_an_asynchronous_copy_is_what_counts():
    body = "mov.u32 %r5, 0; cp.async.ca.shared.global [%r5], [%rd3], 4;"
    origin = address(body, "cp.async.ca.shared.global")
    assert (origin.parameters, origin.per_thread) == ({"k_x"}, True)


def test_only_parameters_of_64_bits_are_pointers():
    body = "mad.wide.s32 %rd5, %r2, 4, %rd1; ld.global.b32 %r3, [%rd5];"
    assert address(body, "ld.global.b32").pointers == {"k_x"}


def test_a_mask_is_followed_apart_from_the_address():
    slices = slices_of("setp.lt.s32 %p1, %r1, %r2; @%p1 ld.global.b32 %r3, [%rd3];")
    (access,) = (i for i in slices.function.instructions if i.opcode == "ld.global.b32")
    assert slices.guard(access).parameters == {"k_n"}
    assert slices.address(access).parameters == {"k_x"}


def test_a_register_that_is_assigned_in_a_loop_ends_the_search_all_the_same():
    body = "mov.b32 %r4, %r1; L: add.s32 %r4, %r4, 1; mad.wide.s32 %rd5, %r4, 4, %rd1; "
    origin = address(f"{body} ld.global.b32 %r3, [%rd5]; bra L;", "ld.global.b32")
    assert origin.per_thread


@pytest.mark.parametrize(("base", "gathered"), [("%rd4", True), ("%rd2", False)])
def test_what_all_threads_load_alike_is_no_gather(base, gathered):
    body = (
        f"ld.global.u32 %r4, [{base}]; mad.wide.s32 %rd5, %r4, 4, %rd3;ld.global.b32 %r3, [%rd5];"
    )
    origin = address(body, "ld.global.b32")
    assert (origin.loaded, origin.gathered) == (True, gathered)
