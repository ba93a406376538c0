"""What the next report says after its advice was followed: nothing that is worse than before."""

import re
from collections import Counter
from dataclasses import replace

import pytest

from tests.inspect.retried import Retried, allow
from traceview.base.findings import SEVERITIES, Finding

pytestmark = pytest.mark.programs

SETTING = re.compile(r"\b([A-Za-z_]\w*)=(\d+)\b")
OPTIONS = ("num_warps", "num_stages")


@pytest.fixture
def kernels(triton_cache, monkeypatch):
    allow(triton_cache, monkeypatch)
    from tests.inspect.rules import rival_kernels

    return rival_kernels


def settings(finding: Finding) -> dict[str, int]:
    """The first of the alternatives that an action names, if it was recompiled."""
    first = re.split(r"\. | or ", finding.action)[0]
    found = {name: int(value) for name, value in SETTING.findall(first)}
    return found if finding.evidence.values.get("proven") else {}


def followed(retried: Retried, chosen: dict[str, int]) -> Retried:
    """The kernel with these settings, as a reader would change the program."""
    names = list(retried.kernel.arg_names)
    entries = dict(zip(names, retried.signature.split(", "), strict=True))
    entries |= {name: str(value) for name, value in chosen.items() if name in entries}
    options = {name: value for name, value in chosen.items() if name in OPTIONS}
    assert set(options) | set(entries) >= set(chosen), chosen
    return replace(retried, signature=", ".join(entries.values()), changes=[], **options)


def is_worse(after: tuple[Finding, ...], before: tuple[Finding, ...]) -> bool:
    """Whether the worst severity in which two reports differ has more findings than before."""
    counts = Counter(f.severity for f in before), Counter(f.severity for f in after)
    differing = (s for s in SEVERITIES if counts[0][s] != counts[1][s])
    worst = next(differing, None)
    return worst is not None and counts[1][worst] > counts[0][worst]


def of_matmul(element, tile, **options):
    pointers = ", ".join([f"*{element}:16"] * 3)
    sizes = ", ".join(map(str, tile))
    return f"{pointers}, *i32:16, i32, i32:16, i32:16, {sizes}, 132", options


@pytest.mark.programs
@pytest.mark.parametrize(
    ("kernel", "declared"),
    [
        # Spills want 4 warps, occupancy alone would have 8.
        pytest.param(
            "grouped_gemm",
            of_matmul("fp16", (64, 128, 64), num_warps=2, num_stages=4),
            id="gemm-fp16",
        ),
        # Shared loads want 4 warps, and fp32 is then transposed element by element.
        pytest.param(
            "grouped_gemm",
            of_matmul("fp32", (64, 64, 32), num_warps=2, num_stages=2),
            id="gemm-fp32",
        ),
        # Stores want 2 warps, loads 4.
        pytest.param(
            "dequantize",
            ("*i32:16, *fp16:16, *fp16:16, i32:16, i32:16, 128, 8, 64", {"num_warps": 8}),
            id="int4",
        ),
    ],
)
def test_advice_that_is_followed_makes_no_report_worse(kernels, kernel, declared):
    signature, options = declared
    retried = Retried(getattr(kernels, kernel), signature, **options)
    before = retried.findings()
    told = [chosen for finding in before if (chosen := settings(finding))]
    assert told
    together: dict[str, int] = {}
    for chosen in told:
        # No two findings set one thing to different values.
        assert all(together.setdefault(name, value) == value for name, value in chosen.items())
    after = followed(retried, together).findings()
    assert is_worse(before, after), [finding.message for finding in after]
    for chosen in (each for each in told if each != together):
        after = followed(retried, chosen).findings()
        assert not is_worse(after, before), (chosen, [finding.message for finding in after])


def test_a_finding_that_another_remedy_removes_says_so(kernels):
    signature = "*i32:16, *fp16:16, *fp16:16, i32:16, i32:16, 128, 8, 64"
    findings = Retried(kernels.dequantize, signature, num_warps=8).findings()
    stores, *others = findings
    assert stores.action.startswith("Use num_warps=2.")
    assert "because each thread has too few adjacent elements" in stores.message
    solved = "Use num_warps=2, as advised for another finding: it removes this one, too"
    (loads,) = (finding for finding in others if finding.action == solved)
    assert loads.evidence.basis.endswith("recompiled with num_warps=2: no such finding")


def test_stores_are_not_widened_where_that_scatters_loads(kernels):
    """On an H200 the same remedy made a public kernel of this kind 20 % slower."""
    findings = Retried(kernels.pack_pairs, "*fp16:16, *u8:16, i32:16, 1024").findings()
    loads, stores = (f for f in findings if f.message.startswith("Global"))
    assert "a thread's elements are 2 apart" in loads.message
    assert stores.action.startswith("Coalesce the other accesses of this kernel first")
    assert ": 128 bits instead of 64, but uncoalesced loads at" in stores.evidence.basis
    assert "grow from 8 to 16 per thread" in stores.evidence.basis
