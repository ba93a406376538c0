"""Loop depth: by hand on PTX, against a brute force on graphs, and in time."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceview.kernels.ptx.loops import Jump, loop_depths, loop_nest
from traceview.kernels.ptx.parser import parse_ptx


def depths(body):
    text = f".version 8.7\n.target sm_90\n.visible .entry k() {{\n{body}\n}}"
    return "".join(str(i.loop_depth) for i in parse_ptx(text).functions[0].instructions)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("a; b; ret;", "000"),
        ("a; L: b; @%p bra L; c; ret;", "01100"),
        ("a; L: b; M: c; @%p bra M; @%q bra L; ret;", "012210"),
        ("L: a; @%p bra E; b; bra.uni L; E: ret;", "11110"),
        ("L: @%p bra M; a; bra L; M: b; bra L;", "11111"),
        ("L: a; @%p ret; bra L;", "111"),
        ("bra M; L: a; M: @%p bra L; ret;", "0110"),
        ("a; @%p bra M; L: b; M: c; @%q bra L; ret;", "000000"),
        ("ret; L: a; bra L;", "000"),
        ("T: .branchtargets A, B; L: brx.idx %r, T; A: a; bra L; B: ret;", "1110"),
        ("{ W: a; @%p bra W; } { W: b; @%p bra W; } ret;", "11110"),
        ("W: a; { b; { bra W; } }", "111"),
        ("@%p bra E; E:", "0"),
    ],
    ids=str,
)
def test_depth(body, expected):
    assert depths(body) == expected


def reached(edges, without=None):
    seen, waiting = set(), [0] if without != 0 else []
    while waiting:
        node = waiting.pop()
        if node not in seen and node != without:
            seen.add(node)
            waiting += edges[node]
    return seen


def by_definition(edges):
    """The union of natural loops by header, from what can be reached without it."""
    alive = reached(edges)
    loops = {}
    for source in alive:
        for header in edges[source]:
            if header == source or source not in reached(edges, without=header):
                body, waiting = loops.setdefault(header, {header}), [source]
                while waiting:
                    node = waiting.pop()
                    if node not in body:
                        body.add(node)
                        waiting += [each for each in alive if node in edges[each]]
    return [sum(node in body for body in loops.values()) for node in range(len(edges) - 1)]


@st.composite
def jumps(draw):
    count = draw(st.integers(1, 10))
    node = st.integers(0, count)
    each = st.none() | st.tuples(st.lists(node, max_size=2), st.booleans())
    drawn = [draw(each) for _ in range(count)]
    return count, [Jump(at, tuple(j[0]), j[1]) for at, j in enumerate(drawn) if j]


@given(jumps())
def test_depths_are_those_of_the_definition(drawn):
    count, given_jumps = drawn
    edges = [[at + 1] for at in range(count)] + [[]]
    for jump in given_jumps:
        edges[jump.at] = [*jump.targets, *([jump.at + 1] if jump.falls_through else [])]
    assert loop_depths(count, given_jumps) == by_definition(edges)


def seconds(count, make):
    begin = time.process_time()
    loop_depths(count, [make(at, count) for at in range(count)])
    return time.process_time() - begin


@pytest.mark.parametrize(
    "make",
    [
        lambda at, n: Jump(at, (at * 7919 % n,), True),
        lambda at, n: Jump(at, (n - at if at > n // 2 else n,), True),
        lambda at, n: Jump(at, (max(0, at - 2), min(n, at + 2)), True),
    ],
    ids=["scattered", "nested", "irreducible"],
)
def test_twenty_thousand_branches_take_a_second_at_most(make):
    # About 0.15 s; a quadratic algorithm would need minutes.
    assert seconds(20_000, make) < 3


@given(jumps())
def test_a_nest_holds_the_loops_that_depths_count(drawn):
    count, given_jumps = drawn
    nest = loop_nest(count, given_jumps)
    depths = loop_depths(count, given_jumps)
    assert depths == [0 if loop is None else nest.depth(loop) for loop in nest.innermost]
    for loop in nest.outer:
        inside = nest.within(loop)
        assert loop in inside
        assert min(depths[at] for at in inside) >= nest.depth(loop)


def test_inner_loops_are_within_outer_ones():
    text = "a; L: b; M: c; @%p bra M; @%q bra L; N: d; @%p bra N; ret;"
    (function,) = parse_ptx(
        f".version 8.7\n.target sm_90\n.visible .entry k() {{\n{text}\n}}"
    ).functions
    nest = loop_nest(len(function.instructions), function.jumps)
    assert nest.outer == {1: None, 2: 1, 5: None}
    assert nest.within(1) == [1, 2, 3, 4]
    assert nest.within(2) == [2, 3]
    assert nest.within(5) == [5, 6]
