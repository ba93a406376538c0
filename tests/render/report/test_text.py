"""The report as text: within the width, plain without color, safe with hostile names."""

import re
from dataclasses import replace

import numpy as np
import pytest
from rich.cells import cell_len

import traceview
from tests.render.example_report import (
    CONTROLS,
    HOSTILE,
    SHARES,
    a_long_report,
    a_report,
    a_trace,
    share_rows,
)
from tests.trace.kineto import traces
from traceview.base.findings import SEVERITIES
from traceview.base.tables import Column, Table, TableSpec
from traceview.render.base.text import cells, drawn, fitting
from traceview.render.report.document import header_facts, nothing_found, ranked_claim
from traceview.render.report.text import FindingText, render_text
from traceview.traces.analyses.base import Skipped
from traceview.traces.reporting import analyze, facts_of
from traceview.traces.trace.schema import TABLES

LONG = [f"gemm_kernel_with_a_long_name_that_goes_on_{i}" for i in range(13)]


def row_of(text: str, start: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(start))


@pytest.mark.parametrize("width", [40, 80, 100, 160])
@pytest.mark.parametrize("names", [LONG, [HOSTILE, CONTROLS, "漢字" * 40, "x" * 10_000_000]])
def test_no_line_is_wider_than_asked(names, width):
    text = render_text(a_report(names), width=width)
    assert max(cell_len(line) for line in text.splitlines()) <= width


def test_a_wider_terminal_shows_more_columns():
    assert [c.heading for c in fitting(SHARES, share_rows(LONG), 60)] == [
        "short name",
        "total",
        "share %",
        "calls",
    ]
    wide = [c.heading for c in fitting(SHARES, share_rows(LONG), 160)]
    assert wide == ["short name", "total", "share %", "calls", "name", "mean", "bytes"]


def test_a_column_without_any_value_is_left_out():
    rows = share_rows(["gemm", "softmax"]).take(np.array([1]))
    assert "mean" not in [c.heading for c in fitting(SHARES, rows, 160)]
    assert "mean" in [c.heading for c in fitting(SHARES, share_rows(["gemm", "softmax"]), 160)]


def test_prose_in_a_table_is_wrapped_not_cut():
    """A long path in a sentence does not turn it into a name."""
    prose = "cudaLaunchKernel called late; 57.2 ms in epoch_0/batch_5/load_the_next_batch_of_all"
    columns = (
        Column("evidence", "text", "what proves it", prose=True),
        Column("calls", "int64", "times"),
    )
    spec = TableSpec("gaps", "one row per gap", columns, "evidence calls")
    table = Table.from_rows(columns, [{"evidence": prose, "calls": 7}])
    lines = drawn([cells(fitting(spec, table, 40))], 40, color=False).splitlines()
    assert max(map(len, lines)) <= 40
    assert re.sub(r"\s+7?", "", "\n".join(line[:33] for line in lines[1:])) == prose.replace(
        " ", ""
    )


def test_numbers_are_never_cut_and_names_lose_their_middle():
    text = render_text(a_report(LONG), width=60)
    row = row_of(text, "gemm_kern")
    assert "…" in row.split()[0]
    assert row.split()[1:] == ["12.3", "ms", "60.0", "%", "1,000"]


def test_numbers_line_up_on_the_right():
    lines = render_text(a_report(), width=80).splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("short name"))
    ends = [lines[head + i].index("calls" if not i else f"1,00{i - 1}") for i in range(4)]
    assert len(set(ends)) == 1


def test_only_the_first_rows_are_shown_and_the_rest_is_counted():
    text = render_text(a_report(LONG), width=160)
    assert f"{LONG[9]} " in text
    assert f"{LONG[10]} " not in text
    assert "… and 3 more (--json has all)" in text


def test_findings_come_first_and_in_order():
    text = render_text(a_report(), width=100)
    assert text.index("What to do first") < text.index("Which kernels take the time?")
    levels = re.findall(r"^(high|medium|low|info)  (?:save up to (\d\S* ms))?", text, re.MULTILINE)
    assert levels == [
        ("high", "1.00 ms"),
        ("medium", "3.00 ms"),
        ("medium", "2.00 ms"),
        ("low", "1.00 ms"),
        ("info", ""),
    ]
    assert "→ Rewrite gemm." in text


def test_header_has_recorder_gpu_selection_and_warnings():
    text = render_text(a_report())
    assert text.startswith("No GPU work in the selection.\n\nrun 1.sqlite.xz\n")
    assert "nsys 2025.3.2.0 (schema 3.20.3)" in text
    assert "NVIDIA H200 (compute capability 9.0, 132 SMs)" in text
    assert re.search(r"without ranges +step_\[01\]", text)
    assert "Warning: schema 9.9 is newer than any known" in text


def test_header_abbreviates_lists_of_gpus_and_processes():
    processes = Table.from_rows(
        TABLES["processes"].columns,
        [{"host_id": 0, "process_id": i, "name": "/usr/bin/python3"} for i in range(7)],
    )
    one = a_trace().devices
    tables = a_trace().tables | {"processes": processes, "devices": one.take(np.zeros(8, int))}
    facts = dict(header_facts(facts_of(a_trace(tables=tables))))
    assert facts["GPU"] == "8 × NVIDIA H200 (compute capability 9.0, 132 SMs)"
    assert facts["process"] == ("python3 (0), python3 (1), python3 (2), python3 (3) and 3 more")


def test_report_has_summary_notes_skipped_analyses_and_empty_tables():
    text = render_text(a_report(), width=100)
    assert "kernel 12.3 ms · busy 97.2 % · absent –" in text
    assert "Note: Launches were recorded whole" in text
    assert "errors: One row per error\nnone" in text
    assert "Not answered: the trace has no copies table" in text
    assert "→ record with: traceview record SCRIPT" in text


def test_control_characters_of_names_do_not_reach_the_terminal():
    text = render_text(a_report([CONTROLS, HOSTILE]), width=160, color=False)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]", text)
    assert r"line\none\x1b[31mred\x07 bidi\u202etxt.exe" in text
    assert "[bold]no markup[/bold]" in text


def test_color_adds_styles_and_nothing_else():
    plain = render_text(a_report([CONTROLS]), width=100)
    colored = render_text(a_report([CONTROLS]), width=100, color=True)
    assert "\x1b[1;31mhigh" in colored
    # Only the styles that rich writes: an escape of the name would stay behind.
    stripped = re.sub(r"\x1b\[[\d;]*m", "", colored)
    assert [line.rstrip() for line in stripped.splitlines()] == plain.splitlines()


@pytest.mark.parametrize(("rows", "whole"), [(10_000, "--json"), (10_001, "--json --all-rows")])
def test_a_cut_table_names_the_option_that_writes_all_rows(rows, whole):
    text = render_text(a_long_report(rows), width=100)
    assert f"… and {rows - 10:,} more ({whole} has all)\n" in text


def test_a_part_of_the_report_does_not_say_that_nothing_was_found(unpack):
    trace = traceview.load(unpack("mlp_print_loss"))
    whole, part = analyze(trace), analyze(trace, ["steps"])
    assert whole.findings
    assert nothing_found(part) == "Nothing found that would save time (asked: steps)."
    assert nothing_found(whole) == "Nothing found that would save time."
    skipped = replace(part, outcomes={"steps": Skipped("no ranges were recorded", "record them")})
    assert nothing_found(skipped) == "What was asked is not answered."


@pytest.mark.parametrize("steps", [0, 1, 4, 9])
def test_passes_of_the_cpu_alone_are_to_be_several(tmp_path, steps):
    events = [traces.span("cpu_op", "aten::addmm", 100 * at, 90) for at in range(max(steps, 1))]
    events += [
        traces.span("user_annotation", f"ProfilerStep#{at}", 100 * at, 95) for at in range(steps)
    ]
    report = analyze(traceview.load(traces.write(tmp_path / "t.json", events)))

    assert ("record several passes" in nothing_found(report)) is (steps < 2)


@pytest.mark.parametrize(("only", "answer_first"), [((), False), (("steps",), True)])
def test_who_asks_one_question_reads_its_answer_before_the_facts(unpack, only, answer_first):
    text = render_text(analyze(traceview.load(unpack("mlp_print_loss")), only))
    assert (text.index("outliers first") < text.index("recorded by")) is answer_first


@pytest.mark.parametrize("severity", SEVERITIES)
def test_what_a_finding_saves_is_whole_at_any_width(severity, unpack):
    report = analyze(traceview.load(unpack("training")))
    for ranked in report.findings:
        rated = replace(ranked, finding=replace(ranked.finding, severity=severity))
        claimed = ranked_claim(rated)
        for width in range(40, 141):
            head = [line.plain for line in FindingText(rated, width, False).lines()]
            assert max(map(cell_len, head)) <= width
            if claimed:
                assert claimed.parts()[0] in " ".join(" ".join(head).split())
