"""The `Expect:` line of each workload, held against its own recording on a real GPU.

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
from traceview.analyses import ALL
from traceview.analyses.base import Result
from traceview.facts.operations.gemm_names import tile
from traceview.report import Report
from traceview.trace import Trace

sys.path.insert(0, str(REPOSITORY / "scripts"))

from gallery.recording import WORKLOADS as RECORDINGS

FOLDER = DATA / "workloads"
ARGUMENTS = REPOSITORY / "workloads" / "arguments.py"
WORKLOADS = sorted(set((REPOSITORY / "workloads").glob("*.py")) - {ARGUMENTS})
# Recorded before, and held against by tests of their own; `versions` is what others are made of.
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
    """The report of one recording, as the assertions below read it."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.report: Report = traceview.analyze(trace)

    def rows(self, analysis: str, table: str) -> list[dict[str, Any]]:
        outcome = self.report.outcomes[analysis]
        assert isinstance(outcome, Result), outcome
        return list(outcome.tables[table].rows())

    def findings(self, analysis: str) -> list[str]:
        return [f.finding.message for f in self.report.findings if f.analysis == analysis]

    def ranges(self, path: str) -> list[dict[str, Any]]:
        """Rows of all ranges of that path below its outermost one, work that they declare aside."""
        found = self.rows("kernel-share", "ranges_inclusive")
        plain = [(re.sub(r" \{[^{}]*\}", "", row["range_path"]), row) for row in found]
        return [row for text, row in plain if re.fullmatch(path, text)]

    def took(self, path: str) -> int:
        """Nanoseconds of kernels launched in ranges of that path, a regular expression."""
        rows = self.ranges(path)
        assert rows, f"no kernel in {path}"
        return sum(row["total_ns"] for row in rows)

    def peak(self, name: str) -> int:
        """The bytes that the marks of that name tell, the least of them."""
        told = [row["name"] for row in self.trace.ranges.rows() if row["kind"] == "mark"]
        marks = [re.fullmatch(rf"peak memory of {name}: (\d+) bytes", text) for text in told]
        assert any(marks), f"no mark of {name}"
        return min(int(mark[1]) for mark in marks if mark)

    def on_the_cpu(self, name: str, within: str) -> float:
        """Nanoseconds of the ranges of that name within another: their median."""
        ranges = [row for row in self.trace.ranges.rows() if row["kind"] != "mark"]
        [around] = [row for row in ranges if row["name"] == within]
        return median(
            row["end_ns"] - row["start_ns"]
            for row in ranges
            if row["name"] == name and around["start_ns"] <= row["start_ns"] < around["end_ns"]
        )


def step(name: str) -> str:
    return rf"step_\d+/{name}"


def sleeping(said: Answers) -> None:
    late = [
        row
        for row in said.rows("gpu-idle", "late")
        if row["range_pattern"] == "step_#/sleep" and row["where"].startswith(("outside", "off"))
    ]
    # Six naps of 20 ms, of which the GPU still works for a part.
    assert sum(row["idle_ns"] for row in late) > 6 * 15_000_000
    assert said.rows("gpu-idle", "late")[0] in late
    assert "step_#/sleep" in " ".join(said.findings("gpu-idle"))


def adding(said: Answers) -> None:
    by_bytes = {row["bytes"]: row for row in said.rows("roofline", "kernels") if row["bytes"]}
    small, large = by_bytes[min(by_bytes)], by_bytes[max(by_bytes)]
    assert large["bound"] == "memory"
    assert large["memory_peak_pct"] > 75
    assert small["memory_peak_pct"] < 15


def multiplying(said: Answers) -> None:
    tiles = [row["tile"] for row in said.rows("kernel-share", "kernels") if row["tile"]]
    assert len(set(tiles)) >= 5
    kernels = {
        row["range_path"].partition("/")[2]: tile(row["short_name"])
        for row in said.rows("kernel-share", "ranges")
        if row["range_path"].startswith("step_0/") and tile(row["short_name"])
    }
    small, large = kernels["float16_64"], kernels["float16_4096"]
    assert small.rows * small.columns < large.rows * large.columns


def distances(said: Answers) -> None:
    inside = [
        row
        for row in said.rows("kernel-share", "ranges")
        if re.fullmatch(step("cdist"), row["range_path"])
    ]
    products = [row for row in inside if re.search("gemm|nvjet|Kernel2", row["short_name"])]
    assert sum(row["total_ns"] for row in products) > 0.5 * said.took(step("cdist"))
    assert len({row["short_name"] for row in inside}) >= 3
    assert min(row["calls"] for row in said.ranges(step("cdist"))) >= 6


def gelus(said: Answers) -> None:
    fast = [said.took(step(name)) for name in ("torch", "torch.compile", "cuda-vector", "triton")]
    assert said.took(step("manual")) > 3 * max(fast)
    assert said.took(step("cuda-scalar")) > 1.3 * said.took(step("cuda-vector"))
    for name in ("gelu_vector", "gelu_kernel"):
        rows = [row for row in said.rows("roofline", "kernels") if row["short_name"] == name]
        assert max(row["memory_peak_pct"] or 0 for row in rows) > 75


def softmaxes(said: Answers) -> None:
    manual, by_thread = (said.took(step(name)) for name in ("manual", "cuda-row-per-thread"))
    for name in ("torch", "torch.compile", "triton", "triton-online"):
        assert manual > 1.8 * said.took(step(name))
    assert by_thread > manual


def strides(said: Answers) -> None:
    neighbours = said.took(step("triton"))
    assert said.took(step("triton-stride-2")) > 2 * neighbours
    assert said.took(step("triton-stride-32")) > 10 * neighbours
    # One kernel's name, but not one rate: each range has its own.
    rates = {
        row["declared_in"]: row["achieved_bytes_per_s"]
        for row in said.rows("roofline", "kernels")
        if row["short_name"] == "copy_kernel"
    }
    assert 4.0e12 < rates["triton"] < 4.8e12
    assert 1.4e12 < rates["triton-stride-2"] < 1.6e12
    assert 1.4e11 < rates["triton-stride-32"] < 1.6e11
    found = [f.finding for f in said.report.findings if f.analysis == "roofline"]
    assert [f.message.partition(" runs")[0] for f in found] == [
        "copy_kernel in triton-stride-32",
        "copy_kernel in triton-stride-2",
    ]
    assert all("coalescing" in f.action for f in found)


def branches(said: Answers) -> None:
    parity = said.took(step("cuda-parity"))
    assert 1.5 < parity / said.took(step("cuda-warp")) < 2.5
    # Half the instructions, and no faster: kernels/divergence.py says what is known of it.
    free, from_triton = (said.took(step(f"{kind}-branch-free")) for kind in ("cuda", "triton"))
    assert 0.9 < parity / free < 1.2
    assert 1.8 < free / from_triton < 2.2
    assert 0.95 < said.took(step("triton-both-ways")) / from_triton < 1.05


def growing(said: Answers) -> None:
    each = said.took
    # The first layer passes no gradient on: of L layers it is 3 L − 1 products.
    assert 1.7 < each("layers_4") / each("layers_2") < 2.4
    assert 1.7 < each("layers_8") / each("layers_4") < 2.3
    assert each("dim_2048") / each("dim_1024") > 2.8
    assert each("batch_64") / each("batch_16") < 2
    assert 1.5 < each("batch_4096") / each("batch_2048") < 2.4


def fusing(said: Answers) -> None:
    eager, compiled = (said.ranges(step(name)) for name in ("eager", "compiled"))
    assert {row["calls"] for row in compiled} == {1}
    assert min(row["calls"] for row in eager) >= 5
    assert said.took(step("eager")) > 2.5 * said.took(step("compiled"))


def precisions(said: Answers) -> None:
    single, tf32, half, bfloat, eight = (
        said.took(step(name)) for name in ("float32", "tf32", "float16", "bfloat16", "float8")
    )
    assert single > 4 * tf32
    # What multiplies off the tensor cores is named, and what TF32 won here is within its bound.
    [products] = [f.finding for f in said.report.findings if "gemm_ns" in f.finding.evidence.values]
    assert products.severity == "high"
    assert "TF32" in products.action
    steady = [said.took(rf"step_[1-9]\d*/{name}") for name in ("float32", "tf32")]
    assert steady[0] - steady[1] <= products.time_at_stake_ns < steady[0]
    assert tf32 > 1.3 * max(half, bfloat)
    assert min(half, bfloat) > 1.3 * eight


def products(said: Answers, way: str) -> int:
    """Matrix products in the backward passes of both steps."""
    return sum(
        row["calls"]
        for row in said.rows("kernel-share", "ranges")
        if re.fullmatch(step(f"{way}/backward"), row["range_path"])
        and multiplies(row["short_name"], said)
    )


def multiplies(short_name: str, said: Answers) -> bool:
    kernels = said.rows("kernel-share", "kernels")
    return any(row["tile"] for row in kernels if row["short_name"] == short_name)


def recomputing(said: Answers) -> None:
    assert 1.1 < said.took(step("recompute")) / said.took(step("keep")) < 1.25
    # PyTorch stops before the second product of a block, whose result nothing needs again.
    assert products(said, "recompute") - products(said, "keep") == 2 * 8
    assert said.peak("recompute") < 0.6 * said.peak("keep")
    # What the first checkpoint imports is paid in warm_up.
    assert "recompute/forward" not in said.report.findings[0].finding.message


def attending(said: Answers) -> None:
    ratios = [
        said.took(step(f"naive_{length}")) / said.took(step(f"flash_{length}"))
        for length in (1024, 8192)
    ]
    assert ratios[1] > 2
    assert ratios[1] > ratios[0] > 1
    for name, low, high in (("naive", 3.5, 4.5), ("flash", 1.8, 2.3)):
        assert low < said.peak(f"{name}_8192") / said.peak(f"{name}_4096") < high


def transforming(said: Answers) -> None:
    later = r"step_[1-9]/"
    assert 1.5 < said.took(f"{later}backward") / said.took(f"{later}forward") < 3
    for layer in range(4):
        here = rf"{later}forward/layer_{layer}"
        assert said.took(f"{here}/mlp") > said.took(f"{here}/attention")
    inferred = [row for row in said.rows("kernel-share", "ranges") if row["inferred_calls"]]
    assert {row["range_path"].split("/")[1] for row in inferred} == {"backward"}


def uploading(said: Answers) -> None:
    uploads = {
        row["host_memory"]: row
        for row in said.rows("memory-copies", "copies")
        if row["direction"] == "H2D"
    }
    assert uploads["pinned"]["bytes_per_s"] > 1.3 * uploads["pageable"]["bytes_per_s"]
    assert any("copies of pageable memory (H2D)" in text for text in said.findings("memory-copies"))
    # Who pins pays: without workers the loading thread does, more than the upload took before.
    first = said.report.findings[0]
    assert first.analysis == "gpu-idle"
    assert "in pinned/batch_#/load" in first.finding.message
    assert said.on_the_cpu("load", "pinned") > 2 * said.on_the_cpu("upload", "pageable")
    assert said.on_the_cpu("upload", "pinned") < 0.1 * said.on_the_cpu("upload", "pageable")


def sharing(said: Answers) -> None:
    moved = {
        (row["direction"], row["migration_cause"]): row
        for row in said.rows("memory-copies", "copies")
        if row["host_memory"] == "managed" or row["direction"].startswith("UVM")
    }
    assert {("UVM H2D", "page fault"), ("UVM D2H", "page fault")} <= set(moved)
    assert any("of unified memory" in text for text in said.findings("memory-copies"))
    demanded = said.took(step("on_demand/gpu_adds"))
    assert demanded > 2 * said.took(step("prefetched/gpu_adds"))


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
    """What each recording says, read once."""
    return cache(lambda path: Answers(traceview.load(path)))


@pytest.fixture(scope="module")
def another() -> Answers:
    """Matrix products, a copy and GELU, without a range around them."""
    return Answers(traceview.load(DATA / "rates.sqlite.xz"))


@each_recorded
def test_what_it_expects_is_found(name, recording, answers):
    ASSERTIONS[name](answers(recording(name)))


@each_recorded
def test_what_it_expects_is_not_found_in_the_recording_of_the_next(name, recording, answers):
    names = sorted(RECORDED)
    following = names[(names.index(name) + 1) % len(names)]
    with pytest.raises((AssertionError, KeyError)):
        ASSERTIONS[name](answers(recording(following)))


@each_recorded
def test_the_recording_is_of_this_run(name, recording):
    """The workload with these arguments, so that the table above tells what was recorded."""
    one = RECORDED[name]
    run = traceview.load(recording(name)).run
    assert run["command_line"] == " ".join([one.script, *one.arguments])
    assert run["exit_status"] == "0"


@each_recorded
def test_the_recording_is_small_and_tells_nothing_of_its_machine(name, recording):
    packed = recording(name)
    assert packed.stat().st_size <= 110_000
    assert not PRIVATE.search(lzma.decompress(packed.read_bytes()))


def test_every_workload_is_held_against_a_recording():
    assert set(RECORDED) == set(ASSERTIONS)
    assert {path.stem for path in WORKLOADS} == set(RECORDED) | set(ELSEWHERE)
    assert set(filter(None, ELSEWHERE.values())) <= set(SHIPPED)
    assert {path.name.partition(".")[0] for path in FOLDER.glob("*.xz")} <= set(RECORDED)


@pytest.mark.parametrize("path", WORKLOADS, ids=lambda path: path.stem)
def test_the_expected_finding_is_of_an_analysis_that_there_is(path):
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    [expected] = [line for line in docstring.splitlines() if line.startswith("Expect: `")]
    assert set(re.findall(r"`([a-z-]+)`", expected)) & {analysis.name for analysis in ALL}


@pytest.mark.parametrize("name", sorted(ASSERTIONS))
def test_what_one_expects_is_not_found_in_a_recording_of_something_else(name, another):
    with pytest.raises((AssertionError, KeyError)):
        ASSERTIONS[name](another)


def test_how_ranges_and_marks_are_read(tmp_path):
    """The means by which the assertions above read a recording, on one that is checked by hand."""
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

    said = Answers(export.load(tmp_path))

    assert (said.took(step("fast")), said.took(step("slow"))) == (10, 40)
    assert said.took("step_0") == 51
    assert said.peak("slow") == 50
    with pytest.raises(AssertionError, match="no kernel in other"):
        said.took("other")
