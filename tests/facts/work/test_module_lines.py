"""The modules of a torch model in findings: which one launched a kernel, and from which line."""

import pytest

from tests.analyses.gpu_idle.test_lines import BACKWARD, MAIN, loop, sample_gaps
from tests.analyses.kernel_share.test_fp32_gemms import MS, SGEMM
from tests.analyses.single_answer import ask, rows
from tests.build import Export
from traceview.traces.analyses.gpu_idle.analysis import ANALYSIS as GPU_IDLE
from traceview.traces.analyses.kernel_share.analysis import ANALYSIS as KERNEL_SHARE
from traceview.traces.trace.nsys.ranges import RANGE_PREFIX

ATTENTION = ("model.py", 42, "forward")
AUTOGRAD = 7


def called(export: Export, **lines: tuple[str, int, str]) -> Export:
    """The lines that call modules, whose paths have _ for dots."""
    for path, at in lines.items():
        name = path.replace("_", ".")
        export.python_event("module", 0, 0, at=at, source="x + self.attn(x)", reason=name)
    return export


def layers(**lines: tuple[str, int, str]) -> Export:
    """A step of three layers: a product of 4 ms in each forward pass, of 4 ms in each backward."""
    export, at = called(Export(), **lines), 100
    parts = [(f"h.{n}.attn", None) for n in range(3)] + [
        (f"h.{n}.attn", AUTOGRAD) for n in range(3)
    ]
    for number, (name, thread) in enumerate(parts):
        end = at + 30
        ranges = {"thread": thread, "domain": "traceview"}
        export.range(f"{RANGE_PREFIX}{name}", at, end, **ranges)
        kernel = number * 4 * MS + 1000, number * 4 * MS + 1000 + 4 * MS
        export.launch((at + 10, at + 20), kernel, name=SGEMM, thread=thread)
        at = end + 10
    return export.range("add", at, at + 30).launch((at + 10, at + 20), (25 * MS, 28 * MS), name="f")


def test_a_kernel_is_of_the_module_around_its_launch_and_of_the_line_that_calls_it(tmp_path):
    export = layers(h_0_attn=ATTENTION, h_1_attn=ATTENTION, h_2_attn=ATTENTION)

    result = ask(KERNEL_SHARE, export, tmp_path)

    columns = ("module", "file", "line", "short_name", "calls", "total_ns")
    [row] = rows(result, "modules", *columns)
    assert row[:3] == ("h.#.attn", "model.py", 42)
    assert row[4:] == (6, 24 * MS)
    finding = next(each for each in result.findings if each.subject.kind == "kernel")
    assert (finding.subject.file, finding.subject.line) == ("model.py", 42)
    assert "h.#.attn, called at model.py:42, launches most of " in finding.message


@pytest.mark.parametrize(
    "lines",
    [
        {},
        # Called from two lines, or within a module that is.
        {"h_0_attn": ATTENTION, "h_1_attn": ATTENTION, "h_2_attn": ATTENTION, "h": ATTENTION},
        # Only a third is known.
        {"h_1_attn": ATTENTION},
    ],
)
def test_where_the_line_is_not_sure_none_is_told(tmp_path, lines):
    export = layers(**lines)
    if "h" in lines:
        called(export, h=("model.py", 50, "forward"))

    result = ask(KERNEL_SHARE, export, tmp_path)

    assert len(rows(result, "modules", "module")) == (1 if len(lines) == 1 else 0)
    finding = next(each for each in result.findings if each.subject.kind == "kernel")
    assert finding.subject.file is None
    assert "launched by" not in finding.message


def test_idle_time_of_a_backward_pass_is_told_with_the_module_that_it_undoes(tmp_path):
    export = sample_gaps(loop(gap_ms=3, thread=AUTOGRAD), BACKWARD, MAIN, gap_ms=3)
    export.call("cudaGetDevice", 0, 10)
    export.os_call("pthread_cond_wait", 0, 100 * MS)
    export.range(f"{RANGE_PREFIX}h.1.attn", 0, 100 * MS, thread=AUTOGRAD, domain="traceview")

    without = ask(GPU_IDLE, export, tmp_path).findings[0].message
    assert without.endswith("was at train.py:40, in the backward pass.")
    called(export, h_1_attn=ATTENTION)
    [finding, *_] = ask(GPU_IDLE, export, tmp_path).findings
    said = "was at train.py:40, in the backward pass of h.#.attn, called at model.py:42."
    assert finding.message.endswith(said)
