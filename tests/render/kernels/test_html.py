"""The page of kernels: whole in one file, escaped, its lines of code leading to each other."""

import re
from pathlib import Path

import pytest

from tests.ptx.compiled_kernels import a_compiled, a_finding, a_line, a_report, an_access
from tests.render.example_report import CONTROLS, HOSTILE
from tests.render.kernels.test_diff_text import diff, narrow, wide
from tests.render.report.test_html import Page
from traceview.kernels.inspect.target_report import PtxReport
from traceview.kernels.ptx.model import Argument, Function, Instruction, SourceLine
from traceview.render.kernels.code import MOST_LINES
from traceview.render.kernels.html import render_diff_html, render_ptx_html


def a_function(level, *instructions):
    return Function("k", level, True, instructions)


def with_code(file, **changes):
    """A kernel whose line 2 became a load in PTX and in SASS."""
    line, other = SourceLine(str(file), 2), SourceLine(str(file), 4)
    ptx = a_function(
        "ptx",
        Instruction("mov.u32", "%r1, 1", None, 1, other),
        Instruction("mov.u32", "%r2, 1", None, 2, line),
        Instruction("ld.global.b32", "%r1, [%rd1]", "%p1", 3, line),
        Instruction("ret", "", None, 4),
    )
    sass = a_function("sass", Instruction("LDG.E", "R1, [R2]", None, 1, line))
    accesses = (
        an_access(32, 1, source=line),
        an_access(32, 1, source=line, level="sass", opcode="LDG.E"),
    )
    finding = a_finding("high", "it is narrow", "Make it wide", "seen", line)
    fields = {"ptx": ptx, "sass": sass, "accesses": accesses, "findings": (finding,)}
    return a_report(**(fields | changes))


def hostile(folder):
    file = folder / "a<b>&'\".py"
    file.write_text(f"one\n{HOSTILE}\nthree\n{CONTROLS}\n".encode("utf-8", "replace").decode())
    line = SourceLine(str(file), 2)
    return with_code(
        file,
        compiled=a_compiled(
            name=HOSTILE, arguments=(Argument(CONTROLS, "constexpr", value=HOSTILE),)
        ),
        ptx=a_function("ptx", Instruction(HOSTILE, CONTROLS, HOSTILE, 1, line)),
        notes=(HOSTILE, CONTROLS),
        findings=(a_finding("high", HOSTILE, CONTROLS, HOSTILE, line),),
        instruction_mix={HOSTILE: 3},
    )


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "gelu.py"
    path.write_text("def k():\n    x = load()\n\n    y = x\n")
    return path


@pytest.fixture
def html(file):
    return render_ptx_html(PtxReport("in/gelu.py", (with_code(file), a_report())), "1.2.3")


@pytest.fixture
def diff_html(file):
    return render_diff_html(diff(with_code(file), with_code(file, registers=9)), "1.2.3")


@pytest.fixture
def every(html, diff_html, tmp_path):
    bad = hostile(tmp_path)
    pages = [
        html,
        diff_html,
        render_ptx_html(PtxReport(HOSTILE, (bad, bad)), "1"),
        render_diff_html(diff(bad, wide(), labels=(HOSTILE, CONTROLS), option=None), "1"),
        render_ptx_html(PtxReport("none.ptx", ()), "1"),
    ]
    return [(page, Page(page)) for page in pages]


def test_every_element_is_closed_in_its_place(every):
    for _, page in every:
        assert (page.misnested, page.open) == ([], [])


def test_ids_are_there_once_and_links_lead_somewhere(every):
    for _, page in every:
        ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
        assert len(ids) == len(set(ids))
        links = {attrs["href"] for attrs in page.named("a")}
        assert links <= {f"#{name}" for name in ids}


def test_nothing_is_fetched_and_nothing_runs(every):
    for html, page in every:
        assert page.named("img", "iframe", "object", "embed", "base") == []
        policies = [meta["content"] for meta in page.named("meta") if "http-equiv" in meta]
        assert [policy.split(";")[0] for policy in policies] == ["default-src 'none'"]
        assert not any(key.startswith("on") for _, attrs in page.elements for key in attrs)
        assert "url(" not in html.replace("url(#idle)", "")


def test_names_are_text_and_nothing_else(every):
    html, page = every[2]
    assert HOSTILE in "".join(page.texts)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]", html)


def test_findings_with_their_remedies_stand_first(html):
    assert html.index("What to do first") < html.index("Make it wide") < html.index('id="k1"')
    assert '<li class="finding high"' in html


def test_a_finding_leads_to_its_line_and_the_line_to_its_code(html):
    page = Page(html)
    by_id = {attrs["id"]: attrs for _, attrs in page.elements if "id" in attrs}
    links = [attrs["href"][1:] for attrs in page.named("a")]
    (line,) = [
        name for name in links if name.startswith("k1-s") and not name.startswith("k1-sass")
    ][:1]
    mark = by_id[line]["class"]
    assert {"k1-ptx2", "k1-sass0"} <= set(links)
    assert by_id["k1-ptx2"]["class"] == by_id["k1-sass0"]["class"] == mark
    assert f"#k1:has(.{mark}:hover) .{mark}" in html
    assert links.count(line) >= 4


def test_a_finding_that_variants_share_is_said_once(file):
    one, two = with_code(file), with_code(file)
    assert one.findings
    page = Page(render_ptx_html(PtxReport("gelu.py", (one, two)), "1"))
    cards = [attrs for attrs in page.named("li") if attrs.get("class", "").startswith("finding")]
    assert len(cards) == len(one.findings)
    text = " ".join(page.texts)
    assert f"{one.name} 1" in text
    assert f"{one.name} 2" in text


def test_code_is_coloured_and_stays_the_same_text(html):
    assert '<b class="keyword">' in html
    assert "x = load()" in "".join(Page(html).texts)


def test_variants_of_a_kernel_are_numbered_and_told_apart(file):
    two = [
        with_code(file, compiled=a_compiled(name="axpy", arguments=(Argument("n", "i32", odd),)))
        for odd in (True, False)
    ]
    html = render_ptx_html(PtxReport("gelu.py", (*two, with_code(file))), "1")
    heads = re.findall(r'<h2 id="k\d-title">(.*?)</h2>', html)
    assert [re.sub("<[^>]+>", "", head) for head in heads] == [
        "axpy 1 sm_90",
        "axpy 2 sm_90",
        "gelu_kernel sm_90",
    ]
    assert "4 warps · n (i32:16)</p>" in html
    assert "4 warps · n (i32)</p>" in html
    for number in (1, 2):
        assert f'<a href="#k{number}">axpy {number}</a>' in html


def test_the_source_has_the_widths_beside_it(html):
    assert re.search(r'<span class="narrow">ld 1 × 32 bits</span><code><i>2</i>    x = load', html)
    assert "@%p1 ld.global.b32 %r1, [%rd1]" in "".join(Page(html).texts)
    assert '<span class="narrow">global 32 bits</span>' in html


def test_a_source_that_cannot_be_read_is_said(html):
    assert "cannot be read" in html


def test_folders_of_the_user_are_not_on_the_page(html, file):
    assert str(file.parent) not in html
    assert "/home/user" not in html
    assert "in/gelu.py" not in html


def test_a_diff_has_both_columns_and_the_code_of_both(diff_html):
    assert re.search(
        r"registers</td>\s*<td[^>]*>32</td>\s*<td[^>]*>9</td>\s*<td[^>]*>-23", diff_html
    )
    assert "What is equal" in diff_html
    assert {"c1v0-ptx2", "c1v1-ptx2"} <= {a.get("id") for _, a in Page(diff_html).elements}
    assert "in both" in diff_html


def test_findings_of_a_diff_appear_and_vanish():
    html = render_diff_html(diff(narrow(), wide()), "1")
    assert html.index("vanishes") < html.index("appears")


def test_a_long_listing_is_cut_and_says_so(file):
    many = [Instruction("ret", "", None, n) for n in range(MOST_LINES + 7)]
    html = render_ptx_html(PtxReport("k", (with_code(file, ptx=a_function("ptx", *many)),)), "1")
    assert "… and 7 more: <code>traceview ptx --ptx</code> shows all" in html


def test_colors_are_defined_in_both_schemes(html):
    defined = set(re.findall(r"(--[\w-]+):", html))
    assert set(re.findall(r"var\((--[\w-]+)\)", html)) <= defined


def test_the_same_report_gives_the_same_bytes(file):
    report = PtxReport("gelu.py", (with_code(file),))
    assert render_ptx_html(report, "1") == render_ptx_html(report, "1")


def test_a_file_of_another_length_than_compiled_gives_no_wrong_lines(file):
    Path(file).write_text("x\n")
    html = render_ptx_html(PtxReport("k", (with_code(file),)), "1")
    assert "has only 1 line: it changed" in html
    assert a_line().file not in html


@pytest.mark.parametrize("registers", [32, 40])
def test_a_further_variant_has_only_that_in_which_it_differs(file, registers):
    first, second = with_code(file, registers=32), with_code(file, registers=registers)
    html = render_ptx_html(PtxReport("gelu.py", (first, second)), "1")
    whole, rest = html.split('<section id="k2"')
    assert "<dt>registers</dt><dd>32</dd>" in whole
    assert rest.count("<dt>") - rest.count("<dt><code>") == (registers != 32)
    assert "<h3>accesses" in whole
    assert "<h3>accesses" not in rest
    assert 'All else is as for <a href="#k1">gelu_kernel 1</a>.' in rest
    assert re.search(r"<details>\s*<summary>Code</summary>", rest)
    assert "<summary>Code</summary>" not in whole
