"""Where SASS and PTX differ, and how many elements a thread moves."""

import pytest

from tests.ptx.compiled_kernels import a_line, an_access
from traceview.kernels.inspect.recompilations import differences, stores_of_tensor_maps
from traceview.kernels.ptx.accesses import elements_per_thread, pointee_bits
from traceview.kernels.ptx.model import Argument, Function, Instruction


def pair(ptx, sass, **changes):
    return [
        *(an_access(width, count, **changes) for width, count in ptx),
        *(an_access(width, count, level="sass", **changes) for width, count in sass),
    ]


@pytest.mark.parametrize(
    ("ptx", "sass", "change"),
    [
        ([(128, 2)], [(64, 2)], "narrowed"),
        ([(128, 2)], [(64, 4)], "split"),
        ([(64, 4)], [(128, 2)], "widened"),
        ([(128, 2)], [(128, 2)], None),
        ([(128, 1)], [(128, 4)], None),
        ([(128, 1)], [], None),
    ],
)
def test_changes_between_the_levels(ptx, sass, change):
    assert [found.change for found in differences(pair(ptx, sass))] == [change] * bool(change)


def test_a_difference_says_both_sides():
    (found,) = differences(pair([(128, 2)], [(64, 2)]))
    assert (found.ptx, found.sass, found.source) == ("2 × 128 bits", "2 × 64 bits", a_line())


@pytest.mark.parametrize("changes", [{"source": None}, {"space": "local"}, {"kind": "prefetch"}])
def test_what_cannot_be_compared_is_not(changes):
    assert differences(pair([(128, 2)], [(64, 2)], **changes)) == ()


def test_a_tensor_map_that_is_filled_in_is_no_difference():
    shared = {"kind": "store", "space": "shared", "source": a_line()}
    accesses = pair([(32, 1)], [(64, 1), (32, 14)], **shared)
    assert [found.change for found in differences(accesses)] == ["widened"]
    replaced = "tensormap.replace.tile.global_dim.shared::cta.b1024.b32"
    names = ("st.shared.b32", replaced, "tensormap.replace.tile.rank.global.b1024.b32")
    lines = (a_line(1), a_line(), a_line(2))
    written = [Instruction(name, "", None, 1, at) for name, at in zip(names, lines, strict=True)]
    places = stores_of_tensor_maps(Function("k", "ptx", True, tuple(written)))
    assert places == {(a_line(), "store", "shared")}
    assert differences(accesses, places) == ()
    elsewhere = pair([(32, 1)], [(64, 1)], **(shared | {"source": a_line(1)}))
    assert len(differences(elsewhere, places)) == 1


def test_elements_are_those_of_the_line_that_moves_most():
    listed = [an_access(32, 1, source=a_line(1)), an_access(128, 2, source=a_line(2))]
    assert elements_per_thread(listed, lambda _: 32) == 8
    assert elements_per_thread(listed, lambda _: 16) == 16
    assert elements_per_thread(listed, lambda _: 32, lambda _: 2) == 4


def test_elements_are_those_of_the_innermost_loop():
    listed = [an_access(128, 6, loop_depth=0), an_access(128, 2, loop_depth=1)]
    assert elements_per_thread(listed, lambda _: 16) == 16


def test_elements_of_a_kernel_that_loads_nothing_are_those_it_stores():
    assert elements_per_thread([an_access(64, 1, kind="store", opcode="st.global.v2.f32")]) == 2
    assert elements_per_thread([an_access(64, space="shared")]) is None


@pytest.mark.parametrize(
    ("type_", "bits"), [("*fp32", 32), ("*bf16", 16), ("*fp8e4nv", 8), ("*i1", 8), ("i32", None)]
)
def test_bits_of_what_a_pointer_points_to(type_, bits):
    assert pointee_bits(Argument("x", type_)) == bits
