"""Descriptions of tensors of every data type."""

import sys

import pytest

from traceview.trials.bench import describe

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e5m2", "float16", "float32", "float64"])
def test_floats_of_every_width(kind):
    x = torch.tensor([-3.0, 0.5, float("nan"), 4.0]).to(getattr(torch, kind))
    facts = describe(lambda x: x.clone(), x, trials=1).inputs[0]
    assert (facts.dtype, facts.bytes) == (kind, 4 * x.element_size())
    assert (facts.least, facts.greatest, facts.mean) == (-3.0, 4.0, 0.5)
    assert (facts.nan_count, facts.inf_count) == (1, 0)


def test_integers_and_infinities():
    x = torch.tensor([-3, 4], dtype=torch.int8)
    y = torch.tensor([float("inf"), 1.0], dtype=torch.float8_e5m2)
    whole, infinite = describe(lambda x, y: x, x, y, trials=1).inputs
    assert (whole.least, whole.greatest, whole.mean) == (-3.0, 4.0, 0.5)
    assert (infinite.greatest, infinite.inf_count) == (1.0, 1)


def test_integers_of_every_width():
    for kind in (torch.bool, torch.uint16, torch.uint32, torch.uint64, torch.int64):
        facts = describe(lambda x: x, torch.tensor([0, 1, 1, 0]).to(kind), trials=1).inputs[0]
        assert (facts.least, facts.greatest, facts.mean) == (0.0, 1.0, 0.5), kind


def test_complex_numbers_are_described_by_magnitude():
    x = torch.tensor([3 + 4j, 0j, complex("inf")])
    facts = describe(lambda x: x, x, trials=1).inputs[0]
    assert (facts.least, facts.greatest, facts.mean) == (0.0, 5.0, 2.5)
    assert (facts.nan_count, facts.inf_count) == (0, 1)


def test_tensors_in_lists_and_mappings_are_named_by_their_place():
    x = torch.ones(2)
    found = describe(
        lambda xs, more: {"sum": xs[0] + more["y"]}, [x, x], {"y": x, "n": 3}, trials=1
    )
    assert [each.name for each in found.inputs] == ["input 0[0]", "input 0[1]", "input 1['y']"]
    assert [each.name for each in found.outputs] == ["output 0['sum']"]
    assert found.arguments == ("3",)


def test_tensors_without_strides_or_values_are_arguments():
    x = torch.eye(2)
    found = describe(lambda *_: x, x.to_sparse(), x.to("meta"), trials=1)
    assert found.inputs == ()
    assert [text.partition("(")[0] for text in found.arguments] == ["tensor", "tensor"]
    assert "\n" not in found.arguments[0]


def test_the_gpu_of_any_input_or_output_is_timed(monkeypatch):
    """Also of tensors in lists, and of outputs alone; otherwise only the launch would be timed."""

    class OnGpu(torch.Tensor):
        is_cuda, device = True, torch.device("cuda", 7)

    devices, module = [], sys.modules[describe.__module__]
    monkeypatch.setattr(module, "benchmark", lambda *_, device, **__: devices.append(device))
    monkeypatch.setattr(module, "_peak_bytes", lambda *_: 0)
    x = torch.ones(2).as_subclass(OnGpu)
    describe(lambda xs: torch.ones(1), [x])
    describe(lambda: {"y": x})
    describe(lambda: torch.ones(1))
    assert devices == ["cuda:7", "cuda:7", "cpu"]
