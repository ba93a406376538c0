"""Versions side by side: what differs, which line became which, which findings come and go."""

from dataclasses import replace

import pytest

from tests.ptx.compiled_kernels import a_compiled, a_finding, a_line, a_report, an_access
from traceview.base.errors import InputError
from traceview.base.hardware import limits_of, occupancy
from traceview.kernels.inspect.comparison import (
    ComparedVersion,
    compare,
    match_findings,
    plan,
    same_code,
)
from traceview.kernels.inspect.kernel_report import subject_of
from traceview.kernels.inspect.matching import LevelAccesses, compared_lines
from traceview.kernels.inspect.target_report import PtxReport
from traceview.kernels.ptx.parser import parse_ptx


def diff(*kernels, option=None, varied=frozenset()):
    versions = [
        ComparedVersion(str(n), PtxReport("gelu.py", (kernel,))) for n, kernel in enumerate(kernels)
    ]
    return compare(versions, option, varied)


def quantities(*kernels):
    (comparison,) = diff(*kernels).comparisons
    return {(q.topic, q.name): q.values for q in comparison.quantities if q.differs}


def test_only_what_differs_differs():
    assert quantities(a_report(), a_report()) == {}
    narrow = a_report(
        registers=24, occupancy=occupancy(limits_of("sm_90"), 256, 80), instruction_mix={"load": 2}
    )
    assert quantities(a_report(), narrow) == {
        ("resources", "registers"): (32, 24),
        ("resources", "theoretical_occupancy_pct"): (100.0, 37.5),
        ("resources", "blocks_per_sm"): (16, 3),
        ("resources", "limited_by"): ("warps and registers", "registers"),
        ("instructions", "all"): (11, 2),
        ("instructions", "float"): (9, 0),
    }


def test_what_is_not_known_is_not_zero():
    unknown = a_report(registers=None, occupancy=None)
    assert quantities(a_report(), unknown)["resources", "registers"] == (32, None)


def test_instructions_of_ptx_and_of_sass_are_not_compared():
    listing = parse_ptx(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() {\nret;\n}\n"
    )
    of_ptx = a_report(ptx=listing.kernels()[0], instruction_mix={"control": 1})
    of_sass = a_report(instruction_mix={"EXIT": 1}, shuffles=3)
    assert quantities(of_ptx, of_sass) == {}


def test_the_same_ptx_is_noticed():
    one, other = (a_report(compiled=a_compiled(ptx)) for ptx in ("a", "b"))
    assert same_code(diff(one, one).comparisons[0])
    assert not same_code(diff(one, other).comparisons[0])
    assert not same_code(diff(a_report(), a_report()).comparisons[0])
    two = (a_report(compiled=a_compiled("a", name=name)) for name in "kl")
    assert not same_code(diff(*two).comparisons[0])


def of(*accesses):
    return a_report(accesses=accesses)


def test_accesses_of_a_line_are_compared_at_each_level():
    before = of(an_access(32, 4), an_access(32, 4, level="sass"))
    after = of(an_access(128, 1), an_access(64, 2, level="sass"))
    (moves,) = compared_lines([before, after])
    assert moves.levels == {
        "ptx": (LevelAccesses({32: 4}), LevelAccesses({128: 1})),
        "sass": (LevelAccesses({32: 4}), LevelAccesses({64: 2})),
    }
    assert moves.differs("ptx")


def test_a_level_that_is_not_known_is_not_an_access_that_is_gone():
    with_sass = of(an_access(32), an_access(32, level="sass"))
    (moves,) = compared_lines([with_sass, of(an_access(32))])
    assert moves.levels["sass"] == (LevelAccesses({32: 1}), None)
    first, second = compared_lines([of(an_access(32)), of(an_access(32, kind="store"))])
    assert first.levels["ptx"] == (LevelAccesses({32: 1}), LevelAccesses({}))
    assert second.levels["ptx"] == (LevelAccesses({}), LevelAccesses({32: 1}))


def test_lines_that_moved_are_found_by_their_text(tmp_path):
    old, new = tmp_path / "old.py", tmp_path / "new.py"
    old.write_text("a = load()\nb = load()\n")
    new.write_text("# more\n  b = load()\n\n  c = load()\n")
    before = of(*(an_access(32, n, source=a_line(n, str(old))) for n in (1, 2)))
    after = of(*(an_access(64, n, source=a_line(n, str(new))) for n in (2, 4)))
    found = compared_lines([before, after])
    lines = [tuple(source.line for source in moves.sources) for moves in found]
    assert lines == [(1, 4), (2, 2)]


def test_generated_lines_are_found_by_the_text_that_outlives_their_files():
    def generated(file, text, line):
        compiled = a_compiled(source_file=file, source_text=text)
        return a_report(compiled=compiled, accesses=(an_access(source=a_line(line, file)),))

    before = generated("/gone/a.py", "first()\nload()\n", 2)
    after = generated("/gone/b.py", "load()\nlast()\n", 1)
    other = generated("/gone/b.py", "load()\nlast()\n", 2)
    both = replace(after, accesses=(*other.accesses, *after.accesses))
    (same, *_) = compared_lines([before, both])
    assert [source and source.line for source in same.sources] == [2, 1]


def test_an_access_without_a_width_is_counted():
    (moves,) = compared_lines([of(an_access(None, 3)), of(an_access(None, 1), an_access(32))])
    assert moves.levels["ptx"] == (LevelAccesses({}, 3), LevelAccesses({32: 1}, 1))


def test_findings_are_the_same_whatever_their_figures():
    one = a_finding("high", "16 loads", "Pad n to a multiple of 16", "seen", a_line(3))
    other = replace(one, template="8 loads", severity="medium")
    moved = replace(one, subject=subject_of(a_line(9), a_compiled()))
    gone = a_finding("low", "spills", "Use a smaller tile", "seen")
    assert match_findings([[one, gone], [other]]) == ((one, other), (gone, None))
    assert match_findings([[one], [moved]]) == ((one, moved),)
    assert match_findings([[], [gone], [one]]) == ((None, None, one), (None, gone, None))


def test_versions_without_a_kernel_in_common_are_refused():
    two = PtxReport("b.py", tuple(a_report(compiled=a_compiled(name=name)) for name in "bc"))
    with pytest.raises(InputError, match=r"a\.py has gelu_kernel; b\.py has b, c"):
        compare(
            [
                ComparedVersion("a.py", PtxReport("a.py", (a_report(),))),
                ComparedVersion("b.py", two),
            ]
        )


def test_what_has_no_counterpart_is_left_out_and_told():
    alone = a_report(compiled=a_compiled(name="alone"))
    versions = [
        ComparedVersion("a", PtxReport("a", (a_report(), alone))),
        ComparedVersion("b", PtxReport("b", (a_report(),))),
    ]
    made = compare(versions)
    assert [comparison.name for comparison in made.comparisons] == ["gelu_kernel"]
    assert made.left_out == ((0, alone),)


def test_of_three_versions_a_kernel_must_be_in_each():
    alone = a_report(compiled=a_compiled(name="alone"))
    both, one = PtxReport("a", (a_report(), alone)), PtxReport("b", (a_report(),))
    made = compare(
        [ComparedVersion("a", both), ComparedVersion("b", one), ComparedVersion("c", both)]
    )
    assert [len(comparison.kernels) for comparison in made.comparisons] == [3]
    assert made.left_out == ((0, alone), (2, alone))


def labels(targets, **options):
    made = plan(targets, options)
    return made.option, [(made.named(each), each.target) for each in made.versions]


def test_what_to_compare_is_read_off_the_targets_and_options():
    assert labels(["a.py", "b.py"]) == (None, [("a.py", "a.py"), ("b.py", "b.py")])
    assert labels(["x/a.py", "y/a.py"])[1][0] == ("x/a.py", "x/a.py")
    assert labels(["a.py"], num_warps=[4, 8]) == (
        "--num-warps",
        [("--num-warps 4", "a.py"), ("--num-warps 8", "a.py")],
    )
    made = plan(["a.py"], {"constexprs": {"B": ["1", "2"], "C": "3"}, "num_warps": 4})
    assert made.varied == {"B"}
    assert [each.options for each in made.versions] == [
        {"constexprs": {"B": value, "C": "3"}, "num_warps": 4} for value in "12"
    ]
    assert made.named(made.versions[0]) == "--constexpr B=1"


@pytest.mark.parametrize(
    ("targets", "options"),
    [
        (["a.py"], {}),
        ([], {}),
        (["a.py"], {"num_warps": [4]}),
        (["a.py"], {"num_warps": [4, 4]}),
        (["a.py"], {"num_warps": [1, 2, 4, 8, 16]}),
        (["a.py"], {"num_warps": [4, 8], "num_stages": [2, 3]}),
        (["a.py", "b.py"], {"num_warps": [4, 8]}),
    ],
)
def test_all_else_is_no_comparison(targets, options):
    with pytest.raises(InputError):
        plan(targets, options)
