"""Wrong results that could pass for right: stale memory, nested inputs, results of other kinds."""

from collections import OrderedDict
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from tests.bench.operations import OPERATION  # noqa: E402 (needs torch)
from traceview.base.errors import InputError  # noqa: E402
from traceview.trials.bench import BenchRequest, Version, measure  # noqa: E402
from traceview.trials.bench.case import Reference, compare, flatten, map_tensors  # noqa: E402


def verdicts(operation, size=1000):
    report = measure(operation, BenchRequest(sizes=[size], trials=1))
    return {row.version: (row.status, row.why) for row in report.rows}


def double(x, factor):
    return x * factor


@pytest.mark.parametrize("size", [1000, 1 << 16, 1 << 20])
def test_unwritten_output_does_not_pass_with_results_of_another_version(size):
    """It gets the memory of earlier results, where it would find the right values."""

    def half(x, factor):
        result = torch.empty_like(x)
        result[: size // 2] = x[: size // 2] * factor
        return result

    versions = (Version("all", double), Version("half", half), Version("again", half))
    # The C library decides which memory it returns, and now and then picks another block.
    for _ in range(3):
        found = verdicts(replace(OPERATION, versions=versions), size)
        assert found["all"] == ("timed", None)
        if (found["half"][0], found["again"][0]) == ("wrong", "wrong"):
            return
    raise AssertionError(f"unwritten output passed: {found}")


def test_poisoned_memory_is_nan_in_every_floating_type():
    kinds = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
    for kind in kinds:
        poisoned = torch.full((8,), 255, dtype=torch.uint8).view(getattr(torch, kind))
        assert bool(poisoned.float().isnan().all()), kind
    expected = (torch.zeros(0), torch.zeros(3, dtype=torch.int64))
    Reference(0, (torch.zeros(0), 2), expected, ()).poison_free_memory()


def nested(size, dtype, device):
    made = torch.arange(float(size), dtype=dtype, device=device)
    return [made, made.clone()], {"scale": made.clone()}


def scaled(xs, more):
    return (xs[0] + xs[1]) * more["scale"]


def scaled_in_place(xs, more):
    return xs[0].add_(xs[1]).mul_(more["scale"])


def test_inputs_in_lists_and_mappings_are_kept_and_taken_in_float64():
    seen = []

    def reference(xs, more):
        seen.append((xs[0].dtype, more["scale"].dtype))
        return scaled(xs, more)

    operation = replace(
        OPERATION,
        inputs=nested,
        reference=reference,
        versions=(Version("in-place", scaled_in_place), Version("after", scaled)),
        bytes_moved=lambda *_: 1,
        flop=lambda *_: 1,
        check=lambda *_: None,
    )
    assert verdicts(operation) == {
        "in-place": ("wrong", "modifies its inputs"),
        "after": ("timed", None),
    }
    assert seen == [(torch.float64, torch.float64)]


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (None, "returns None, not a tensor"),
        (3.0, "returns a float, not a tensor"),
        ("x", "returns a str, not a tensor"),
        ({}, "returns 0 tensors, the reference returns 1"),
    ],
)
def test_a_version_that_returns_no_tensor(result, message):
    found = verdicts(replace(OPERATION, versions=(Version("odd", lambda *_: result),)))
    assert found == {"odd": ("wrong", message)}


def test_a_reference_that_returns_no_tensor():
    with pytest.raises(InputError, match="the reference of double returns None, not a tensor"):
        verdicts(replace(OPERATION, reference=lambda *_: None))


def test_results_by_name_are_compared_by_name():
    x = torch.ones(2)
    mixed = flatten(OrderedDict(b=x, a=(2 * x, [3 * x])))
    assert [float(each[0]) for each in mixed] == [2, 3, 1]
    reference = flatten({"a": x, "b": 2 * x})
    assert compare({"b": 2 * x, "a": x}, reference, 0.0).wrong is None
    assert compare({"b": x, "a": 2 * x}, reference, 0.0).wrong is not None


def test_mapping_tensors_keeps_container_types():
    pair = torch.return_types.max((torch.ones(1), torch.zeros(1)))
    found = map_tensors(([torch.ones(1)], {"k": pair}, 3), lambda each: each + 1)
    assert float(found[0][0]) == 2
    assert type(found[1]["k"]) is type(pair)
    assert found[2] == 3


def test_imaginary_parts_are_compared():
    reference = (torch.tensor([3 + 4j]),)
    assert compare(torch.tensor([3 + 4j]), reference, 0.0).wrong is None
    assert compare(torch.tensor([3 - 4j]), reference, 0.1).error == pytest.approx(8 / 5)
    assert compare(torch.tensor([3.0]), reference, 0.1).error == pytest.approx(4 / 5)
