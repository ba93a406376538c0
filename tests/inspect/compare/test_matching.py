"""What belongs together in several versions, and what is left alone."""

from hypothesis import given
from hypothesis import strategies as st

from tests.ptx.compiled_kernels import a_compiled, a_report
from traceview.kernels.inspect.matching import MatchRule, match, match_kernels
from traceview.kernels.ptx.model import Argument


def a_kernel(name="k", warps=4, aligned=True, **constexprs):
    n = Argument("n", "i32", divisible_by_16=aligned)
    constants = [Argument(key, "constexpr", value=value) for key, value in constexprs.items()]
    compiled = a_compiled(name=name, num_warps=warps, arguments=(n, *constants))
    return a_report(compiled=compiled)


def matched(*versions, varied=frozenset()):
    """Matches as the places of the kernels in their versions."""
    places = [{id(kernel): place for place, kernel in enumerate(v)} for v in versions]
    return [
        tuple(
            None if kernel is None else there[id(kernel)]
            for kernel, there in zip(kernels, places, strict=True)
        )
        for kernels in match_kernels(versions, varied)
    ]


def test_kernels_are_matched_by_name_not_by_place():
    a, b = a_kernel("a"), a_kernel("b")
    assert matched([a, b], [a_kernel("b"), a_kernel("a")]) == [(0, 1), (1, 0)]


def test_two_kernels_of_different_names_are_matched_if_there_is_no_other():
    assert matched([a_kernel("a")], [a_kernel("b")]) == [(0, 0)]
    assert matched([a_kernel("a"), a_kernel("c")], [a_kernel("b"), a_kernel("c")]) == [
        (0, None),
        (1, 1),
        (None, 0),
    ]


def test_variants_are_matched_by_their_alignment_when_a_constexpr_changes():
    before = [a_kernel(aligned=True, BLOCK=256), a_kernel(aligned=False, BLOCK=256)]
    after = [a_kernel(aligned=False, BLOCK=1024), a_kernel(aligned=True, BLOCK=1024)]
    assert matched(before, after) == [(0, 1), (1, 0)]


def test_configurations_of_an_autotuned_kernel_are_matched_by_configuration_alone():
    before = [a_kernel(BLOCK=64), a_kernel(BLOCK=128)]
    after = [a_kernel(BLOCK=128), a_kernel(BLOCK=256)]
    assert matched(before, after) == [(0, None), (1, 0), (None, 1)]


def test_what_is_varied_is_no_part_of_the_configuration():
    before = [a_kernel(M=64, N=32), a_kernel(M=64, N=64)]
    after = [a_kernel(M=128, N=64), a_kernel(M=128, N=32)]
    assert matched(before, after, varied=frozenset({"M"})) == [(0, 1), (1, 0)]
    warps = [[a_kernel(warps=w, BLOCK=b) for b in (1, 2)] for w in (4, 8)]
    assert matched(*warps, varied=frozenset({"num_warps"})) == [(0, 0), (1, 1)]


def test_of_three_versions_all_are_joined_before_two_are():
    assert matched([a_kernel("a"), a_kernel("b")], [a_kernel("b")], [a_kernel("b")]) == [
        (0, None, None),
        (1, 0, 0),
    ]
    assert matched([a_kernel("a")], [a_kernel("b"), a_kernel("c")], [a_kernel("b")]) == [
        (0, None, None),
        (None, 0, 0),
        (None, 1, None),
    ]


@given(st.lists(st.lists(st.integers(0, 5), max_size=6), min_size=1, max_size=4))
def test_each_thing_is_in_one_match_and_in_its_own_version(versions):
    rules = (
        MatchRule(lambda n: n, in_order=True),
        MatchRule(lambda n: n % 3),
        MatchRule(lambda _: 0),
    )
    things = [[(n, i, v) for i, n in enumerate(each)] for v, each in enumerate(versions)]
    found = match(things, [MatchRule(lambda t, r=r: r.key(t[0]), r.in_order) for r in rules])
    for version, each in enumerate(things):
        assert sorted(same[version] for same in found if same[version]) == sorted(each)
    assert all(thing is None or thing[2] == v for same in found for v, thing in enumerate(same))
