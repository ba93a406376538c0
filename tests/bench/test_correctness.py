"""What could pass for right, and is not: results left in memory, nested inputs, other results."""

from collections import OrderedDict
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from tests.bench.operations import OPERATION  # noqa: E402 (needs torch)
from traceview.bench import Asked, Version, measure  # noqa: E402
from traceview.bench.correctness import changed, compare, spoil_free_memory, tensors  # noqa: E402
from traceview.errors import InputError  # noqa: E402


def verdicts(operation, size=1000):
    report = measure(operation, Asked(sizes=[size], trials=1))
    return {row.version: (row.status, row.why) for row in report.rows}


def double(x, factor):
    return x * factor


@pytest.mark.parametrize("size", [1000, 1 << 16, 1 << 20])
def test_what_a_version_leaves_unwritten_is_not_what_another_wrote(size):
    """It gets the memory that the results before it were in: then it would be right."""

    def half(x, factor):
        result = torch.empty_like(x)
        result[: size // 2] = x[: size // 2] * factor
        return result

    versions = (Version("all", double), Version("half", half), Version("again", half))
    # Which memory the C library gives is its own affair: once in a while it is yet another.
    for _ in range(3):
        found = verdicts(replace(OPERATION, versions=versions), size)
        assert found["all"] == ("timed", None)
        if (found["half"][0], found["again"][0]) == ("wrong", "wrong"):
            return
    raise AssertionError(f"what was left unwritten passed for right: {found}")


def test_spoilt_memory_is_nan_in_every_floating_type():
    kinds = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
    for kind in kinds:
        spoilt = torch.full((8,), 255, dtype=torch.uint8).view(getattr(torch, kind))
        assert bool(spoilt.float().isnan().all()), kind
    spoil_free_memory((torch.zeros(0), 2), (torch.zeros(0), torch.zeros(3, dtype=torch.int64)))


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
        "in-place": ("wrong", "changes its inputs"),
        "after": ("timed", None),
    }
    assert seen == [(torch.float64, torch.float64)]


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (None, "gives nothing, not a tensor"),
        (3.0, "gives a float, not a tensor"),
        ("x", "gives a str, not a tensor"),
        ({}, "gives 0 tensors, the reference 1"),
    ],
)
def test_a_version_that_gives_no_tensor(result, said):
    found = verdicts(replace(OPERATION, versions=(Version("odd", lambda *_: result),)))
    assert found == {"odd": ("wrong", said)}


def test_a_reference_that_gives_no_tensor():
    with pytest.raises(InputError, match="the reference of double gives nothing, not a tensor"):
        verdicts(replace(OPERATION, reference=lambda *_: None))


def test_results_by_name_are_compared_by_name():
    x = torch.ones(2)
    mixed = tensors(OrderedDict(b=x, a=(2 * x, [3 * x])))
    assert [float(each[0]) for each in mixed] == [2, 3, 1]
    wanted = tensors({"a": x, "b": 2 * x})
    assert compare({"b": 2 * x, "a": x}, wanted, 0.0).wrong is None
    assert compare({"b": x, "a": 2 * x}, wanted, 0.0).wrong is not None


def test_what_is_changed_keeps_its_kind():
    pair = torch.return_types.max((torch.ones(1), torch.zeros(1)))
    found = changed(([torch.ones(1)], {"k": pair}, 3), lambda each: each + 1)
    assert float(found[0][0]) == 2
    assert type(found[1]["k"]) is type(pair)
    assert found[2] == 3


def test_imaginary_parts_count():
    wanted = (torch.tensor([3 + 4j]),)
    assert compare(torch.tensor([3 + 4j]), wanted, 0.0).wrong is None
    assert compare(torch.tensor([3 - 4j]), wanted, 0.1).error == pytest.approx(8 / 5)
    assert compare(torch.tensor([3.0]), wanted, 0.1).error == pytest.approx(4 / 5)
