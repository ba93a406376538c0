"""What each remedy does to torch, in a process of its own: results stay, or the run is rejected."""

import json
import os
from importlib.util import find_spec

import pytest

from tests.places import REPOSITORY
from tests.tryout.conftest import SERVER
from traceview.trials.remedies import BY_NAME

pytestmark = pytest.mark.skipif(
    not (find_spec("torch") and find_spec("triton")), reason="needs Triton and PyTorch"
)
# The process that forks has traceview alone on its path.
_PROGRAM = (
    f"import sys; sys.path.insert(0, {str(REPOSITORY)!r}); "
    "from tests.tryout import hooked_programs; hooked_programs.main()"
)


def forked(name, program, prepare=""):
    """What a program returns in a process with a remedy, its calls, and why it ended."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as answer:
        process = SERVER.fork(_PROGRAM, [name, program, prepare], {**os.environ}, (0, writing, 2))
        os.close(writing)
        told = answer.read()
    assert process.wait(60) == 0
    return json.loads(told)


KEPT = (
    *("fused", "foreach", "zero_grad", "checkpoints", "channels_last", "pad_vocabulary"),
    *("matmul_precision", "autocast"),
)


@pytest.mark.parametrize("name", KEPT)
def test_results_stay_within_what_a_remedy_may_change(name):
    plain, _, _ = forked("", name)
    changed, calls, rejected = forked(name, name)
    assert rejected is None
    assert calls
    for step, (before, after) in enumerate(zip(plain, changed, strict=True)):
        assert after == pytest.approx(before, rel=BY_NAME[name].bound * (step + 1))


def test_the_reference_is_the_model_in_float64():
    plain, _, _ = forked("", "matmul_precision")
    changed, calls, _ = forked("float64", "matmul_precision")
    assert calls
    assert changed != plain
    assert changed == pytest.approx(plain, rel=1e-5)


@pytest.mark.parametrize(
    ("name", "on", "off"),
    [
        ("channels_last", ([True] * 3, None, None), ([False] * 3, None, None)),
        ("fused", ([False] * 3, True, None), ([False] * 3, None, None)),
        ("foreach", ([False] * 3, None, True), ([False] * 3, None, None)),
    ],
)
def test_a_switched_remedy_takes_everything_back(name, on, off):
    (plain, _), _, _ = forked("", "turned")
    (changed, seen), _, rejected = forked(name, "turned")
    assert rejected is None
    assert changed == pytest.approx(plain, rel=1e-4)
    assert [tuple(each) for _, *each in seen] == [off, on, off, on, off]


NHWC, NCHW = [True] * 3, [False] * 3


@pytest.mark.parametrize(
    ("name", "program", "on", "off"),
    [
        ("matmul_precision", "precisions", "high", "highest"),
        ("matmul_precision", "precisions with_high", "high", "high"),
        ("matmul_precision", "precisions with_medium", "medium", "medium"),
        ("cudnn_benchmark", "benchmark with_gpu", True, False),
        ("cudnn_benchmark", "benchmark with_benchmark", True, True),
        (
            "foreach",
            "groups",
            [[True, None], [True, None], [True, False], [True, None]],
            [[True, None], [False, None], [False, False], [False, None]],
        ),
        (
            "fused",
            "groups",
            [[True, True], [False, True], [False, False], [False, True]],
            [[True, None], [False, None], [False, False], [False, None]],
        ),
        ("foreach", "own_groups", *[[[False, None], [True, None]]] * 2),
        ("channels_last", "layouts", [NHWC, NHWC], [NHWC, NCHW]),
        ("channels_last", "own_layouts", *[[NHWC, NHWC]] * 2),
    ],
)
def test_what_the_program_sets_itself_comes_back_and_is_no_effect(name, program, on, off):
    seen, calls, rejected = forked(name, *program.split())
    assert (seen, rejected) == ([on, off, on, off], None)
    assert bool(calls) is (on != off)


@pytest.mark.parametrize(
    ("name", "program", "expected"),
    [
        ("fused", "adam", True),
        ("fused", "rmsprop", None),
        ("foreach", "sgd", True),
        ("matmul_precision", "precision", "high"),
        ("autocast", "type", "torch.float32"),
        ("autocast", "alike", False),
        ("num_workers", "workers", True),
        # Workers that are kept need workers: none of both where one is passed by position.
        ("num_workers", "by_position", 0),
        ("checkpoints", "switched", [1, 2, 1]),
        ("compile", "compiled_not_now", []),
        ("bucket_view", "buckets", True),
    ],
)
def test_arguments_and_settings_change(name, program, expected):
    assert forked(name, program)[::2] == [expected, None]


@pytest.mark.parametrize(
    ("name", "program", "reason"),
    [
        ("channels_last", "group_norm", "the model has GroupNorm"),
        ("channels_last", "fourier", "torch.fft"),
        ("num_workers", "stream", "IterableDataset"),
        ("float64", "noisy", "draws random numbers"),
        ("deferred_reads", "counts", "sums integers"),
        *((name, "none", "GPU") for name in ("pin_memory", "non_blocking", "empty_cache")),
        *((name, "none", "GPU") for name in ("cudnn_benchmark", "cuda_graph")),
    ],
)
def test_what_is_wrong_for_a_program_is_rejected(name, program, reason):
    result, _, rejected = forked(name, program, "without_gpu")
    assert result is None
    assert reason in rejected


@pytest.mark.parametrize(
    ("name", "program", "expected"),
    [
        ("non_blocking", "to_gpu", [["cuda"], {"non_blocking": True}]),
        ("non_blocking", "to_cpu", [["cpu"], {}]),
        ("non_blocking", "to_type", [["torch.float16"], {}]),
        ("non_blocking", "to_device", [[], {"device": "cuda", "non_blocking": True}]),
        ("pin_memory", "pinned", True),
        ("empty_cache", "emptied", None),
    ],
)
def test_what_needs_a_gpu(name, program, expected):
    assert forked(name, program, "with_gpu")[::2] == [expected, None]


def test_models_are_compiled_as_one_graph_below_the_hooks():
    plain, calls, _ = forked("", "compiled_by_hand")
    assert not calls
    compiled, calls, _ = forked("compile", "compiled")
    assert len(calls) == 1
    assert compiled == plain
    assert len(plain[1]) == 1
