"""What a description tells of tensors of every type."""

import pytest

from traceview.bench import describe

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e5m2", "float16", "float32", "float64"])
def test_floats_of_every_width(kind):
    x = torch.tensor([-3.0, 0.5, float("nan"), 4.0]).to(getattr(torch, kind))
    facts = describe(lambda x: x.clone(), x, trials=1).inputs[0]
    assert (facts.dtype, facts.bytes) == (kind, 4 * x.element_size())
    assert (facts.least, facts.greatest, facts.mean) == (-3.0, 4.0, 0.5)
    assert (facts.nan_count, facts.inf_count) == (1, 0)


def test_whole_numbers_and_infinities():
    x = torch.tensor([-3, 4], dtype=torch.int8)
    y = torch.tensor([float("inf"), 1.0], dtype=torch.float8_e5m2)
    whole, infinite = describe(lambda x, y: x, x, y, trials=1).inputs
    assert (whole.least, whole.greatest, whole.mean) == (-3.0, 4.0, 0.5)
    assert (infinite.greatest, infinite.inf_count) == (1.0, 1)
