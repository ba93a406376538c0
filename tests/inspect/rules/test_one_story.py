"""One thing is told once: by its cause, and as surely as the sizes of the tile are known."""

import itertools
from importlib.util import find_spec

import pytest

import traceview
from tests.inspect.retried import Retried, allow
from traceview.base.findings import SEVERITIES, Finding
from traceview.kernels.headless.compile_options import Change
from traceview.kernels.inspect.rules import of_causes
from traceview.kernels.inspect.rules.remedies import Advice, Remedy
from traceview.kernels.inspect.rules.vector_width.causes import NarrowReason
from traceview.kernels.ptx.model import SourceLine

HEAD = "import torch\nimport triton\nimport triton.language as tl\n\n\n"
CONFIGURED = '@triton.autotune([triton.Config({"SIDE": 64})], key=[])\n'
KERNEL = """@triton.jit
def scaled(x_ptr, y_ptr, n, SIDE: tl.constexpr{default}):
    at = tl.program_id(0) * SIDE + tl.arange(0, SIDE)
    tl.store(y_ptr + at, 2 * tl.load(x_ptr + at, mask=at < n), mask=at < n)


def run(x, other=None):
    rows, head_dim = x.shape
    y = torch.empty_like(x)
    scaled[(rows,)](x, y, x.numel(){passed})
"""


@pytest.mark.programs
@pytest.mark.skipif(
    find_spec("triton") is None or find_spec("torch") is None, reason="compiles with Triton"
)
@pytest.mark.parametrize(
    ("decorator", "default", "passed", "known"),
    [
        ("", "", ", SIDE=64", True),
        ("", " = 64", "", True),
        (CONFIGURED, "", "", True),
        ("", "", ", SIDE=head_dim", False),
        ("", "", ", SIDE=triton.next_power_of_2(head_dim)", False),
        ("", "", ", SIDE=other", False),
    ],
    ids=["passed", "default", "configuration", "of a tensor", "rounded", "unknown"],
)
def test_a_tile_that_nobody_gave_proves_little(tmp_path, decorator, default, passed, known):
    kernel = KERNEL.replace("{default}", default).replace("{passed}", passed)
    (tmp_path / "script.py").write_text(HEAD + decorator + kernel)
    (report,) = traceview.inspect_ptx(tmp_path / "script.py").kernels
    assert report.compiled.assumed_sides == (() if known else ("SIDE",))
    for finding in report.findings:
        assert known or finding.severity != "high"
        assert ("with SIDE=64 (guessed)" in finding.message) == (not known)
    assert report.findings or not known


@pytest.mark.programs
@pytest.mark.skipif(
    find_spec("triton") is None or find_spec("torch") is None, reason="compiles with Triton"
)
@pytest.mark.parametrize(
    ("index", "severity", "is_of_tile"),
    [("at", "low", True), ("at * rows", "high", False), ("at // 64 * rows + at % 64", "low", True)],
)
def test_what_another_tile_has_not_is_low(tmp_path, index, severity, is_of_tile):
    kernel = KERNEL.replace("{default}", "").replace("{passed}", ", SIDE=head_dim")
    kernel = kernel.replace("x_ptr, y_ptr, n, SIDE", "x_ptr, y_ptr, n, rows, SIDE")
    kernel = kernel.replace("x_ptr + at", f"x_ptr + {index}").replace("numel()", "numel(), rows")
    (tmp_path / "script.py").write_text(HEAD + kernel)
    (report,) = traceview.inspect_ptx(tmp_path / "script.py", budget_s=120).kernels
    assert report.compiled.assumed_sides == ("SIDE",)
    loads = [f for f in report.findings if "Global loads" in f.message]
    assert [f.severity for f in loads] == [severity]
    assert ("with SIDE=64 (guessed)" in loads[0].message) == is_of_tile


@pytest.mark.programs
@pytest.mark.parametrize("element", ["fp16", "bf16"])
def test_the_product_that_spills_comes_before_its_spills(triton_cache, monkeypatch, element):
    allow(triton_cache, monkeypatch)
    from tests.inspect.rules.narrow_kernels import exact_values

    signature = f"*fp32:16, *{element}:16, *fp32:16, i32:16, 64"
    tried = Retried(exact_values, signature, with_ttgir=True, num_warps=1, num_stages=2)
    first, *rest = tried.alone().findings
    assert "multiplies in fp32 an operand that was loaded as" in first.message
    assert [f for f in rest if "spills" in f.message]
    assert not any("CUDA cores" in f.message for f in rest)


def at(*numbers):
    return frozenset(SourceLine("k.py", number) for number in numbers)


def advice(severity, rule, lines, explained_by=(), adds=""):
    return Advice(Finding(severity, rule, ""), (), "", rule, lines, explained_by, adds)


PLACES = [at(1), at(2), at(1, 2), at()]


@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize(("cause", "symptom"), [*itertools.product(PLACES, PLACES)])
def test_a_symptom_is_told_with_its_cause(severity, cause, symptom):
    first = advice(severity, "cause", cause)
    second = advice("high", "symptom", symptom, ("cause",), "So it waits")
    is_told = severity != "info" and bool(symptom) and symptom <= cause
    for order in itertools.permutations([first, second]):
        told = [each.finding.message for each in of_causes(order)]
        assert sorted(told) == (["cause. So it waits"] if is_told else ["cause", "symptom"])


@pytest.mark.parametrize(("one", "other"), [*itertools.product(SEVERITIES, SEVERITIES)])
def test_of_one_line_the_more_severe_finding_of_a_rule_is_left(one, other):
    listed = [advice(each, "narrow", at(1), ("narrow",)) for each in (one, other)]
    left = [each.finding.severity for each in of_causes(listed)]
    is_one = one != other and "info" not in (one, other)
    assert left == ([min(one, other, key=SEVERITIES.index)] if is_one else [one, other])


@pytest.mark.parametrize("widened", [64, 128])
@pytest.mark.parametrize("fewer", [1, 2])
def test_what_one_recompilation_widens_is_one_reason(widened, fewer):
    one = NarrowReason(
        "few", "Use num_warps=1", "", True, 64, (Remedy("use", Change(num_warps=1)),)
    )
    remedies = (Remedy("use", Change(num_warps=fewer)),)
    other = NarrowReason("few", "Use num_warps=1. If so, C", "", True, widened, remedies)
    joined = one if (widened, fewer) == (64, 1) else None
    assert one.joined([other]) == other.joined([one]) == joined


TILED = """@triton.autotune([{configurations}], key=[])
@triton.jit
def scaled(x_ptr, y_ptr, n, stride, SIDE: tl.constexpr):
    at = tl.program_id(0) * SIDE + tl.arange(0, SIDE)
    x = tl.load(x_ptr + at{apart}, mask=at < n)
    tl.store(y_ptr + at, 2 * x, mask=at < n)


def run(x):
    scaled[(64,)](x, torch.empty_like(x), x.numel(), 16 * len(x))
"""
WIDE, NARROW = (1024, 4), (64, 4)


@pytest.mark.programs
@pytest.mark.skipif(
    find_spec("triton") is None or find_spec("torch") is None, reason="compiles with Triton"
)
@pytest.mark.parametrize("apart", ["", " * stride"], ids=["adjacent", "apart"])
@pytest.mark.parametrize(
    "tiles", [[WIDE, NARROW], [NARROW, WIDE], [NARROW, (32, 4)], [NARROW]], ids=str
)
def test_what_another_configuration_does_better_is_no_step(tmp_path, tiles, apart):
    listed = [f'triton.Config({{"SIDE": {side}}}, num_warps={warps})' for side, warps in tiles]
    text = TILED.replace("{configurations}", ", ".join(listed)).replace("{apart}", apart)
    (tmp_path / "script.py").write_text(HEAD + text)
    reports = traceview.inspect_ptx(tmp_path / "script.py").kernels
    assert len(reports) == len(tiles)
    for (side, _), report in zip(tiles, reports, strict=True):
        serious = [f for f in report.findings if f.severity in ("high", "medium")]
        assert bool(serious) == (bool(apart) or WIDE not in tiles)
        beside = [f for f in report.findings if "the autotuner also has SIDE=" in f.evidence.basis]
        assert bool(beside) == (not apart and WIDE in tiles and side != WIDE[0])
        assert {f.severity for f in beside} <= {"info"}
