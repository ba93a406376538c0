"""Forecasts beside what their remedies won, measured on an H200 (docs/accuracy.md)."""

import math
import re
import statistics
import tomllib
from collections.abc import Iterator

import pytest

from tests.places import DATA, REPOSITORY
from tests.recordings.reports import report_of
from traceview.base import intervals
from traceview.traces.analyses.verdict.parts import loop_times

pytestmark = pytest.mark.slow

FOLDER = DATA / "forecasts"
CASES = tomllib.loads((FOLDER / "forecasts.toml").read_text())
SHIPPED = [name for name, case in CASES.items() if case.get("shipped")]


def won_ms(case) -> float:
    """What the remedy won, by the medians of the runs."""
    return statistics.median(case["before_ms"]) - statistics.median(case["after_ms"])


PACE = 0.15
"""Of the step before: launches take longer in a recording than without it."""


@pytest.mark.parametrize("name", CASES)
def test_a_bound_is_kept_and_an_estimate_is_near(name):
    case = CASES[name]
    won, forecast = won_ms(case), case["forecast_ms"]
    if case["saving"] == "at-most":
        assert forecast >= won
    elif case["saving"] == "at-least":
        assert forecast <= won
    else:
        before = statistics.median(case["before_ms"])
        assert abs(forecast - won) <= max(case["error_ms"], PACE * before)


def test_forecasts_of_recordings_that_are_not_shipped_are_earlier_ones():
    assert {name for name, case in CASES.items() if not case.get("earlier")} == {*SHIPPED}


@pytest.mark.parametrize("name", SHIPPED)
def test_the_first_finding_of_the_recording_makes_the_forecast(name):
    case = CASES[name]
    first = report_of(f"forecasts/{name}").findings[0]
    assert first.analysis == case["finding"]
    assert case["words"] in first.finding.message
    assert first.forecast is not None
    assert first.forecast.saved_per_step_ns is not None
    assert first.forecast.error_ns is not None
    saved_ms = first.forecast.saved_per_step_ns / 1e6
    assert saved_ms == pytest.approx(case["forecast_ms"], rel=0.005)
    assert first.forecast.error_ns / 1e6 == pytest.approx(case["error_ms"], rel=0.02)
    assert first.forecast.saving == case["saving"]


def test_the_recordings_shipped_are_those_named():
    files = {path.name for path in FOLDER.glob("*.xz")}
    assert files == {f"{name}.sqlite.xz" for name in SHIPPED}
    assert all(path.stat().st_size < 400_000 for path in FOLDER.glob("*.xz"))


LATE = "to launch work"
STATED: dict[str, tuple[str, tuple[tuple[str, str], ...]]] = {
    "| fp32 MLP: TF32 |": ("forecasts/mlp_tf32", (("kernel-share", "fp32 GEMMs"),)),
    "| MLP that reads 32 MiB": ("forecasts/readback", (("sync-stalls", "reads"),)),
    "| four products with six": ("forecasts/chain", (("kernel-share", "chains"),)),
    "| MLP with pageable batches": ("forecasts/uploads", (("memory-copies", "H2D"),)),
    "| nanoGPT with `time.sleep(0.008)` … | 26.8 ms |": (
        "foreign/fault_sleep",
        (("gpu-idle", "slept"),),
    ),
    "| nanoGPT with `torch.cuda.empty_cache()` … | 28.1 ms |": (
        "foreign/fault_empty_cache",
        (("memory", "cudaMalloc"),),
    ),
    "| GPT-2 with a vocabulary of 50,257 … | 52.3 ms |": (
        "foreign/fault_odd_vocab",
        (("kernel-share", "not a multiple of 8"),),
    ),
    "| MNIST with 1 loader worker … | 7.8 ms |": (
        "foreign/mnist",
        (("gpu-idle", "waited for the DataLoader"),),
    ),
    "| nanoGPT, eager … | 16.1 ms |": ("foreign/nanogpt", (("gpu-idle", LATE),)),
    "| DeepLabV3 of torchvision": ("foreign/segmentation", (("kernel-share", "TF32"),)),
    "| the same: channels_last | kernel-share: layout conversions | at least 5.8": (
        "foreign/segmentation",
        (("kernel-share", "NCHW and NHWC"),),
    ),
    "| ViT-B of timm, 64 images": ("foreign/checkpointed_vit", (("kernel-share", "again"),)),
    "| CNN of flax": ("foreign/cnn_flax", (("gpu-idle", "waited for results of JAX"),)),
    "| Kernels of Numba called": (
        "foreign/numba_arrays",
        (("memory-copies", "H2D"), ("sync-stalls", "reads"), ("gpu-idle", "other work")),
    ),
    "| Transformer in a CUDA graph": (
        "foreign/hand_made_graph",
        (("sync-stalls", "graphs.py:18"), ("memory-copies", "H2D")),
    ),
    "- The MLP's loss: ": (
        "../../reports/printing-the-loss/middle_with",
        (("sync-stalls", "leaves the GPU idle"),),
    ),
    "- 400 small kernels": ("cuda_graphs", (("gpu-idle", LATE),)),
    "- CuPy's k-means: ": ("foreign/cupy_kmeans", (("wave-quantization", "1 block"),)),
}
"""Rows of docs/accuracy.md with a recording in the repository, by how they begin and what they
contain: the recording, and of each amount forecast the analysis and some words of the finding."""


def stated(row: str) -> tuple[str, str]:
    """The forecast and the step in ms of a row of docs/accuracy.md; no step if it is not stated."""
    begins, _, contains = row.partition(" … ")
    page = (REPOSITORY / "docs" / "accuracy.md").read_text()
    rows = re.split(r"\n(?=[|-])", page)
    [text] = [each for each in rows if each.startswith(begins) and contains in each]
    forecast = text.replace("\n ", "")
    if text.startswith("|"):
        forecast = text.split(" | ")[2]
    elif found := re.search(r"about [^;,]+?(?=[;,]|\.\s|\.$| at )", forecast):
        forecast = found[0]
    forecast, _, step = forecast.partition(" of ")
    return forecast, step.split(" ")[0] or contains.strip("| ").removesuffix(" ms")


def amounts(forecast: str) -> Iterator[tuple[str, str, str]]:
    """The bound, number and error of each amount: `about 2.1 ± 0.2 and at most 3` has two."""
    bound, amount = "", r"(at most|at least|about)|(\d+(?:\.\d+)?)(?: ± (\d+(?:\.\d+)?))?"
    for word, number, error in re.findall(amount, forecast):
        bound = word.replace(" ", "-") or bound
        if number:
            yield bound, number, error


def as_stated(ns: float, number: str) -> str:
    """A time in ms, with as many decimals as `number`."""
    return f"{ns / 1e6:.{decimals(number)}f}"


def error_as_stated(ns: int, number: str) -> str:
    """An error in ms, rounded up to as many decimals as `number` has."""
    digits = decimals(number)
    return f"{math.ceil(ns / 1e6 * 10**digits - 1e-9) / 10**digits:.{digits}f}"


def decimals(number: str) -> int:
    return len(number.partition(".")[2])


@pytest.mark.parametrize("row", STATED)
def test_what_the_page_quotes_of_a_shipped_recording_is_what_the_report_says(row):
    path, about = STATED[row]
    forecast, step = stated(row)
    report = report_of(path)
    findings, told = report.findings, report.verdict
    # Pairs of recordings state the step as recorded.
    recorded = (told.step_median_ns or 1) / (told.step_unrecorded_ns or told.step_median_ns or 1)
    times = recorded if " … " in row else 1
    quoted = list(amounts(forecast))
    assert len(quoted) == len(about)
    for (bound, number, error), (analysis, words) in zip(quoted, about, strict=True):
        first = next(e for e in findings if e.analysis == analysis and words in e.finding.message)
        assert first.forecast.saving == bound
        assert as_stated(first.forecast.saved_per_step_ns, number) == number
        assert bool(error) == (bound == "about")
        if error:
            assert error_as_stated(first.forecast.error_ns, error) == error
        if step:
            assert as_stated(first.forecast.step_ns * times, step) == step


def reported(path: str):
    report = report_of(path)
    return report.recording, report.findings


def test_cold_passes_promise_nothing_per_step():
    """CuPy's mixture model compiles in each of its four passes, and what follows is no step."""
    _, findings = reported("foreign/cupy_gmm")
    [gaps] = [each for each in findings if "gmm.py:91" in each.finding.message]
    assert gaps.finding.severity == "info"
    assert gaps.forecast is None


def test_what_came_once_between_two_loops_is_part_of_neither():
    """Idle time of a step, added up from the gaps of its window, bounds what is said of it."""
    trace, findings = reported("cuda_graphs")
    eager, replay = loop_times(trace)
    assert "eager" in eager.name
    assert "replay" in replay.name
    [late] = [each for each in findings if "to launch work" in each.finding.message]
    plain_ns = report_of("cuda_graphs").verdict.step_unrecorded_ns
    assert late.forecast.step_ns == plain_ns < eager.median_ns
    idle_ns = intervals.intersection(eager.time, late.finding.lost.time).total()
    per_step_ns = idle_ns / eager.total_ns * plain_ns
    # A graph keeps the launch latency of each step, and nsys slows the launches that are saved.
    assert 0.5 * per_step_ns < late.forecast.saved_per_step_ns < per_step_ns
    assert late.forecast.loop is None
    # What came once, before the replays, is no part of a step.
    [once] = [each for each in findings if "before CUDA graphs" in each.finding.message]
    assert once.forecast is None
    assert not intervals.intersection(replay.time, once.finding.lost.time).total()


def test_an_edit_is_told_of_the_loop_in_which_it_wins_most():
    """The same kernels take as long in both loops; only one launches each, and gains launches."""
    report = report_of("cuda_graphs_nodes")
    [fused] = [row for row in report.findings if "in 15 chains" in row.finding.message]
    assert fused.forecast is not None
    assert fused.forecast.loop is None
    assert fused.forecast.saved_per_step_ns < fused.forecast.step_ns
