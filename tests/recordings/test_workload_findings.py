"""The `Expect:` line of each workload, checked against its own recording on a real GPU.

`python scripts/record_workloads.py FOLDER` makes the recordings; a workload whose recording is not
in tests/data/workloads is skipped.
"""

import ast
import lzma
import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import pytest

import traceview
from tests.build import Export
from tests.conftest import REPOSITORY, SHIPPED
from tests.places import DATA
from tests.recordings.test_shipped import PRIVATE
from traceview.base.findings import Finding
from traceview.base.vocabulary.libraries import tile
from traceview.traces.analyses import ALL
from traceview.traces.analyses.base import Result
from traceview.traces.reporting import Report
from traceview.traces.trace import Trace

sys.path.insert(0, str(REPOSITORY / "scripts"))

from gallery.recording import WORKLOADS as RECORDINGS

FOLDER = DATA / "workloads"
SHARED = {REPOSITORY / "workloads" / name for name in ("arguments.py", "ranges.py")}
WORKLOADS = sorted(set((REPOSITORY / "workloads").glob("*.py")) - SHARED)
# These have recordings and tests of their own; `versions` is a helper of other workloads.
ELSEWHERE = {
    "mlp": "mlp_print_loss",
    "sync_sites": "sync_sites",
    "queue_full": "queue_full",
    "streams": "streams",
    "cuda_graphs": "cuda_graphs",
    "training": "training",
    "threads": "threads",
    "wave_quantization": "waves",
    "versions": None,
}


RECORDED = {recording.name: recording for recording in RECORDINGS}


class Answers:
    """The report of one recording, with queries for the assertions below."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.report: Report = traceview.analyze(trace)

    def rows(self, analysis: str, table: str) -> list[dict[str, Any]]:
        outcome = self.report.outcomes[analysis]
        assert isinstance(outcome, Result), outcome
        return list(outcome.tables[table].rows())

    def findings(self, analysis: str, *names: str) -> list[Finding]:
        """The findings of an analysis that mention all these names; worst first."""
        own = [f.finding for f in self.report.findings if f.analysis == analysis]
        return [finding for finding in own if all(name in mentions(finding) for name in names)]

    def ranges(self, path: str) -> list[dict[str, Any]]:
        """Kernel time per range whose path matches, without the work that the ranges declare."""
        rows = self.rows("kernel-share", "ranges_inclusive")
        paths = [(re.sub(r" \{[^{}]*\}", "", row["range_path"]), row) for row in rows]
        return [row for text, row in paths if re.fullmatch(path, text)]

    def took(self, path: str) -> int:
        """Kernel time in ns within ranges whose path matches a regular expression."""
        rows = self.ranges(path)
        assert rows, f"no kernel in {path}"
        return sum(row["total_ns"] for row in rows)

    def peak(self, name: str) -> int:
        """The least peak in bytes among the marks of that name."""
        names = [row["name"] for row in self.trace.ranges.rows() if row["kind"] == "mark"]
        marks = [re.fullmatch(rf"peak memory of {name}: (\d+) bytes", text) for text in names]
        assert any(marks), f"no mark of {name}"
        return min(int(mark[1]) for mark in marks if mark)

    def on_the_cpu(self, name: str, within: str) -> float:
        """Median duration in ns of the ranges of that name within another."""
        ranges = [row for row in self.trace.ranges.rows() if row["kind"] != "mark"]
        [around] = [row for row in ranges if row["name"] == within]
        return median(
            row["end_ns"] - row["start_ns"]
            for row in ranges
            if row["name"] == name and around["start_ns"] <= row["start_ns"] < around["end_ns"]
        )


def mentions(finding: Finding) -> str:
    """Everything that a finding names: its subject, its evidence, and its message."""
    evidence = finding.evidence
    values = (*evidence.values.values(), *evidence.row.values())
    return " ".join(map(str, (finding.subject.name, *values, finding.message)))


def step(name: str) -> str:
    return rf"step_\d+/{name}"


def sleeping(answers: Answers) -> None:
    late = [
        row
        for row in answers.rows("gpu-idle", "late")
        if row["range_pattern"] == "step_#/sleep" and row["where"].startswith(("outside", "off"))
    ]
    # Six sleeps of 20 ms, during part of which the GPU is still busy.
    assert sum(row["idle_ns"] for row in late) > 6 * 15_000_000
    assert answers.rows("gpu-idle", "late")[0] in late
    assert answers.findings("gpu-idle", "step_#/sleep")


def adding(answers: Answers) -> None:
    by_bytes = {row["bytes"]: row for row in answers.rows("roofline", "kernels") if row["bytes"]}
    small, large = by_bytes[min(by_bytes)], by_bytes[max(by_bytes)]
    assert large["bound"] == "memory"
    assert large["memory_peak_pct"] > 75
    assert small["memory_peak_pct"] < 15


def multiplying(answers: Answers) -> None:
    tiles = [row["tile"] for row in answers.rows("kernel-share", "kernels") if row["tile"]]
    assert len(set(tiles)) >= 5
    kernels = {
        row["range_path"].partition("/")[2]: tile(row["short_name"])
        for row in answers.rows("kernel-share", "ranges")
        if row["range_path"].startswith("step_0/") and tile(row["short_name"])
    }
    small, large = kernels["float16_64"], kernels["float16_4096"]
    assert small.rows * small.columns < large.rows * large.columns


def distances(answers: Answers) -> None:
    inside = [
        row
        for row in answers.rows("kernel-share", "ranges")
        if re.fullmatch(step("cdist"), row["range_path"])
    ]
    gemms = [row for row in inside if re.search("gemm|nvjet|Kernel2", row["short_name"])]
    assert sum(row["total_ns"] for row in gemms) > 0.5 * answers.took(step("cdist"))
    assert len({row["short_name"] for row in inside}) >= 3
    assert min(row["calls"] for row in answers.ranges(step("cdist"))) >= 6


def gelus(answers: Answers) -> None:
    fast = [
        answers.took(step(name)) for name in ("torch", "torch.compile", "cuda-vector", "triton")
    ]
    assert answers.took(step("manual")) > 3 * max(fast)
    assert answers.took(step("cuda-scalar")) > 1.3 * answers.took(step("cuda-vector"))
    for name in ("gelu_vector", "gelu_kernel"):
        rows = [row for row in answers.rows("roofline", "kernels") if row["short_name"] == name]
        assert max(row["memory_peak_pct"] or 0 for row in rows) > 75


def softmaxes(answers: Answers) -> None:
    manual, by_thread = (answers.took(step(name)) for name in ("manual", "cuda-row-per-thread"))
    for name in ("torch", "torch.compile", "triton", "triton-online"):
        assert manual > 1.8 * answers.took(step(name))
    assert by_thread > manual


def strides(answers: Answers) -> None:
    neighbours = answers.took(step("triton"))
    assert answers.took(step("triton-stride-2")) > 2 * neighbours
    assert answers.took(step("triton-stride-32")) > 10 * neighbours
    # The same kernel has a different rate in each range.
    rates = {
        row["declared_in"]: row["achieved_bytes_per_s"]
        for row in answers.rows("roofline", "kernels")
        if row["short_name"] == "copy_kernel"
    }
    assert 4.0e12 < rates["triton"] < 4.8e12
    assert 1.4e12 < rates["triton-stride-2"] < 1.6e12
    assert 1.4e11 < rates["triton-stride-32"] < 1.6e11
    worst, next_worst = answers.findings("roofline")
    assert worst in answers.findings("roofline", "copy_kernel", "triton-stride-32")
    assert next_worst in answers.findings("roofline", "copy_kernel", "triton-stride-2")
    assert all("coalesc" in finding.action for finding in (worst, next_worst))


def branches(answers: Answers) -> None:
    parity = answers.took(step("cuda-parity"))
    assert 1.5 < parity / answers.took(step("cuda-warp")) < 2.5
    # Half the instructions but no faster: see kernels/divergence.py.
    free, from_triton = (answers.took(step(f"{kind}-branch-free")) for kind in ("cuda", "triton"))
    assert 0.9 < parity / free < 1.2
    assert 1.8 < free / from_triton < 2.2
    assert 0.95 < answers.took(step("triton-both-ways")) / from_triton < 1.05


def growing(answers: Answers) -> None:
    each = answers.took
    # The first layer computes no input gradient: L layers take 3 L − 1 GEMMs.
    assert 1.7 < each("layers_4") / each("layers_2") < 2.4
    assert 1.7 < each("layers_8") / each("layers_4") < 2.3
    assert each("dim_2048") / each("dim_1024") > 2.8
    assert each("batch_64") / each("batch_16") < 2
    assert 1.5 < each("batch_4096") / each("batch_2048") < 2.4


def fusing(answers: Answers) -> None:
    eager, compiled = (answers.ranges(step(name)) for name in ("eager", "compiled"))
    assert {row["calls"] for row in compiled} == {1}
    assert min(row["calls"] for row in eager) >= 5
    assert answers.took(step("eager")) > 2.5 * answers.took(step("compiled"))


def precisions(answers: Answers) -> None:
    single, tf32, half, bfloat, eight = (
        answers.took(step(name)) for name in ("float32", "tf32", "float16", "bfloat16", "float8")
    )
    assert single > 4 * tf32
    # GEMMs that do not use the tensor cores are found; the time TF32 saves is within the bound.
    [gemms] = [f for f in answers.findings("kernel-share") if "gemm_ns" in f.evidence.values]
    assert gemms.severity == "high"
    assert "TF32" in gemms.action
    steady = [answers.took(rf"step_[1-9]\d*/{name}") for name in ("float32", "tf32")]
    assert steady[0] - steady[1] <= gemms.time_at_stake_ns < steady[0]
    assert tf32 > 1.3 * max(half, bfloat)
    assert min(half, bfloat) > 1.3 * eight


def gemms_in_backward(answers: Answers, way: str) -> int:
    """GEMM launches in the backward passes of both steps."""
    return sum(
        row["calls"]
        for row in answers.rows("kernel-share", "ranges")
        if re.fullmatch(step(f"{way}/backward"), row["range_path"])
        and is_gemm(row["short_name"], answers)
    )


def is_gemm(short_name: str, answers: Answers) -> bool:
    kernels = answers.rows("kernel-share", "kernels")
    return any(row["tile"] for row in kernels if row["short_name"] == short_name)


def recomputing(answers: Answers) -> None:
    assert 1.1 < answers.took(step("recompute")) / answers.took(step("keep")) < 1.25
    # PyTorch stops recomputing before the second GEMM of a block, whose result is not needed.
    assert gemms_in_backward(answers, "recompute") - gemms_in_backward(answers, "keep") == 2 * 8
    assert answers.peak("recompute") < 0.6 * answers.peak("keep")
    [again] = [f for f in answers.findings("kernel-share") if "activations again" in f.message]
    longer = answers.took(step("recompute")) - answers.took(step("keep"))
    assert again.time_at_stake_ns == pytest.approx(longer, rel=0.1)
    # The imports of the first checkpoint happen in warm_up.
    assert "recompute/forward" not in mentions(answers.report.findings[0].finding)


def attending(answers: Answers) -> None:
    ratios = [
        answers.took(step(f"naive_{length}")) / answers.took(step(f"flash_{length}"))
        for length in (1024, 8192)
    ]
    assert ratios[1] > 2
    assert ratios[1] > ratios[0] > 1
    for name, low, high in (("naive", 3.5, 4.5), ("flash", 1.8, 2.3)):
        assert low < answers.peak(f"{name}_8192") / answers.peak(f"{name}_4096") < high


def transforming(answers: Answers) -> None:
    later = r"step_[1-9]/"
    assert 1.5 < answers.took(f"{later}backward") / answers.took(f"{later}forward") < 3
    for layer in range(4):
        here = rf"{later}forward/layer_{layer}"
        assert answers.took(f"{here}/mlp") > answers.took(f"{here}/attention")
    inferred = [row for row in answers.rows("kernel-share", "ranges") if row["inferred_calls"]]
    assert {row["range_path"].split("/")[1] for row in inferred} == {"backward"}


def uploading(answers: Answers) -> None:
    uploads = {
        row["host_memory"]: row
        for row in answers.rows("memory-copies", "copies")
        if row["direction"] == "H2D"
    }
    assert uploads["pinned"]["bytes_per_s"] > 1.3 * uploads["pageable"]["bytes_per_s"]
    assert answers.findings("memory-copies", "H2D", "pageable")
    # Pinning has a cost: without workers the loading thread pays more than the upload took before.
    first = answers.report.findings[0]
    assert first.finding in answers.findings("gpu-idle", "pinned/batch_#/load")
    assert answers.on_the_cpu("load", "pinned") > 2 * answers.on_the_cpu("upload", "pageable")
    assert answers.on_the_cpu("upload", "pinned") < 0.1 * answers.on_the_cpu("upload", "pageable")


def sharing(answers: Answers) -> None:
    moved = {
        (row["direction"], row["migration_cause"]): row
        for row in answers.rows("memory-copies", "copies")
        if row["host_memory"] == "managed" or row["direction"].startswith("UVM")
    }
    assert {("UVM H2D", "page fault"), ("UVM D2H", "page fault")} <= set(moved)
    assert answers.findings("memory-copies", "unified memory")
    demanded = answers.took(step("on_demand/gpu_adds"))
    assert demanded > 2 * answers.took(step("prefetched/gpu_adds"))


ASSERTIONS: dict[str, Callable[[Answers], None]] = {
    "sleep": sleeping,
    "add": adding,
    "matmul": multiplying,
    "cdist": distances,
    "gelu": gelus,
    "softmax": softmaxes,
    "mlp_sweep": growing,
    "coalescing": strides,
    "divergence": branches,
    "fusion": fusing,
    "low_precision": precisions,
    "recomputation": recomputing,
    "attention": attending,
    "transformer": transforming,
    "data_loader": uploading,
    "unified_memory": sharing,
}

each_recorded = pytest.mark.parametrize("name", sorted(RECORDED))


@pytest.fixture
def recording():
    def path(name: str) -> Path:
        packed = FOLDER / f"{name}.sqlite.xz"
        if not packed.exists():
            command = f"python scripts/record_workloads.py FOLDER --only {name}"
            pytest.skip(f"{packed.name} is not there: {command}, on a machine with a GPU")
        return packed

    return path


@pytest.fixture(scope="module")
def answers() -> Callable[[Path], Answers]:
    """The report of each recording, computed once."""
    return cache(lambda path: Answers(traceview.load(path)))


@pytest.fixture(scope="module")
def another() -> Answers:
    """GEMMs, a copy and GELU, without ranges around them."""
    return Answers(traceview.load(DATA / "rates.sqlite.xz"))


@each_recorded
def test_its_expectation_holds(name, recording, answers):
    ASSERTIONS[name](answers(recording(name)))


@each_recorded
def test_its_expectation_does_not_hold_for_another_workload(name, recording, answers):
    names = sorted(RECORDED)
    following = names[(names.index(name) + 1) % len(names)]
    with pytest.raises((AssertionError, KeyError)):
        ASSERTIONS[name](answers(recording(following)))


@each_recorded
def test_the_recording_is_of_this_run(name, recording):
    """Its command line is the one in WORKLOADS of scripts/gallery/recording.py."""
    one = RECORDED[name]
    run = traceview.load(recording(name)).run
    assert run["command_line"] == " ".join([one.script, *one.arguments])
    assert run["exit_status"] == "0"


@each_recorded
def test_the_recording_is_small_and_scrubbed(name, recording):
    packed = recording(name)
    # The Python stacks of torch.compile take 100 kB.
    assert packed.stat().st_size <= 230_000
    assert not PRIVATE.search(lzma.decompress(packed.read_bytes()))


def test_every_workload_has_a_recording():
    assert set(RECORDED) == set(ASSERTIONS)
    assert {path.stem for path in WORKLOADS} == set(RECORDED) | set(ELSEWHERE)
    assert set(filter(None, ELSEWHERE.values())) <= set(SHIPPED)
    assert {path.name.partition(".")[0] for path in FOLDER.glob("*.xz")} <= set(RECORDED)


@pytest.mark.parametrize("path", WORKLOADS, ids=lambda path: path.stem)
def test_the_expectation_names_an_existing_analysis(path):
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    [expected] = [line for line in docstring.splitlines() if line.startswith("Expect: `")]
    assert set(re.findall(r"`([a-z-]+)`", expected)) & {analysis.name for analysis in ALL}


@pytest.mark.parametrize("name", sorted(ASSERTIONS))
def test_its_expectation_does_not_hold_without_ranges(name, another):
    with pytest.raises((AssertionError, KeyError)):
        ASSERTIONS[name](another)


def test_how_ranges_and_marks_are_read(tmp_path):
    """The queries of Answers, on a trace whose numbers are known."""
    export = (
        Export()
        .range("step_0", 0, 100)
        .range('fast {"bytes": 8}', 10, 20)
        .range("slow", 30, 40)
        .range("peak memory of slow: 70 bytes", 41, None, kind="mark")
        .range("peak memory of slow: 50 bytes", 42, None, kind="mark")
        .launch((11, 12), (100, 110))
        .launch((31, 32), (110, 150))
        .launch((50, 51), (150, 151))
    )

    answers = Answers(export.load(tmp_path))

    assert (answers.took(step("fast")), answers.took(step("slow"))) == (10, 40)
    assert answers.took("step_0") == 51
    assert answers.peak("slow") == 50
    with pytest.raises(AssertionError, match="no kernel in other"):
        answers.took("other")
