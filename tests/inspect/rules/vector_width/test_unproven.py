"""What only a false declaration would widen is told by its cause, and never with severity high.

Each kind is a kernel whose sizes are drawn; what has to be said follows from them by arithmetic.
"""

import os
import random

import pytest

from tests.headless.forked_python import run_python
from tests.inspect.retried import Retried, allow
from tests.places import REPOSITORY
from tests.ptx.ttgir.test_vector_limit import limit, op
from traceview.kernels.ptx.ttgir.operations import tile_reductions
from traceview.kernels.ptx.ttgir.parser import parse_ttgir

BYTES = {"i8": 1, "fp16": 2, "fp32": 4, "fp64": 8}
RANDOM = random.Random(45)


def drawn_sizes(count):
    """Element types, pitches and sizes: odd, multiples of 2 and of 4, and of 16."""
    for _ in range(count):
        step = RANDOM.choice((1, 2, 4, 16))
        pitch, size = (step * RANDOM.randrange(600 // step, 1000 // step) for _ in range(2))
        yield RANDOM.choice(sorted(BYTES)), max(pitch, size), size


@pytest.fixture
def retried(triton_cache, monkeypatch):
    allow(triton_cache, monkeypatch)
    from tests.ptx.kernels import unproven

    def made(kernel, signature, **options):
        return Retried(getattr(unproven, kernel), signature, with_ttgir=True, sass=False, **options)

    return made


def nothing_is_declared(findings):
    for finding in findings:
        declares = "multiple_of" in finding.action or "max_contiguous" in finding.action
        assert not declares or (finding.severity != "high" and "Only if" in finding.action)
        assert "multiple of 1 " not in finding.action
    return True


@pytest.mark.parametrize(("element", "pitch", "size"), [*drawn_sizes(12)])
def test_constants_that_are_no_multiples_are_named(retried, element, pitch, size):
    need = 16 // BYTES[element]
    # Enough elements for vectors of 16 bytes on 128 threads.
    signature = f"*{element}:16, *{element}:16, {pitch}, {size}, 2048"
    findings = retried("rows", signature).findings()
    narrow = [f for f in findings if "instead of 128" in f.message]
    wrong = {name: n for name, n in (("PITCH", pitch), ("SIZE", size)) if n % need}
    assert nothing_is_declared(findings)
    assert bool(narrow) == bool(wrong)
    for name, value in wrong.items() if len(set(wrong.values())) == len(wrong) else ():
        (finding,) = narrow
        multiple = -(-value // need) * need
        assert f"{name}={value} is not a multiple of {need}" in finding.message
        assert f"ad {name} to a multiple of {need}, such as {multiple}" in finding.action
        assert f"{name}={multiple}" in finding.evidence.basis
        assert ": 128 bits instead of" in finding.evidence.basis


@pytest.mark.parametrize("each", [4, 8, 16])
def test_threads_a_row_apart_are_to_read_along_the_rows(retried, each):
    pitch = RANDOM.choice((64, 256, 1024))
    findings = retried("columns", f"*fp32:16, *fp32:16, {pitch}, {each}, 128").findings()
    (finding,) = (f for f in findings if "Global loads" in f.message)
    assert f"because neighbouring threads are {4 * pitch:,} bytes apart" in finding.message
    assert "touches 32 sectors instead of 4" in finding.message
    assert finding.action.startswith("Load a tile of two axes")
    mended = retried("columns_mended", f"*fp32:16, *fp32:16, {pitch}, {each}, 128").findings()
    assert not any("neighbouring threads" in f.message for f in mended)


@pytest.mark.parametrize("element", ["fp16", "fp32", "i8"])
@pytest.mark.parametrize("side", ["load", "store"])
def test_pieces_of_rows_are_turned_as_tiles(retried, side, element):
    """One side of a transposition is apart, whichever it is; tl.trans of a tile widens both."""
    signature = f"*{element}:16, *{element}:16, i32:16, i32:16, {side!r}, "
    findings = retried("turned_pieces", signature + "2048").findings()
    (finding,) = (f for f in findings if "rows apart" in f.message)
    assert f"Global {side}s" in finding.message
    assert "move tiles of two axes along it, and turn them with tl.trans" in finding.action
    tiles = retried("turned_tiles", signature + "64").findings()
    assert not any(finding.severity == "high" for finding in tiles)


@pytest.mark.parametrize("element", ["fp16", "fp32"])
@pytest.mark.parametrize("pitch", ["1", "i32:16"])
@pytest.mark.parametrize("rows", [16, 64])
def test_windows_that_move_by_one_element_overlap(retried, element, pitch, rows):
    findings = retried("windows", f"*{element}:16, *{element}:16, {pitch}, {rows}, 128").findings()
    narrow = [f for f in findings if "Global loads" in f.message]
    assert bool(narrow) == (pitch == "1")
    for finding in narrow:
        assert "because the rows of the tile start one element apart" in finding.message
        assert finding.action.startswith("Leave it if the rows overlap by design")
        assert finding.severity != "high"


@pytest.mark.parametrize("fill", [-1, 0])
def test_offsets_through_where_are_to_be_masked(retried, fill):
    signature = f"*fp32:16, *fp32:16, i32:16, {fill}, 1024"
    findings = retried("chosen", signature).findings()
    assert findings
    assert nothing_is_declared(findings)
    for finding in findings:
        assert "a choice by tl.where (unproven.py:" in finding.message
        assert finding.action.startswith("Leave the offsets as they are")
        assert finding.severity == "medium"
    assert retried("chosen_mended", signature).findings() == ()


def test_scattered_atomics_are_to_be_counted_first(retried):
    findings = retried("counted", "*i32:16, *fp32:16, i32:16, 8, 1024").findings()
    (finding,) = (f for f in findings if "move" in f.message)
    assert nothing_is_declared(findings)
    assert finding.severity == "medium"
    assert "likely because this is a scatter" in finding.message
    assert finding.action.startswith("Combine within the block first")


@pytest.mark.parametrize("size", [8, 16, 32])
def test_a_tile_too_small_for_its_threads_comes_first(retried, size):
    """The slot's stride limits the address, too, but alone it widens nothing."""
    findings = retried("slots", f"*fp16:16, *i32:16, *fp16:16, i32, {size}", num_warps=1).findings()
    (finding,) = (f for f in findings if "Global stores" in f.message)
    assert nothing_is_declared(findings)
    assert f"a tile of {size} elements is too small for 32 threads" in finding.message
    assert finding.action.endswith(". Then stride limits the width")


def test_what_limits_a_large_tile_is_the_factor_that_can_be_changed(retried):
    findings = retried("slots", "*fp16:16, *i32:16, *fp16:16, i32, 1024").findings()
    (finding,) = (f for f in findings if "Global stores" in f.message)
    assert "because stride is not known to be divisible by 16" in finding.message
    assert "recompiled with stride divisible by 16: 128 bits" in finding.evidence.basis


@pytest.mark.parametrize(("block", "first"), [(64, "a tile of 64"), (1024, "the mask depends on")])
def test_a_loaded_bound_and_a_small_tile_are_tried_not_ranked(retried, block, first):
    tried = retried("of_lengths", f"*fp32:16, *i32:16, *fp32:16, {block}")
    for finding in tried.findings():
        # So small a block is a step of its own.
        assert first in finding.message or (block == 64 and "Each block moves" in finding.message)
        assert nothing_is_declared([finding])


@pytest.mark.parametrize("kind", ["every third", "causal", "loaded", "groups"])
def test_a_mask_that_differs_within_a_vector_is_not_declared_a_multiple(retried, kind):
    signature = f"*fp32:16, *i8:16, *fp32:16, i32:16, {kind!r}, 2048"
    findings = retried("of_masks", signature).alone().findings
    narrow = [f for f in findings if "the mask d" in f.message]
    assert any("apply the rest of the condition with tl.where" in f.action for f in narrow)
    assert not any("multiple_of" in f.action for f in findings)
    assert all(f.severity != "high" for f in narrow)


@pytest.mark.parametrize(
    ("kind", "cause", "action"),
    [
        ("remainder", "is a remainder (offsets % n", "If the remainder only keeps offsets below"),
        ("clamp", "depends on a minimum", "If what the clamped offsets load is not needed"),
        ("quotient", "accesses the same element repeatedly", "Load each value once, in a tile"),
    ],
)
def test_offsets_that_are_not_adjacent_are_changed_only_if_results_stay(
    retried, kind, cause, action
):
    signature = f"*fp32:16, *fp32:16, *i32:16, i32, {kind!r}, 1024"
    (finding,) = retried("shaped", signature).alone().findings
    assert cause in finding.message
    assert finding.action.startswith(action)
    assert finding.severity == "medium"


@pytest.mark.parametrize("rows", [16, 64])
def test_few_elements_beside_a_tile_are_no_loss(retried, rows):
    """One value per row: most threads store what others do, or nothing."""
    signature = f"*fp32:16, *fp32:16, *fp32:16, {rows}, {1024 // rows}"
    findings = retried("outer", signature).alone().findings
    (stores,) = (f for f in findings if "Global stores" in f.message)
    assert f"a tile of {rows} elements is too small" in stores.message
    assert stores.severity == "info"


@pytest.mark.parametrize("kind", ["packed", "whole"])
@pytest.mark.parametrize(("rows", "block"), [(2, 2), (2, 64), (2, 128), (1, 256)])
def test_elements_of_one_word_share_its_load(retried, kind, rows, block):
    signature = f"*i32:16, *fp16:16, i32:16, i32:16, {kind!r}, {rows}, {block}"
    findings = retried("unpacked", signature, num_warps=8).alone().findings
    loads = [f for f in findings if "Global loads" in f.message]
    is_word = [f.severity == "info" and "bits of one word" in f.message for f in loads]
    assert is_word == [kind == "packed"]
    # The mask bounds the rows, and elements are adjacent along the other axis.
    assert not any("Then n limits" in f.action for f in findings)


@pytest.mark.parametrize("side", [16, 32, 128])
def test_fewer_warps_are_not_advised_where_registers_would_spill(retried, side):
    report = retried("outer_state", f"*fp32:16, *fp32:16, i32, i32:16, {side}").alone()
    (stores,) = (f for f in report.findings if "stores at" in f.message.lower())
    # 4 warps hold the square in 2, 8 and 128 registers.
    full = stores.severity == "info" and "more registers" in stores.action
    assert full == (side == 128)


@pytest.mark.parametrize(("block", "severity"), [(16, "low"), (128, "info")])
def test_what_moves_too_little_to_show_is_information(retried, block, severity):
    """128 scales per block, beside tiles of 128 rows."""
    signature = f"*fp32:16, *fp32:16, *fp32:16, i32, 4, {block}"
    found = retried("scaled_rows", signature).findings()
    (loads,) = (f for f in found if "Global loads" in f.message)
    assert loads.severity == severity


@pytest.mark.parametrize("rows", [32, 64, 256])
@pytest.mark.parametrize("columns", [1, 2, 16])
def test_a_tile_of_one_column_needs_more_columns(retried, rows, columns):
    findings = retried("pairs", f"*fp32:16, *fp32:16, 512, {rows}, {columns}").findings()
    thin = [f for f in findings if f.action.startswith("The tile has one element along the axis")]
    assert bool(thin) == (columns == 1)
    assert not any("tl.trans" in f.action for f in findings if columns == 1)


def test_few_elements_alone_are_all_that_a_kernel_moves(retried):
    findings = retried("outer", "*fp32:16, *fp32:16, *fp32:16, 4, 16").alone().findings
    assert findings[0].severity == "high"
    assert "a tile of 4 × 16 elements is too small" in findings[0].message


def test_the_size_of_a_group_is_no_tile(retried, compile_triton):
    from tests.ptx.kernels import unproven

    signature = "*fp32:16, *fp32:16, *fp32:16, 512, 64, 8"
    made = compile_triton(unproven.groups, signature, "sm_90")
    assert any(found.is_group for found in tile_reductions(parse_ttgir(made.ttgir)))
    assert not any("GROUP=" in f.action for f in retried("groups", signature).findings())


def test_a_constant_pitch_is_blamed_before_the_program_id():
    index = "%id = tt.get_program_id x : i32 loc(#loc1)\n%c6 = arith.constant 6 : i32 loc(#loc1)\n"
    start = "%s = arith.muli %id, %c6 : i32 loc(#loc2)\n"
    splat = "%w = tt.splat %s : i32 -> tensor<1024xi32, #blocked> loc(#loc1)\n"
    found = limit(index + start + splat + op("addi", "%r", "%w"))
    assert (found.width_bits, found.limit) == (64, "alignment")
    assert (found.culprit.opcode, found.culprit.constant, found.culprit.need) == (
        "arith.constant",
        6,
        4,
    )


@pytest.mark.parametrize("element", ["fp16", "fp32"])
@pytest.mark.parametrize("block", [16, 32, 64])
def test_unused_sectors_come_first_and_a_larger_block_needs_a_mask(retried, block, element):
    signature = f"*{element}:16, *{element}:16, i32:16, {block}"
    store, load = retried("turned", signature).alone().findings[:2]
    assert "Global stores" in store.message
    assert "sectors instead of" in store.message
    assert f"a tile of {block} elements is too small" in load.message
    assert "has no mask: a larger block needs one" in load.action


def test_what_is_advised_computes_the_same():
    pytest.importorskip("torch", reason="computes with PyTorch")
    triton = pytest.importorskip("triton", reason="runs its interpreter", exc_type=ImportError)
    if tuple(map(int, triton.__version__.split(".")[:2])) < (3, 7):
        pytest.skip("an older interpreter fails with NumPy 2.4")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    program = "import tests.inspect.applied_advice"
    done = run_python(program, [], environment, folder=REPOSITORY, timeout_s=300)
    assert done.stdout == "the same\n", done.stderr
