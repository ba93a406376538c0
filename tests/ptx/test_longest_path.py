"""The heaviest way through a function, also against trying all ways."""

import random

import pytest

from tests.ptx.compiled_kernels import ptx_kernel
from traceview.kernels.ptx.accesses import accesses, elements_per_thread
from traceview.kernels.ptx.addresses.slicing import Provenance
from traceview.kernels.ptx.instruction_mix import Passes, heaviest
from traceview.kernels.ptx.loops import Jump
from traceview.kernels.ptx.model import Function, Instruction
from traceview.kernels.ptx.parser import parse_ptx


def test_a_straight_line_is_its_sum():
    assert heaviest([1, 2, 3], []) == 6
    assert heaviest([], []) == 0


def test_of_two_branches_the_heavier_counts():
    # if (p) { 10 } else { 3 }; 1
    jumps = [Jump(0, (3,), True), Jump(2, (4,), False)]
    assert heaviest([0, 10, 0, 3, 1], jumps) == 11
    assert heaviest([0, 2, 0, 3, 1], jumps) == 4


def test_an_early_end_takes_nothing_away():
    assert heaviest([0, 4, 4, 0], [Jump(0, (3,), True), Jump(3, (), False)]) == 8


def test_what_nobody_comes_to_does_not_count():
    assert heaviest([1, 0, 50, 1], [Jump(1, (3,), False)]) == 2


def test_a_loop_that_weighs_is_not_told_and_one_that_does_not_is():
    back = [Jump(2, (1,), True)]
    assert heaviest([1, 5, 0, 1], back) is None
    assert heaviest([1, 0, 0, 1], back) == 2
    assert heaviest([5, 0], [Jump(0, (0,), True)]) is None


def test_a_cycle_with_two_ways_in_is_one_too():
    jumps = [Jump(0, (2,), True), Jump(3, (1,), True)]
    assert heaviest([0, 1, 0, 0, 0], jumps) is None


def test_deep_functions_do_not_overflow_a_stack():
    count = 5_000
    jumps = [Jump(at, (at + 1,), True) for at in range(count)]
    assert heaviest([1] * count, jumps) == count


@pytest.mark.parametrize("seed", range(30))
def test_as_if_all_ways_were_tried(seed):
    dice = random.Random(seed)
    count = 9
    jumps = [
        Jump(at, tuple(dice.sample(range(at + 1, count + 1), 1)), dice.random() < 0.6)
        for at in sorted(dice.sample(range(count), 4))
    ]
    weights = [dice.randrange(5) for _ in range(count)]
    assert heaviest(weights, jumps) == _by_trying(0, weights, {jump.at: jump for jump in jumps})


def _by_trying(at, weights, jumps):
    if at == len(weights):
        return 0
    jump = jumps.get(at, Jump(at, (), True))
    after = [*jump.targets, *([at + 1] if jump.falls_through else [])]
    return weights[at] + max((_by_trying(n, weights, jumps) for n in after), default=0)


LOADS = "ld.global.b32 %r5, [%rd3]; ld.global.b32 %r6, [%rd3+4];"
ONE = "ld.global.b32 %r7, [%rd3];"
STEP = "add.s64 %rd3, %rd3, 512; setp.lt.u64 %p1, %rd3, %rd5;"
# A body at line 31, and the bits that a thread moves there in one pass.
ONE_PASS = {
    "if and else": (f"@%p1 bra E; {LOADS} bra D; E: {ONE} D:", 64),
    "two ifs in a row": (f"@%p1 bra A; {ONE} A: @%p2 bra B; {LOADS} B:", 96),
    "if without else": (f"{ONE} @%p1 bra A; {LOADS} A:", 96),
    "a masked load": (f"@%p1 {ONE} {LOADS}", 96),
    "an unrolled loop and its remainder": (
        f"@%p2 bra R; L: {LOADS} {STEP} @%p1 bra L; R: {ONE} {STEP} @%p1 bra R;",
        64,
    ),
    "a remainder that always runs": (
        f"L: {LOADS} {STEP} @%p1 bra L; R: {ONE} {STEP} @%p1 bra R;",
        64,
    ),
    "the prologue and epilogue of a pipeline": (
        f"{LOADS} {LOADS} @%p2 bra D; L: {ONE} {STEP} @%p1 bra L; D: {LOADS}",
        32,
    ),
    "alternatives within a loop": (
        f"L: @%p2 bra E; {LOADS} bra D; E: {ONE} D: {STEP} @%p1 bra L;",
        64,
    ),
    "two loops on alternative paths": (
        f"@%p2 bra R; L: {ONE} {STEP} @%p1 bra L; bra D; R: {ONE} {STEP} @%p1 bra R; D:",
        32,
    ),
    "around an inner loop": (
        f"L: {ONE} I: {STEP} @%p1 bra I; {ONE} @%p2 bra L;",
        64,
    ),
    "code that nothing reaches": (f"{ONE} bra D; {LOADS} D:", 32),
}


@pytest.mark.parametrize("name", ONE_PASS)
def test_bits_of_one_pass_take_one_of_alternatives(name):
    body, bits = ONE_PASS[name]
    (function,) = parse_ptx(ptx_kernel(f".loc 1 31 0\n{body}\n.loc 1 32 0")).functions
    provenance = Provenance.of(function)
    listed = [each for each in accesses(function) if each.space == "global"]
    assert provenance.bits_of(listed) == bits
    elements = elements_per_thread(listed, lambda _: 32, provenance.streams, provenance.bits_of)
    assert elements == bits // 32


@pytest.mark.parametrize("seed", range(30))
def test_a_pass_without_loops_is_the_heaviest_path(seed):
    dice = random.Random(seed)
    jumps = [
        Jump(at, (dice.randrange(at + 1, 10),), dice.random() < 0.6)
        for at in sorted(dice.sample(range(9), 4))
    ]
    weights = [dice.randrange(5) for _ in range(9)]
    instructions = tuple(Instruction("x", "", None, 1) for _ in weights)
    passes = Passes(Function("k", "ptx", True, instructions, jumps=tuple(jumps)))
    taken = passes.heaviest(zip(instructions, weights, strict=True))
    weight_of = {id(each): weight for each, weight in zip(instructions, weights, strict=True)}
    assert sum(weight_of[id(each)] for each in taken) == heaviest(weights, jumps)
