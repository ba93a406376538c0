"""The tables that an expert asks for next: rows, sentences, JSON, and the page."""

import json

from tests.ptx.compiled_kernels import a_compiled, a_line, a_report
from traceview.kernels.inspect.target_report import PtxReport
from traceview.kernels.ptx.accesses import AsyncWait
from traceview.kernels.ptx.instruction_mix import instruction_mix
from traceview.kernels.ptx.live_registers import SpilledValue
from traceview.kernels.ptx.parser import parse_ptx
from traceview.kernels.ptx.ttgir.loop_loads import PipelineBuffer
from traceview.kernels.ptx.ttgir.operations import LayoutConversion
from traceview.render.json import render_json
from traceview.render.kernels.html import render_ptx_html
from traceview.render.kernels.text import render_ptx_text

LOOP = """.version 8.7
.target sm_90
.visible .entry k(.param .u64 p) {
.loc 1 4 1
ld.global.f32 %f1, [%rd1];
.loc 1 5 1
AGAIN: fma.rn.f32 %f1, %f2, %f3, %f1;
fma.rn.f32 %f1, %f2, %f3, %f1;
add.s32 %r1, %r1, 1;
@%p1 bra AGAIN;
ret;
}
.file 1 "/home/user/gelu.py"
"""


def of_loop():
    (function,) = parse_ptx(LOOP).kernels()
    return PtxReport("gelu.py", (a_report(mix=instruction_mix(function)),))


def test_the_hottest_loop_is_one_line_and_the_rest_is_asked_for():
    short, long = (render_ptx_text(of_loop(), width=120, details=d) for d in (False, True))
    loop = "hottest loop: gelu.py:5, 4 of 6 PTX instructions, fp32 2 · integer 1 · control 1"
    assert loop in short
    assert loop in long
    assert "One row per source line" not in short
    rows = [" ".join(line.split()) for line in long.splitlines()]
    assert "gelu.py:5 1 4 66.7 % fp32 2 · integer 1 · control 1" in rows
    assert "gelu.py:5 1 5 100.0 % fp32 2 · control 2 · integer 1" in rows
    assert "gelu.py:4 0 1 – global load 1" in rows


def test_a_kernel_without_a_loop_has_no_such_line():
    (function,) = parse_ptx(LOOP.replace("@%p1 bra AGAIN;", "")).kernels()
    report = PtxReport("gelu.py", (a_report(mix=instruction_mix(function)),))
    assert "hottest loop" not in render_ptx_text(report, width=120)


def test_json_counts_the_same():
    (kernel,) = json.loads(render_json(of_loop(), "1"))["kernels"]
    classes = kernel["instruction_classes"]
    assert classes["classes"] == {"global load": 1, "fp32": 2, "integer": 1, "control": 2}
    (loop,) = classes["loops"]
    assert (loop["source"], loop["is_hottest"], loop["instructions"]) == ("gelu.py:5", True, 4)
    assert sum(line["in_hottest_loop"] for line in classes["lines"]) == 4


def test_the_page_has_the_tables():
    page = render_ptx_html(of_loop(), "1")
    assert 'id="k1-loops"' in page
    assert 'id="k1-instructions"' in page
    assert "fp32 2 · integer 1 · control 1" in page


def test_layout_conversions_are_listed_with_their_way():
    conversion = LayoutConversion(
        a_line(7),
        "x",
        "convert_layout",
        "blocked 1×4",
        "MMA v2",
        16384,
        loop_depth=1,
        in_deepest_loop=True,
        path="shared memory",
        feeds_mma=False,
    )
    report = PtxReport("gelu.py", (a_report(layout_conversions=(conversion,)),))
    rows = [
        " ".join(line.split())
        for line in render_ptx_text(report, width=120, details=True).splitlines()
    ]
    assert any("gelu.py:7 blocked 1×4 MMA v2 shared memory 16.4 kB 1" in row for row in rows)
    (kernel,) = json.loads(render_json(report, "1"))["kernels"]
    (row,) = kernel["layout_conversions"]
    assert (row["source"], row["size_bytes"], row["path"]) == ("gelu.py:7", 16384, "shared memory")
    assert "blocked 1×4" in render_ptx_html(report, "1")


def test_the_pipeline_is_one_line_and_its_waits_a_table():
    wait = AsyncWait(a_line(5), "cp.async", 4, 2, {"MMA": 8, "fp32": 16})
    buffers = tuple(PipelineBuffer(a_line(4), name, 3, 24_576) for name in "kv")
    compiled = a_compiled(num_stages=3)
    kernel = a_report(compiled=compiled, async_waits=(wait,), pipeline_buffers=buffers)
    report = PtxReport("gelu.py", (kernel,))
    text = " ".join(render_ptx_text(report, width=160, details=True).split())
    assert (
        "pipeline: num_stages=3 · 3 buffers of k (24.6 kB) and v (24.6 kB) · "
        "gelu.py:5 waits for 2 of 4 cp.async groups in flight" in text
    )
    assert "gelu.py:5 cp.async 4 2 fp32 16 · MMA 8" in text
    (document,) = json.loads(render_json(report, "1"))["kernels"]
    assert document["pipeline"]["waits"][0]["meanwhile"] == {"MMA": 8, "fp32": 16}
    assert document["pipeline"]["waits"][0]["is_serial"] is False
    assert document["pipeline"]["buffers"][0]["source"] == "gelu.py:4"


def test_spills_and_the_peak_name_variables():
    values = (SpilledValue(a_line(7), 64, 32, 8, 4), SpilledValue(a_line(8), 4, 4, 1, 0))
    report = PtxReport(
        "gelu.py", (a_report(spilled_values=values, variables={a_line(7): "total"}),)
    )
    text = " ".join(render_ptx_text(report, width=160, details=True).split())
    assert "spilled: 64 B of total (gelu.py:7), loaded 4 × in the hottest loop" in text
    assert "4 B of gelu.py:8" in text
    assert "gelu.py:7 total 64 B 32 B 4" in text
    (document,) = json.loads(render_json(report, "1"))["kernels"]
    assert [each["variable"] for each in document["spilled_values"]] == ["total", None]
