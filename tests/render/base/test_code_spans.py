"""Code inside sentences is marked up, and nothing else of the text changes."""

import html
import re

import pytest

from tests.render.example_report import HOSTILE
from traceview.render.base.code import coded, colored


def spans(text):
    return [html.unescape(code) for code in re.findall("<code[^>]*>(.*?)</code>", coded(text))]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Use TF32: torch.set_float32_matmul_precision('high').",
         ["torch.set_float32_matmul_precision('high')"]),
        ("Fuse with torch.compile, batch, or replay.", ["torch.compile"]),
        ("Record with traceview record --backtrace none SCRIPT, or nsys profile --trace=cuda,nvtx",
         ["traceview record --backtrace none SCRIPT", "nsys profile --trace=cuda,nvtx"]),
        ("count with ncu and pass traceview report --ncu FILE.csv. Or not",
         ["traceview report --ncu FILE.csv"]),
        ("Look at what it does: --range 'step_0 (14)'.", ["--range 'step_0 (14)'"]),
        ("set CUPY_TF32=1.", ["CUPY_TF32=1"]),
        ("at train.py:305, in step_#/load.", ["train.py:305", "step_#/load"]),
        ("workloads/mlp.py:90 in train, `x.item()`, leaves", ["workloads/mlp.py:90", "x.item()"]),
        ("in /home/a-b/csrc/scan.cuh:7 or ~/x.py", ["/home/a-b/csrc/scan.cuh:7", "~/x.py"]),
        ("`print(f'{a} --b {c_d}')` at step/float16_1/aten::mm", ["print(f'{a} --b {c_d}')",
                                                                  "step/float16_1/aten::mm"]),
        ("cuBLAS calls cuLaunchKernel without .item() or .detach().",
         ["cuLaunchKernel", ".item()", ".detach()"]),
        ("an unmatched ` stays, e.g. 1.5 and/or 2", []),
        ("pinned memory (cudaHostAlloc) with non_blocking=True", ["cudaHostAlloc",
                                                                  "non_blocking=True"]),
        ("The GPU sat idle for 1.23 ms (7.5 %). It waits.", []),
    ],
)  # fmt: skip
def test_code_in_a_sentence(text, code):
    assert spans(text) == code


def test_only_commands_are_to_be_copied():
    assert "<code data-copy>traceview record SCRIPT</code>" in coded("traceview record SCRIPT now")
    assert "data-copy" not in coded("torch.compile")
    assert "data-copy" not in coded("load widths (traceview ptx) of it")
    assert "data-copy" in coded("Run traceview doctor first.")


def unquoted(text):
    """Without the backticks in pairs, which a page shows as code."""
    return re.sub("`([^`]+)`", r"\1", text) if len(text) <= 2_000 else text


@pytest.mark.parametrize("text", [HOSTILE, "a.b" * 900, "`x" * 51, "f(" * 400])
def test_the_text_stays_the_same(text):
    assert html.unescape(re.sub("</?code[^>]*>", "", coded(text))) == unquoted(text)
    for is_listing in (True, False):
        plain = re.sub("</?b[^>]*>", "", colored(text, is_listing))
        assert html.unescape(plain) == text


def test_colours_of_source_and_listing():
    source = 'x = tl.load(p, mask="a")  # if'
    assert colored(source, False).endswith('<b class="comment"># if</b>')
    assert '<b class="string">&#34;a&#34;</b>' in colored(source, False)
    assert colored("  @%p1 ld.global.v4.b32 {%r1}", True) == (
        '  <b class="string">@%p1 </b><b class="keyword">ld.global.v4.b32</b> {%r1}'
    )
