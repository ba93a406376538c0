"""Loops that the arguments give one or two turns, which are no loops."""

import itertools

import pytest

from traceview.kernels.ptx.ttgir.loop_loads import deepest_loop
from traceview.kernels.ptx.ttgir.operations import without_few_turns
from traceview.kernels.ptx.ttgir.parser import parse_ttgir

MODULE = """#loc = loc("/home/user/k.py":1:0)
module attributes {{"ttg.num-warps" = 4 : i32}} {{
  tt.func public @k(%n: i32 loc("n"(#loc)), %i: i32 loc("i"(#loc))) {{
    %low = arith.constant {low} : i32 loc(#loc)
    %step = arith.constant {step} : i32 loc(#loc)
    %two = arith.constant 2 : i32 loc(#loc)
    {bound}
    scf.for %at = %low to %end step %step : i32 {{
      %x = arith.addi %at, %two : i32 loc(#loc)
    }} loc(#loc)
    tt.return loc(#loc)
  }} loc(#loc)
}} loc(#loc)
"""
BOUNDS = {
    "addi": lambda n: n + 2,
    "subi": lambda n: n - 2,
    "muli": lambda n: n * 2,
    "divsi": lambda n: n // 2,
    "minsi": lambda n: min(n, 2),
    "maxsi": lambda n: max(n, 2),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_a_loop_of_one_or_two_turns_is_none(name):
    for low, step, n in itertools.product((0, 1, 3), (1, 2, 64), (0, 1, 5, 64, 65, 200)):
        bound = f"%end = arith.{name} %n, %two : i32 loc(#loc)"
        module = parse_ttgir(MODULE.format(low=low, step=step, bound=bound))
        turns = len(range(low, BOUNDS[name](n), step))
        found = deepest_loop(without_few_turns(module, {"n": n}))
        assert (found is not None) == (turns > 2), (low, step, n)


@pytest.mark.parametrize("opcode", ["remui", "shrui", "xori"])
def test_a_bound_that_is_not_known_may_have_many_turns(opcode):
    bound = f"%end = arith.{opcode} %n, %two : i32 loc(#loc)"
    module = parse_ttgir(MODULE.format(low=0, step=1, bound=bound))
    assert deepest_loop(without_few_turns(module, {"n": 1}))
    known = parse_ttgir(MODULE.format(low=0, step=1, bound="%end = arith.addi %i, %low : i32"))
    assert deepest_loop(without_few_turns(known, {"n": 1}))
    # The loop's variable is none of the kernel's arguments.
    assert deepest_loop(without_few_turns(known, {"at": 1}))
