"""Variables of lines, in TTGIR as Triton writes it."""

from pathlib import Path

import pytest

from traceview.kernels.ptx.ttgir.parser import parse_ttgir, variables_by_line


def test_lines_that_assign_have_their_variable(compile_triton):
    pytest.importorskip("torch", reason="the kernels' file imports it")
    from tests.ptx.kernels import tutorials

    signature = "*fp16:16, *fp16:16, *fp16:16, *fp16:16, i32:16, fp32, 1024, 64, 64, 32"
    made = compile_triton(tutorials.attention_kernel, signature, "sm_90")
    named = variables_by_line(parse_ttgir(made.ttgir))
    source = Path(tutorials.__file__).read_text().splitlines()
    assert {"q", "k", "v", "scores", "total", "weight"} <= set(named.values())
    for line, name in named.items():
        if line.file == tutorials.__file__:
            assigned = source[line.line - 1].split("=")[0].strip()
            assert assigned == name or "for " in assigned
