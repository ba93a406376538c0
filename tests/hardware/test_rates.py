"""Published peak rates: found by the names that drivers give, and consistent with themselves."""

import pytest

from traceview.base.errors import InputError
from traceview.base.hardware import FLOP_KINDS, KNOWN_CAPABILITIES, lanes_of, rates_of
from traceview.base.hardware.rates import _KNOWN, product_named

NAMES = {
    "NVIDIA H200": ("H200 SXM", 989.4e12),
    "NVIDIA H100 80GB HBM3": ("H100 SXM", 989.4e12),
    "NVIDIA H100 PCIe": ("H100 PCIe", 756e12),
    "NVIDIA H100 NVL": ("H100 NVL", 835.5e12),
    "NVIDIA GH200 480GB": ("GH200", 989.4e12),
    "NVIDIA A100-SXM4-40GB": ("A100 40GB", 312e12),
    "NVIDIA A100-SXM4-80GB": ("A100 SXM 80GB", 312e12),
    "NVIDIA A100 80GB PCIe": ("A100 PCIe 80GB", 312e12),
    "NVIDIA L4": ("L4", 121e12),
    "NVIDIA L40": ("L40", 181.05e12),
    "NVIDIA L40S": ("L40S", 362.05e12),
    "NVIDIA A10": ("A10", 125e12),
    "NVIDIA B200": ("B200", 2250e12),
    "NVIDIA B300 SXM6 AC": ("B300", 2250e12),
    "NVIDIA GeForce RTX 4090": ("RTX 4090", 165.2e12),
    "GeForce RTX 3090": ("RTX 3090", 71e12),
}
# Compute capability and FLOP of the tensor cores of an SM in a clock, bf16 (V100 and T4: fp16),
# by the whitepapers.
PER_SM = {
    **dict.fromkeys(("V100 SXM", "V100 PCIe", "V100S PCIe", "T4"), 1024),
    **dict.fromkeys(("A100 40GB", "A100 SXM 80GB", "A100 PCIe 80GB", "A30"), 2048),
    **dict.fromkeys(("A10", "A40", "L4", "L40S"), 1024),
    **dict.fromkeys(("L40", "RTX 3090", "RTX 4090", "RTX 5090"), 512),
    **dict.fromkeys(("H100 SXM", "H100 PCIe", "H100 NVL", "H200 SXM", "H200 NVL", "GH200"), 4096),
    "B200": 8192,
}
ALL = [rates for _, rates in _KNOWN]
each = pytest.mark.parametrize("rates", ALL, ids=lambda rates: rates.product)


@pytest.mark.parametrize("name", NAMES)
def test_a_product_is_known_by_the_name_that_its_driver_gives(name):
    rates = rates_of(name)
    assert rates is not None
    assert (rates.product, rates.flop_per_s["bf16"]) == NAMES[name]


@pytest.mark.parametrize(
    "name",
    [
        None,
        "",
        "NVIDIA A10G",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "NVIDIA H2000",
        "Orin",
        "H200\nH200",
    ],
)
def test_another_product_of_a_like_name_is_not_known(name):
    assert rates_of(name) is None


def test_a_slice_of_a_gpu_has_its_name_and_not_its_rates():
    assert rates_of("NVIDIA H200", 132) is not None
    assert rates_of("NVIDIA H200", 16) is None


@each
def test_rates_are_of_known_kinds_and_have_a_source(rates):
    assert set(rates.flop_per_s) <= set(FLOP_KINDS)
    assert all(value > 1e12 for value in rates.flop_per_s.values())
    assert rates.source
    for figure in (rates.memory_bytes_per_s, rates.link_bytes_per_s, rates.l2_cache_bytes):
        assert figure is None or figure > 1 << 20


@each
def test_the_tensor_rate_is_what_the_sms_do_at_a_sound_clock(rates):
    """A sparse rate taken for a dense one, or that of another part, would be off by two."""
    if rates.product not in PER_SM:
        pytest.skip("no whitepaper says what one of its SMs does")
    rate = rates.flop_per_s.get("bf16", rates.flop_per_s.get("fp16"))
    clock = rate / rates.sm_count / PER_SM[rates.product]
    assert 1.3e9 < clock < 2.6e9
    if "fp32" in rates.flop_per_s:
        capability = {"V100": "7.0", "T4": "7.5", "A100": "8.0", "A30": "8.0"}.get(
            rates.product.split()[0].replace("V100S", "V100"), "9.0"
        )
        lanes = lanes_of(capability)
        assert rates.flop_per_s["fp32"] / rates.sm_count / lanes / 2 == pytest.approx(
            clock, rel=0.1
        )


@each
def test_narrower_types_are_faster_by_whole_factors(rates):
    found = rates.flop_per_s
    for slow, fast in (("tf32", "bf16"), ("bf16", "fp8"), ("fp8", "fp4")):
        if slow in found and fast in found:
            factor = found[fast] / found[slow]
            assert any(factor == pytest.approx(whole, rel=0.03) for whole in (2, 3, 4)), slow


@pytest.mark.parametrize("capability", KNOWN_CAPABILITIES)
def test_lanes(capability):
    assert lanes_of(capability) in (64, 128)
    assert lanes_of(capability, "fp64") in (None, 2, 32, 64)


def test_what_is_not_known_has_no_lanes():
    assert lanes_of("13.0") is None
    assert lanes_of("9.0", "bf16") is None


@pytest.mark.parametrize(
    ("text", "product"),
    [
        ("H200", "H200 SXM"),
        ("nvidia h100", "H100 SXM"),
        ("H100 PCIe", "H100 PCIe"),
        ("A100", "A100 SXM 80GB"),
        ("A100 40GB", "A100 40GB"),
        ("B200", "B200"),
        ("GeForce RTX 4090", "RTX 4090"),
    ],
)
def test_a_product_is_found_by_a_short_name(text, product):
    assert product_named(text).product == product


@pytest.mark.parametrize("text", ["", "H", "H100 PCIe 80GB SXM", "NVIDIA"])
def test_another_name_is_an_error(text):
    with pytest.raises(InputError, match=r"no rates are known of a GPU .*choose from: V100 SXM"):
        product_named(text)
