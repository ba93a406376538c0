"""Attention and its gradients in Triton's interpreter, and on a GPU, against float64."""

import pytest

from tests.gpu.launched_ptx import has_gpu
from tests.kernels.requests import python

pytest.importorskip("torch")
pytest.importorskip("triton")

# As shares of the largest value; lse is kept in fp32, whatever the type.
MOST = {"float16": 4e-3, "bfloat16": 3.2e-2}
REFUSED = [
    "q and k have the shapes",
    "is not contiguous",
    "heads have 32 numbers",
    "q has the type torch.float32",
    "q has 3 dimensions",
    "q and k are torch.float16",
    "has 0 elements",
    "q does not begin at a multiple of 16 bytes",
    "there are 66,000 heads",
]


def wrong(rows: list[list]) -> list[list]:
    return [
        [name, dtype, of, error]
        for name, dtype, found in rows
        for of, error in found.items()
        if not error <= (1e-5 if of == "lse" else MOST[dtype])
    ]


@pytest.fixture(scope="module")
def interpreted():
    return python("-m", "tests.kernels.attention_numbers", "interpreter")


@pytest.mark.programs
def test_attention_and_gradients_in_the_interpreter(interpreted):
    *rows, _ = interpreted
    assert wrong(rows) == []
    names = " ".join(row[0] for row in rows)
    for part in ("n=131 d=64 causal=True", "d=128 tiles", "large scores", "far below", "slice"):
        assert part in names


@pytest.mark.programs
def test_what_comparing_values_does_not_say(interpreted):
    *_, said = interpreted
    assert said["later keys are not seen"]
    assert said["lse"] == ["torch.float32", [1, 2, 100]]


@pytest.mark.programs
def test_what_attention_refuses(interpreted):
    *_, said = interpreted
    assert len(said["refused"]) == len(REFUSED)
    for told, part in zip(said["refused"], REFUSED, strict=True):
        assert told.startswith("flash_attention: ")
        assert part in told
        assert "\n" not in told


@pytest.mark.gpu
def test_attention_and_gradients_on_a_gpu():
    if not has_gpu():
        pytest.skip("launches kernels: no NVIDIA GPU here")
    *rows, said = python("-m", "tests.kernels.attention_numbers", "gpu", interpret=False)
    assert wrong(rows) == []
    assert any(row[0].startswith("torch n=4001") for row in rows)
    assert said["later keys are not seen"]
    first, second, third = said["memory"]
    # Linear: each doubling adds twice what the one before did. The scores alone would add 4 times.
    assert (third - second) / (second - first) == pytest.approx(2, rel=0.05)
