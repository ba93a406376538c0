"""A finding that variants of a kernel share: one sentence, with the range of each figure."""

import pytest

from traceview.base.findings import Evidence, Finding
from traceview.render.kernels.names import action_of, basis_of, message_of


def found(template, *variants, basis=()):
    bases = basis or [""] * len(variants)
    return [
        Finding("high", template, template, evidence=Evidence(values, basis=text))
        for values, text in zip(variants, bases, strict=True)
    ]


@pytest.mark.parametrize(
    ("template", "name", "values", "message"),
    [
        ("moves {moved_bytes}", "moved_bytes", [8192, 4096, 16384], "moves 4.10 to 16.4 kB"),
        ("spills {spill_bytes}", "spill_bytes", [1128, 60], "spills 60 B to 1.13 kB"),
        ("{n:atomic} wait", "n", [4, 1], "1 to 4 atomics wait"),
        ("{n:atomic} wait", "n", [1, 1], "1 atomic wait"),
        ("{n:block} wait", "n", [1312, 64, 2624], "64 to 2,624 blocks wait"),
        # The least and the most of each number, whichever variant has it.
        ("{w} wait", "w", ["4 × 64 bits", "16 × 32 bits"], "4 to 16 × 32 to 64 bits wait"),
        ("fills {fill_pct}", "fill_pct", [13.8, 22.4], "fills 13.8 to 22.4 %"),
        ("{w} wait", "w", ["2 × 64 bits", "2 × 64 bits + 1 × 8 bits"], None),
        # A name and a place have no range.
        ("{apart} apart", "apart", ["stride_b1", "stride_b2"], "stride_b1 or stride_b2 apart"),
        ("at {line}", "line", ["gelu.py:3", "gelu.py:7"], "at gelu.py:3 or gelu.py:7"),
        ("at {line}", "line", ["gelu.py:3", "gelu.py:3"], "at gelu.py:3"),
    ],
)
def test_a_field_has_the_range_over_the_variants(template, name, values, message):
    findings = found(template, *({name: value} for value in values))
    expected = message or "2 × 64 bits or 2 × 64 bits + 1 × 8 bits wait"
    assert message_of(findings) == action_of(findings) == expected


def test_the_basis_names_its_variant_only_where_variants_differ():
    same = found("slow", {}, {}, basis=("seen", "seen"))
    assert basis_of(same, ["k 1", "k 2"]) == "seen"
    assert basis_of(found("slow", {}, {}, basis=("a", "b")), ["k 1", "k 2"]) == "k 1: a"
