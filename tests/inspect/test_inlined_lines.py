"""Lines of inlined helpers beside the kernel's lines that call them."""

import json

import traceview
from tests.inspect.retried import allow
from tests.ptx.compiled_kernels import FILE, HEADER, a_line
from traceview.kernels.inspect.kernel_report import helper_lines, inlined_text
from traceview.kernels.ptx.model import Instruction, SourceLine
from traceview.kernels.ptx.parser import parse_ptx
from traceview.render.json import render_json

CALLS = f"""{HEADER}
.visible .entry k(.param .u64 k_x, .param .u64 k_y)
{{
    .reg .b32 %r<40>; .reg .b64 %rd<20>;
    .loc 1 51 0
    ld.param.u64 %rd1, [k_x]; ld.param.u64 %rd2, [k_y]; mov.u32 %r1, %tid.x;
    mad.wide.s32 %rd3, %r1, 64, %rd1; mad.wide.s32 %rd4, %r1, 64, %rd2;
    .loc 1 18 9 // gelu.py:18:9 @[ gelu.py:51:12 ]
    ld.global.b32 %r3, [%rd3];
    .loc 1 18 9 // gelu.py:18:9 @[ gelu.py:52:12 ]
    ld.global.b32 %r4, [%rd4];
    .loc 2 9 9 // standard.py:9:9 @[ gelu.py:19:3 @[ gelu.py:53:12 ] ]
    st.global.b32 [%rd3], %r4;
    .loc 2 9 9 // standard.py:9:9 @[ gelu.py:54:12 ]
    st.global.b32 [%rd4], %r3;
    ret;
}}
.file 1 "{FILE}"
.file 2 "/usr/lib/python3/triton/language/standard.py"
"""


def inlined(file, home=FILE):
    instruction = Instruction(
        "ld", "", None, 1, SourceLine(home, 51), (SourceLine(file, 18), SourceLine(home, 40))
    )
    return [line.file for line in helper_lines([instruction])]


def test_a_call_has_the_line_of_the_access_in_the_helper():
    (function,) = parse_ptx(CALLS).functions
    found = {
        (each.opcode, each.source.line): [line.line for line in helper_lines([each])]
        for each in function.instructions
        if ".global" in each.opcode
    }
    assert found == {
        ("ld.global.b32", 51): [18],
        ("ld.global.b32", 52): [18],
        ("st.global.b32", 53): [19],
        ("st.global.b32", 54): [],
    }


def test_what_libraries_inline_is_passed_over():
    site = "/venv/lib/python3.11/site-packages"
    for library in (
        f"{site}/warp/native/array.h",
        "/src/triton/python/triton/language/standard.py",
        "/usr/local/cuda/include/cuda_fp16.hpp",
    ):
        assert inlined(library) == [FILE]
    assert inlined("/home/user/other/tiles.py") == ["/home/user/other/tiles.py"]
    within = f"{site}/vllm/ops/tiles.py"
    assert inlined(within, f"{site}/vllm/attention.py") == [within]
    assert inlined(within, f"{site}/other/attention.py") == [f"{site}/other/attention.py"]


def test_the_report_says_where_calls_lead(tmp_path):
    path = tmp_path / "calls.ptx"
    path.write_text(CALLS)
    report = traceview.inspect_ptx(path)
    (kernel,) = report.kernels
    narrow = [each for each in kernel.findings if "128" in each.message]
    helpers = [each.evidence.basis.split("; ")[0] for each in narrow]
    assert helpers == ["inlined from gelu.py:18", "inlined from gelu.py:19"]
    listed = json.loads(render_json(report, "1"))["kernels"][0]["accesses"]
    places = {
        each["source"]: [line["source"] for line in each["inlined_from"]]
        for each in listed
        if each["level"] == "ptx"
    }
    assert places["gelu.py:51"] == ["gelu.py:18"]
    assert places["gelu.py:54"] == []


def test_both_levels_have_the_line_of_a_helper_that_triton_inlines(triton_cache, monkeypatch):
    allow(triton_cache, monkeypatch)
    from tests.inspect.retried import Retried
    from tests.inspect.rules import narrow_kernels

    report = Retried(narrow_kernels.through_helper, "*fp32:16, *fp32:16, i32, 1024").alone()
    loads = [each for each in report.accesses if each.kind == "load" and each.space == "global"]
    assert {each.level for each in loads} == {"ptx", "sass"}
    assert all(each.helper_lines for each in loads)
    (line,) = {line.line for each in loads for line in each.helper_lines}
    assert line != {each.source.line for each in loads}.pop()


def test_of_many_lines_the_rest_is_counted():
    lines = [a_line(number) for number in range(1, 6)]
    assert inlined_text(lines) == "inlined from gelu.py:1, gelu.py:2, gelu.py:3 and 2 more"
    assert inlined_text([]) == ""
