"""Causes that addresses and masks tell, remedies that were applied, and those that would harm."""

import os
import re

import pytest

from tests.headless.forked_python import run_python
from tests.inspect.retried import Retried, allow
from tests.places import REPOSITORY
from traceview.kernels.inspect import recompilations

pytestmark = pytest.mark.programs

TWO, THREE = "*fp32:16, *fp32:16", "*fp32:16, *fp32:16, *fp32:16"


@pytest.fixture
def retried(triton_cache, monkeypatch):
    """A kernel of kernels/apart.py with these arguments, without its SASS."""
    allow(triton_cache, monkeypatch)
    from tests.ptx.kernels import apart

    def made(kernel: str, signature: str, sass: bool = False, **options) -> Retried:
        return Retried(getattr(apart, kernel), signature, sass=sass, **options)

    return made


REVERSED = "Move runs of 4 forwards, and reverse each in registers: a tile of [BLOCK // 4, 4]"
DIFFER = "likely because the mask differs from element to element"


@pytest.mark.parametrize(
    ("kernel", "signature", "cause", "action", "evidence"),
    [
        (
            "magnitudes",
            f"{TWO}, i32:16, 1024",
            "because a thread's elements are 2 apart",
            "Load the whole run at once, then split it (tl.reshape, then tl.split)",
            "in PTX, each 32-bit element is 8 bytes after the previous one",
        ),
        (
            "interleave",
            f"{THREE}, 1024",
            "because a thread's elements are 2 apart",
            "Join the parts (tl.join, then tl.reshape) and store the whole run at once",
            "8 bytes after the previous one",
        ),
        (
            "gray",
            "*u8:16, *u8:16, 2048",
            "because a thread's elements are 3 apart",
            "Store each of the 3 parts as an array of its own",
            "in PTX, each 8-bit element is 3 bytes after the previous one",
        ),
        (
            "backwards",
            f"{TWO}, i32:16, 1024",
            "because a thread's elements are moved in reverse order",
            REVERSED,
            "4 bytes before the previous one",
        ),
        (
            "rotary",
            "*bf16:16, *bf16:16, i32:16, 64, 16",
            "because a thread's elements are 2 apart",
            "tl.split",
            "in PTX, each 16-bit element is 4 bytes after the previous one",
        ),
        (
            "scale_channels",
            f"{THREE}, i32:16, 1024",
            "because a thread accesses the same element repeatedly",
            "Load each value once, in a tile without the repetition",
            "the addresses are equal in PTX",
        ),
        (
            "sum_column",
            f"{TWO}, i32:16, i32:16, 512",
            "because a thread's elements are N apart",
            "Let each thread's elements run along the axis that is contiguous in memory",
            "in PTX, consecutive 32-bit elements are 4 × N bytes apart",
        ),
        (
            "causal",
            f"{TWO}, i32:16, 1024",
            DIFFER,
            "Load under a mask with the array's own bound",
            "addresses in PTX are consecutive, but masks differ within 16 bytes",
        ),
        (
            "causal_store",
            f"{TWO}, i32:16, 1024",
            DIFFER,
            "If the rest may be overwritten, store under a mask",
            "masks differ within 16 bytes",
        ),
        (
            "of_length",
            "*fp32:16, *i32:16, *fp32:16, i32:16, 1024",
            DIFFER,
            "apply the rest of the condition with tl.where",
            "masks differ within 16 bytes",
        ),
        (
            "keep_some",
            "*fp32:16, *i1:16, *fp32:16, i32:16, 2048",
            DIFFER,
            "apply the rest of the condition with tl.where",
            "masks differ within 16 bytes",
        ),
        (
            "sequences",
            "*fp32:16, *i32:16, *fp32:16, 1024",
            "likely because the access starts at an offset loaded from starts_ptr, of unknown "
            "alignment",
            "its results are wrong), declare it: tl.multiple_of(…, 16) around it",
            "but start at a loaded offset",
        ),
        (
            "shifted",
            f"{TWO}, 1024",
            "likely because the access does not start at a multiple of 16 bytes",
            "Align the start of the tile to 16 bytes",
            "never start at such a multiple, whatever the arguments",
        ),
    ],
    ids=lambda text: text[:20],
)
def test_what_addresses_and_masks_tell(retried, kernel, signature, cause, action, evidence):
    finding = retried(kernel, signature).only("instead of 128")
    assert f", {cause}" in finding.message
    assert action in finding.action
    assert evidence in finding.evidence.basis


@pytest.mark.parametrize(
    ("kernel", "signature"),
    [
        ("magnitudes_mended", f"{TWO}, i32:16, 1024"),
        ("interleave_mended", f"{THREE}, 1024"),
        ("backwards_mended", f"{TWO}, i32:16, 1024"),
        ("scale_channels_mended", f"{THREE}, i32:16, 1024"),
        ("causal_mended", f"{TWO}, i32:16, 1024"),
        ("sequences_mended", "*fp32:16, *i32:16, *fp32:16, 1024"),
    ],
)
def test_the_remedy_widens_every_access(retried, kernel, signature):
    report = retried(kernel, signature, sass=True).report()
    assert not [f for f in report.findings if "instead of 128" in f.message]
    moved = [a for a in report.accesses if a.space == "global" and a.level == "ptx"]
    # The scale of a channel and the start of a sequence are one value for the whole block.
    assert any(a.width_bits == 128 for a in moved)
    assert all(a.width_bits == 128 or (a.count, a.width_bits) == (1, 32) for a in moved)


def test_the_remedy_computes_the_same():
    pytest.importorskip("torch", reason="computes with PyTorch")
    triton = pytest.importorskip("triton", reason="runs its interpreter", exc_type=ImportError)
    if tuple(map(int, triton.__version__.split(".")[:2])) < (3, 7):
        pytest.skip("an older interpreter fails with NumPy 2.4")
    program = "import tests.inspect.applied_remedies"
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = run_python(program, [], environment, folder=REPOSITORY, timeout_s=300)
    assert done.stdout == "the same\n", done.stderr


def test_registers_alone_turn_runs_around(retried):
    report = retried("backwards_mended", f"{TWO}, i32:16, 1024", sass=True).report()
    assert not [access for access in report.accesses if access.space == "shared"]
    assert report.shuffles == 0


def test_a_divisor_and_the_pitch_of_rows_are_never_set_to_one(retried):
    for kernel, signature in [
        ("rotary", "*bf16:16, *bf16:16, i32:16, 64, 16"),
        ("scale_channels", f"{THREE}, i32:16, 1024"),
    ]:
        made = retried(kernel, signature)
        made.findings()
        assert not [change for change in made.changes if (1,) in {c[1:] for c in change.constexprs}]


def test_a_size_of_the_data_is_no_tile(retried):
    made = retried("copy_heads", "*fp16:16, *fp16:16, 128")
    finding = made.only("instead of 128")
    assert finding.action == (
        "Use num_warps=1 with more work per block, such as several rows: alone it lowers "
        "occupancy. If D is a free choice, use D=1024"
    )
    assert finding.evidence.basis == (
        "recompiled with num_warps=1: 64 bits instead of 16; theoretical occupancy falls with "
        "num_warps=1: 100.0 → 50.0 %; with D=1024: 128 bits"
    )


def test_where_one_warp_is_left_a_block_takes_more_rows(retried):
    finding = retried("copy_heads", "*fp16:16, *fp16:16, 128", num_warps=1).only("instead of 128")
    assert "likely because each thread moves only 64 bits there" in finding.message
    assert finding.action.startswith("Give each block more work, such as several rows")


def test_a_tile_that_is_a_whole_row_is_not_made_larger(retried):
    finding = retried("sum_rows", f"{TWO}, i32:16, 128").only("Global loads")
    assert finding.action == (
        "Use num_warps=1 with more work per block, such as several rows: alone it lowers occupancy"
    )


def test_what_narrows_another_access_is_no_remedy(retried):
    made = retried("rotate_halves", "*bf16:16, *bf16:16, i32:16, 8, 128")
    (finding,) = (f for f in made.findings() if "stores" in f.message)
    assert "each thread has too few adjacent elements" in finding.message
    assert finding.action.startswith("Give each block more work, such as several rows: num_warps=2")
    said = r"num_warps=2: 128 bits instead of 64, but loads at apart\.py:\d+ fall from 64 to 16"
    assert re.search(said, finding.evidence.basis)


def test_a_lock_that_spins_hides_nothing(retried):
    found = retried("add_locked", "*fp32:16, *fp32:16, *i32:16, i32, 1024").findings()
    (finding,) = (f for f in found if "Global loads" in f.message)
    assert finding.severity == "high"


@pytest.mark.parametrize(
    ("block", "action", "also"),
    [
        (1024, "Make pitch and columns multiples of 16", ""),
        (
            128,
            "Pad or align pitch and columns to a multiple of 16, and use num_warps=1",
            ", num_warps=1",
        ),
    ],
)
def test_arguments_that_do_not_matter_are_left_out(retried, block, action, also):
    finding = retried("row_of_many", f"{TWO}, i32, i32, i32, {block}").only("Global loads")
    assert finding.action.startswith(action)
    shown = f"recompiled with pitch and columns divisible by 16{also}: 128 bits"
    assert shown in finding.evidence.basis


def test_what_was_not_tried_is_not_said_to_have_failed(retried, monkeypatch):
    monkeypatch.setattr(recompilations, "MOST_TRIALS", 1)
    finding = retried("row_of_many", f"{TWO}, i32, i32, i32, 1024").only("Global loads")
    assert (
        "likely because none of rows, pitch and columns is known to be divisible" in finding.message
    )
    assert "no recompilation" not in finding.evidence.basis
