"""Comparing the versions of an operation: wrong ones are reported and never timed."""

import json
import math
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from tests.bench.operations import OPERATION, VERSIONS  # noqa: E402 (needs torch)
from traceview.base.errors import InputError  # noqa: E402
from traceview.render.bench_json import BenchDocument, render_flame  # noqa: E402
from traceview.render.bench_text import render_bench  # noqa: E402
from traceview.render.json import render_json  # noqa: E402
from traceview.trials.bench import BenchRequest, Version, measure, profile  # noqa: E402
from traceview.trials.bench.case import compare, reference_outputs  # noqa: E402
from traceview.trials.bench.plan import Machine, Peaks, flop_kind, peaks_of, this_machine  # noqa: E402

on_cpu = pytest.mark.skipif(torch.cuda.is_available(), reason="tests behaviour without a GPU")
H200 = Machine("NVIDIA H200", "9.0", 132, 1, 1, "570", "12.8", "2.11", "3.6", "3.12", False)


def measured(*versions, **options):
    return measure(OPERATION, BenchRequest(versions=versions, trials=3, **options))


@pytest.fixture(scope="module")
def report():
    return measure(OPERATION, BenchRequest(trials=3))


@on_cpu
def test_every_version_gets_its_verdict(report):
    verdicts = {(row.size, row.version): (row.status, row.why) for row in report.rows}
    assert len(verdicts) == 2 * len(VERSIONS)
    at_17 = {name: verdict for (size, name), verdict in verdicts.items() if size == 17}
    nan = "has NaN or infinity in different elements than the reference"
    assert at_17 == {
        "manual": ("timed", None),
        "wrong": ("wrong", at_17["wrong"][1]),
        "wrong-at-odd-sizes": ("wrong", at_17["wrong-at-odd-sizes"][1]),
        "in-place": ("wrong", "modifies its inputs"),
        "nan": ("wrong", nan),
        "shape": ("wrong", "returns shape (16,), the reference (17,)"),
        "several": ("wrong", "returns 2 tensors, the reference returns 1"),
        "failing": ("failed", "RuntimeError: no kernel image is available"),
        "cuda": ("skipped", "needs a GPU"),
        "fp32-only": ("timed", None),
        "after": ("timed", None),
    }
    assert at_17["wrong"][1].endswith("exceeds the tolerance 1.0e-06")
    # An even size hides it: that is why operations have odd ones.
    assert verdicts[1024, "wrong-at-odd-sizes"][0] == "timed"


def test_a_wrong_version_is_not_timed(report):
    assert all((row.timing is not None) == (row.status == "timed") for row in report.rows)
    assert {row.version for row in report.bad} == {
        *("wrong", "wrong-at-odd-sizes", "in-place", "nan", "shape", "several", "failing")
    }


def test_a_version_that_modifies_its_inputs_does_not_affect_others(report):
    names = [version.name for version in VERSIONS]
    assert names.index("in-place") < names.index("after")
    assert all(row.status == "timed" for row in report.rows if row.version == "after")


def test_rates_are_work_over_time(report):
    row = next(row for row in report.rows if row.timing and row.size == 1024)
    assert (row.bytes_moved, row.flop) == (2 * 1024 * 4, 1024)
    assert row.bytes_per_s == pytest.approx(8192 / row.median_ns * 1e9)
    assert row.flop_per_s == pytest.approx(1024 / row.median_ns * 1e9)
    first = next(r for r in report.rows if r.size == 1024 and r.timing)
    assert report.speedup(first) == 1
    assert report.speedup(replace(row, timing=None)) is None


def test_a_version_may_not_support_a_data_type():
    (row,) = measured("fp32-only", dtypes=["bfloat16"], sizes=[64]).rows
    assert (row.status, row.why) == ("unsupported", "does not take these inputs")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtypes": ["float8"]}, "double does not take 'float8'; it takes float32, bfloat16"),
        ({"versions": ["triton"]}, "double has no version 'triton'; it has: manual"),
        ({"sizes": [0]}, "size 0"),
        ({"sizes": "64"}, "size '64'; pass positive whole numbers"),
        ({"arch": "sm_1"}, "'sm_1' is not a GPU architecture"),
        ({"peaks": ["speed=1"]}, "--peak has no figure 'speed'"),
    ],
)
def test_an_invalid_request_is_an_error(options, message):
    with pytest.raises(InputError, match=message):
        measure(OPERATION, BenchRequest(**options))


def test_a_single_value_may_stand_for_a_list():
    request = BenchRequest(
        sizes=64, dtypes="bfloat16", versions="manual", trials=1, peaks="bandwidth=1e12"
    )
    report = measure(OPERATION, request)
    assert [(row.size, row.dtype, row.version) for row in report.rows] == [
        (64, "bfloat16", "manual")
    ]
    assert report.peaks.memory_bytes_per_s == 1e12


def failing(*_):
    raise KeyError("x")


@pytest.mark.parametrize("part", ["inputs", "reference", "bytes_moved", "flop", "check"])
def test_an_error_in_the_users_functions_is_one_line(part):
    with pytest.raises(
        InputError, match=r"of double raised KeyError at line \d+ of test_comp.*py: 'x'"
    ):
        measure(replace(OPERATION, **{part: failing}), BenchRequest(sizes=[4], trials=1))


def test_an_error_in_supports_is_one_line():
    odd = replace(OPERATION, versions=(Version("odd", failing, supports=failing),))
    with pytest.raises(InputError, match="supports of odd of double raised KeyError"):
        measure(odd, BenchRequest(sizes=[4], trials=1))


def test_after_a_cuda_error_nothing_more_is_run():
    def illegal(*_):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    broken = replace(OPERATION, versions=(VERSIONS[0], Version("illegal", illegal), VERSIONS[-1]))
    report = measure(broken, BenchRequest(trials=1))
    assert [row.version for row in report.rows] == ["manual", "illegal"]
    assert report.notes[-1].startswith("illegal broke CUDA in this process, so nothing was run")


def test_errors_are_relative_to_the_largest_magnitude():
    true = (torch.tensor([1.0, -200.0], dtype=torch.float64),)
    assert compare(torch.tensor([1.5, -200.0]), true, 0.01).error == pytest.approx(0.0025)
    assert compare(torch.tensor([1.5, -200.0]), true, 0.001).wrong is not None
    infinite = (torch.tensor([1.0, math.inf, math.nan]),)
    assert compare(torch.tensor([1.0, math.inf, math.nan]), infinite, 0.0).wrong is None
    assert compare(torch.tensor([1.0, -math.inf, math.nan]), infinite, 1.0).wrong
    assert compare(torch.tensor([1.0, 1e9, math.nan]), infinite, 1.0).wrong
    zero = (torch.zeros(3),)
    assert compare(torch.full((3,), 0.5), zero, 0.1).error == 0.5
    assert compare(torch.zeros(0), (torch.zeros(0),), 0.0).wrong is None


def test_the_reference_sees_the_inputs_as_rounded_and_in_float64():
    x = torch.tensor([1.0009765625], dtype=torch.bfloat16)
    (output,) = reference_outputs(OPERATION, (x, 2))
    assert output.dtype == torch.float64
    assert float(output) == 2 * float(x)


def test_peaks_come_from_the_data_sheet_or_the_user():
    sheet = peaks_of(H200)
    assert sheet.memory_bytes_per_s == 4.8e12
    assert sheet.flop_per_s["fp16"] == pytest.approx(989.4e12)
    given = peaks_of(H200, ["bandwidth=4e12"])
    assert (given.memory_bytes_per_s, given.source) == (4e12, f"--peak, {sheet.source}")
    assert peaks_of(replace(H200, gpu=None)).memory_bytes_per_s is None


def test_percent_of_peak_is_of_the_bound_that_takes_longer():
    peaks = Peaks(1e12, {"fp32": 1e13})
    # At peak 1 MB takes 1 µs, 1 MFLOP a tenth of that.
    assert peaks.peak_pct(2_000, 10**6, 10**6, "fp32") == (50.0, "memory")
    assert peaks.peak_pct(20_000, 10**6, 10**8, "fp32") == (50.0, "compute")
    assert peaks.peak_pct(2_000, 10**6, 10**9, "tf32") == (50.0, "memory")
    assert Peaks().peak_pct(1_000, 1, 1, "fp32") == (None, None)


def test_the_peak_rate_that_applies_to_a_data_type():
    assert flop_kind("float16", tensor_cores=False) == "fp32"
    assert flop_kind("float16", tensor_cores=True) == "fp16"
    assert flop_kind("float32", tensor_cores=True) == "tf32"
    assert flop_kind("float64", tensor_cores=False) == "fp64"


@on_cpu
def test_a_machine_is_described_without_its_name():
    found = this_machine()
    assert found.device == "cpu"
    # Of torch's own version the package's leaves out which CUDA it was built for.
    assert found.torch_version.partition("+")[0] == torch.__version__.partition("+")[0]
    assert not {"host", "hostname", "node", "user"} & set(vars(found))


@pytest.mark.parametrize("width", [60, 80, 160])
def test_text_fits_its_width_and_shows_what_is_wrong(report, width):
    shown = render_bench(report, width=width)
    assert max(map(len, shown.splitlines())) <= width
    assert "17 elements · float32 · 136 B · 17 FLOP" in shown
    assert "WRONG" in shown
    assert "in-place: WRONG, not timed: modifies its inputs" in shown


@pytest.mark.parametrize(("cache", "is_noted"), [(8192, True), (8191, False), (None, False)])
def test_traffic_that_fits_in_the_cache_is_noted(cache, is_noted):
    at_1024 = measured("manual", sizes=[1024])
    rows = tuple(replace(row, peak_pct=150.0, bound="memory") for row in at_1024.rows)
    machine = replace(H200, l2_cache_bytes=cache)
    shown = render_bench(replace(at_1024, machine=machine, rows=rows))
    assert ("fits in the L2 cache (8.19 kB), so % of peak may exceed 100" in shown) == is_noted


def test_json_has_a_key_for_everything_and_no_nan(report):
    document = json.loads(render_json(BenchDocument(report), "0"))
    assert document["schema_version"] == 1
    assert "gpu" in document["machine"]
    assert "torch_version" in document["machine"]
    assert len({frozenset(row) for row in document["rows"]}) == 1
    by_name = {row["version"]: row for row in document["rows"] if row["size"] == 17}
    assert by_name["nan"]["relative_error"] is None
    assert by_name["wrong"]["median_ns"] is None
    assert by_name["manual"]["trials"] == 3


def test_the_fit_needs_four_sizes():
    assert not measured("manual", sizes=[4, 8, 16]).fits
    found = measured("manual", sizes=[4, 8, 16, 32])
    assert list(found.fits) == [("float32", "manual")]
    assert "Time over size" in render_bench(found)


@pytest.fixture(scope="module")
def profiled():
    x = torch.randn(64, 64)

    def run():
        with torch.profiler.record_function("<outer> & co"):
            return torch.nn.functional.linear(x, x).sum()

    return profile(run, calls=4)


def test_a_profile_is_a_tree_of_operators(profiled):
    paths = dict(profiled.tree.walk())
    assert paths["<outer> & co",].calls == 4
    assert paths["<outer> & co", "aten::sum"].calls == 4
    assert ("<outer> & co", "aten::linear", "aten::matmul") in paths or (
        "<outer> & co",
        "aten::linear",
    ) in paths
    assert profiled.tree.total_ns(gpu=False) == sum(o.cpu_ns for o in profiled.operators)


@on_cpu
def test_without_a_gpu_there_are_no_kernels(profiled):
    assert not profiled.on_gpu
    assert profiled.kernels == ()


def test_the_flame_graph_is_one_svg_without_script_and_escaped(profiled):
    from xml.etree import ElementTree

    drawn = render_flame(profiled, 'a <script>alert("x")</script>')
    assert "<script" not in drawn
    assert "href" not in drawn
    root = ElementTree.fromstring(drawn)
    rects = list(root.iter("{http://www.w3.org/2000/svg}rect"))
    titles = [each.text for each in root.iter("{http://www.w3.org/2000/svg}title")]
    assert any(text.startswith("<outer> & co: ") for text in titles)
    widths = [float(rect.get("width")) for rect in rects]
    assert max(widths) == widths[0] == 1180
    assert all(float(r.get("x")) + float(r.get("width")) <= 1190.1 for r in rects)
