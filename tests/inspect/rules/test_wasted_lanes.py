"""Work that gains nothing by its form: converted operands, blocks of one value, wide enough stores.

What helps beside each is no such finding.
"""

import pytest

from tests.inspect.retried import Retried, allow

pytestmark = pytest.mark.programs


@pytest.fixture
def kernels(triton_cache, monkeypatch):
    allow(triton_cache, monkeypatch)
    from tests.inspect.rules import narrow_kernels

    return narrow_kernels


def products(kernels, pointers, scale="1", **options):
    tried = Retried(kernels.upcast, f"{pointers}, i32:16, 64, {scale}", with_ttgir=True, **options)
    return [f for f in tried.findings() if "matrix product" in f.message]


@pytest.mark.parametrize("element", ["fp16", "bf16"])
def test_operands_that_are_converted_to_fp32_before_their_product(kernels, element):
    (finding,) = products(kernels, f"*{element}:16, *{element}:16, *fp32:16")
    assert finding.severity == "high"
    assert f"multiplies in fp32 what was loaded as {element}:" in finding.message
    assert "as they are loaded, without .to(tl.float32)" in finding.action


@pytest.mark.parametrize(
    ("pointers", "scale"),
    [
        ("*fp32:16, *fp32:16, *fp32:16", "1"),
        # The product would be of other values, or of a type that has none of the other's.
        ("*fp16:16, *fp16:16, *fp32:16", "3"),
        ("*fp16:16, *bf16:16, *fp32:16", "1"),
        ("*fp16:16, *fp32:16, *fp32:16", "1"),
    ],
    ids=["fp32 in memory", "scaled", "two types", "one is fp32"],
)
def test_operands_that_16_bits_do_not_hold(kernels, pointers, scale):
    assert products(kernels, pointers, scale) == []


@pytest.mark.parametrize("element", ["fp16", "bf16"])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("is_exponential", [False, True])
def test_values_that_attention_converts(kernels, element, masked, is_exponential):
    signature = f"*fp32:16, *{element}:16, *fp32:16, i32:16, 64, {masked}, {is_exponential}"
    tried = Retried(kernels.values, signature, with_ttgir=True, sass=False)
    found = [f for f in tried.findings() if "matrix product" in f.message]
    assert [f.severity for f in found] == ["medium"] * is_exponential
    for finding in found:
        assert f"in fp32 an operand that was loaded as {element} and converted" in finding.message
        assert finding.action.startswith(f"Where the other operand may be rounded to {element}")


def test_a_block_of_one_value(kernels):
    tried = Retried(kernels.quaternion_norm, "*fp32:16, *fp32:16, i32", with_ttgir=True)
    (finding,) = tried.findings()
    assert finding.severity == "medium"
    (launched,) = (f for f in tried.findings(grid=(4096, 1, 1)) if "single values" in f.message)
    assert launched.severity == "high"
    assert finding.message.startswith("Each block works on single values, not on tiles: its 128")


def test_stores_of_a_narrower_type_are_left(kernels):
    """fp32 is loaded in 128 bits: more elements per thread would spread its loads."""
    tried = Retried(kernels.quantized, "*fp32:16, *i8:16, fp32, i32:16, 1024", with_ttgir=True)
    (finding,) = tried.findings()
    assert (finding.severity, finding.action.partition(":")[0]) == ("info", "Leave it")
    assert "128 bits instead of 64, but 128-bit loads at" in finding.evidence.basis
