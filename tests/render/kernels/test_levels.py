"""All levels of a kernel's code beside each other, linked by source line, in a real browser."""

import json
import re

import pytest

from tests.ptx.compiled_kernels import a_compiled, a_report
from tests.render.chromium import needs_chromium
from traceview.kernels.inspect.target_report import PtxReport
from traceview.kernels.ptx.model import SourceLine
from traceview.kernels.ptx.parser import parse_ptx
from traceview.kernels.ptx.stages import stage_lines
from traceview.render.json import render_json
from traceview.render.kernels.html import render_ptx_html
from traceview.render.kernels.text import render_views

TTGIR = """#blocked = #ttg.blocked<{sizePerThread = [4]}>
#loc = loc("FILE":1:0)
module {
  tt.func public @k(%x: !tt.ptr<f32> loc("x"(#loc)), %y: i32 loc("y"(#loc))) {
    %0 = tt.load %x : !tt.ptr<f32> loc(#loc3)
    tt.store %y, %0 : !tt.ptr<f32> loc(#loc2)
    tt.return loc(#loc)
  } loc(#loc)
} loc(#loc)
#loc1 = loc("FILE":2:4)
#loc2 = loc("FILE":4:4)
#loc3 = loc(callsite(#loc4 at #loc1))
#loc4 = loc("/other/helper.py":9:4)
"""
LLIR = """source_filename = "x"
define void @k(ptr %0) !dbg !5 {
  %2 = load float, ptr %0, !dbg !6
  store float %2, ptr %0, align 4, !dbg !8
  ret void, !dbg !9
}
!1 = !DIFile(filename: "NAME", directory: "FOLDER")
!2 = !DIFile(filename: "helper.py", directory: "/other")
!5 = distinct !DISubprogram(name: "k", scope: !1, file: !1, line: 1)
!6 = !DILocation(line: 9, column: 4, scope: !7, inlinedAt: !10)
!7 = distinct !DILexicalBlockFile(scope: !5, file: !2, discriminator: 0)
!8 = !DILocation(line: 4, column: 4, scope: !5)
!9 = !DILocation(line: 0, scope: !5)
!10 = !DILocation(line: 2, column: 8, scope: !5)
"""
PTX = """.version 8.7
.target sm_90
.visible .entry k(.param .u64 p) {
.loc 1 2 1
ld.global.f32 %f1, [%rd1];
.loc 1 4 1
st.global.f32 [%rd1], %f1;
ret;
}
.file 1 "FILE"
"""


@pytest.fixture
def report(tmp_path):
    file = tmp_path / "k.py"
    file.write_text("def k():\n    x = load()\n\n    store(x)\n" + "    pass\n" * 20)
    stages = {
        "ttir": TTGIR.replace("FILE", str(file)),
        "ttgir": TTGIR.replace("FILE", str(file)),
        "llir": LLIR.replace("NAME", file.name).replace("FOLDER", str(tmp_path)),
    }
    (function,) = parse_ptx(PTX.replace("FILE", str(file))).kernels()
    return PtxReport(
        "k.py", (a_report(compiled=a_compiled(stages=stages), ptx=function, accesses=()),)
    ), file


def test_lines_of_stages_have_the_outermost_line_of_their_inlining(report):
    report, file = report
    stages = report.kernels[0].compiled.stages
    for stage in ("ttgir", "llir"):
        lines = stage_lines(stage, stages[stage])
        placed = {line.text.split()[0]: line for line in lines if line.source}
        load, store = ("%0", "tt.store") if stage == "ttgir" else ("%2", "store")
        assert placed[load].source == SourceLine(str(file), 2)
        assert placed[store].source == SourceLine(str(file), 4)
        assert stages[stage].splitlines()[placed[store].number - 1].strip().startswith(store)
        assert not any("loc(" in line.text or "!dbg" in line.text for line in lines)
        assert not any(line.source for line in lines if re.match(r"\s*(define|tt.func)", line.text))


def test_the_terminal_shows_a_stage_and_json_links_lines(report):
    report, _ = report
    text = render_views(report, ["ttgir", "llir"], width=80)
    assert re.search(r"k\.py:2 +%0 = tt\.load %x", text)
    assert re.search(r"k\.py:4 +store float %2", text)
    (kernel,) = json.loads(render_json(report, "1"))["kernels"]
    levels = {each["source"]: each["levels"] for each in kernel["code_lines"]}
    assert levels["k.py:2"] == {"ttir": [5], "ttgir": [5], "llir": [3], "ptx": [5]}
    assert levels["k.py:4"] == {"ttir": [6], "ttgir": [6], "llir": [4], "ptx": [7, 8]}


def test_a_report_without_triton_has_no_stages():
    assert "No TTGIR available" in render_views(PtxReport("k", (a_report(),)), ["ttgir"], width=80)
    (kernel,) = json.loads(render_json(PtxReport("k", (a_report(),)), "1"))["kernels"]
    assert kernel["code_lines"] == []


@pytest.fixture
def opened(browser, report, tmp_path):
    path = tmp_path / "k.html"
    path.write_text(render_ptx_html(report[0], "1"), "utf-8")
    context = browser.new_context(offline=True, viewport={"width": 1280, "height": 800})
    page, said = context.new_page(), []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(path.as_uri())
    yield page
    assert said == []
    context.close()


@needs_chromium
def test_a_chosen_line_lights_up_at_every_level_and_back(opened):
    def chosen():
        return opened.locator(".lines > .chosen code").all_inner_texts()

    opened.locator(".source code").filter(has_text="x = load()").click()
    assert [text.split(" = ")[-1].split()[0] for text in chosen()] == [
        *("load()", "tt.load", "tt.load", "load", "ld.global.f32")
    ]
    assert opened.locator(".listings details[open]").count() == 4
    assert opened.locator(".listings .chosen").last.is_visible()
    # From the last level back to the source and the others.
    opened.locator(".listings code").filter(has_text="st.global").click()
    assert len(chosen()) == 6
    assert "store(x)" in chosen()[0]
    opened.locator(".listings .chosen code").last.click()
    assert chosen() == []


@needs_chromium
def test_no_level_makes_the_page_wider_than_a_phone(opened):
    opened.set_viewport_size({"width": 390, "height": 800})
    opened.locator(".source code").filter(has_text="x = load()").click()
    assert opened.evaluate("document.documentElement.scrollWidth") <= 390
    # A line of the source stands in few lines, not letter by letter.
    line = opened.locator(".source .chosen code").bounding_box()
    assert line["height"] < 60
    assert line["width"] > 250
