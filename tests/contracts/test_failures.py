"""A part of an answer that ends in an internal error leaves all other parts as they are."""

import json
import logging
import lzma
import re
from dataclasses import replace
from functools import partial

import pytest

import traceview
from tests.build import Export
from tests.conftest import DATA
from tests.ranks.hand_made import late_in_every_third
from tests.render.schemas.strictness import validator
from traceview.base.errors import InputError
from traceview.cli import run
from traceview.render.markdown import render_markdown
from traceview.render.ranks.text import render_job
from traceview.render.report.document import report_document
from traceview.render.report.html import render_html
from traceview.render.report.text import render_text
from traceview.render.screen import render_screen
from traceview.traces import reporting
from traceview.traces.analyses import ALL
from traceview.traces.facts.steps import inferred
from traceview.traces.facts.steps.inferred import with_steps
from traceview.traces.ranks.answer import job_report
from traceview.traces.ranks.execution import task
from traceview.traces.ranks.execution.task import RankFile

RECORDING = DATA / "mlp_sync.sqlite.xz"


class DamageError(Exception):
    """What a damaged part raises."""


def damaged(*_, **__):
    raise DamageError("on purpose")


@pytest.fixture(scope="module")
def trace(recording):
    return with_steps(traceview.load(recording))


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    path = tmp_path_factory.mktemp("failures") / RECORDING.stem
    path.write_bytes(lzma.decompress(RECORDING.read_bytes()))
    return path


@pytest.fixture(scope="module")
def undamaged(trace):
    return json.loads(reporting.analyze(trace).to_json())


def with_damage(name):
    """All analyses, the one of that name damaged."""
    return tuple(
        replace(each, needs=(), compute=damaged) if each.name == name else each for each in ALL
    )


@pytest.mark.parametrize("name", [each.name for each in ALL])
def test_an_analysis_that_fails_leaves_the_others_as_they_are(name, trace, undamaged):
    answer = reporting.analyze(trace, analyses=with_damage(name))

    document = json.loads(answer.to_json())
    validator("report").validate(document)
    failed = document["analyses"][name]
    assert (failed["status"], failed["reason"]) == (
        "failed",
        "internal error: DamageError: on purpose",
    )
    assert "report it" in failed["remedy"]
    for other in undamaged["analyses"].keys() - {name}:
        assert document["analyses"][other] == undamaged["analyses"][other]
    for key in ("verdict", "scoreboard", "run_time"):
        assert document[key] == undamaged[key]
    assert {each["message"] for each in document["findings"]} == {
        each["message"] for each in undamaged["findings"] if each["analysis"] != name
    }


def as_markdown(report):
    return render_markdown(report_document(report))


@pytest.mark.parametrize(
    "draw", [render_screen, render_text, as_markdown, partial(render_html, version="0")]
)
def test_the_first_page_says_which_analysis_failed(draw, trace):
    answer = reporting.analyze(trace, analyses=with_damage("gpu-idle"))

    page = " ".join(draw(answer).split())
    assert re.search(r"gpu(-|\\-)idle failed, all else holds", page)


@pytest.mark.parametrize("part", ["verdict", "scoreboard", "run_time", "loop_times", "steps"])
def test_a_part_of_the_head_that_fails_leaves_the_answers(part, trace, undamaged, monkeypatch):
    monkeypatch.setattr(reporting, part, damaged)

    document = json.loads(reporting.analyze(trace).to_json())

    validator("report").validate(document)
    assert document["analyses"] == undamaged["analyses"]
    assert [each["analysis"] for each in document["findings"]]
    assert "internal error: DamageError: on purpose" in document["trace"]["warnings"][0]
    assert document["verdict"] == (None if part == "verdict" else undamaged["verdict"])


INFERENCES = ("with_added_steps", "_with_inferred", "_passes", "find_repetition", "steps_source")


@pytest.mark.parametrize("inference", INFERENCES)
def test_a_report_goes_on_without_steps_that_cannot_be_inferred(inference, tmp_path, monkeypatch):
    export = Export()
    for each in range(60):
        start = 100_000 * each
        export.launch(call=(start, start + 2_000), kernel=(start + 3_000, start + 40_000))
    loaded = traceview.load(export.write(tmp_path / "loop.sqlite"))
    monkeypatch.setattr(inferred, inference, damaged)

    answer = traceview.analyze(loaded)

    [warning] = answer.trace.warnings
    assert "steps failed, all else holds: internal error: DamageError: on purpose" in warning
    assert answer["kernel-share"].tables["kernels"]["calls"].tolist() == [60]


def test_errors_of_the_input_and_exhausted_memory_are_raised(trace):
    for error in (InputError("no such range"), MemoryError()):

        def fails(_, error=error):
            raise error

        analyses = (replace(ALL[0], compute=fails), *ALL[1:])
        with pytest.raises(type(error)):
            reporting.analyze(trace, analyses=analyses)


def test_debug_prints_the_traceback_of_a_failure(recording, monkeypatch, capsys):
    monkeypatch.setattr(inferred, "_with_inferred", damaged)
    # A server that ran in this process before may have left its own.
    monkeypatch.setattr(logging.getLogger(), "handlers", [])

    assert run(["report", str(recording)]) == 0
    assert "Traceback" not in capsys.readouterr().err
    assert run(["report", str(recording), "--debug"]) == 0
    assert "DamageError: on purpose" in capsys.readouterr().err
    assert run(["report", str(recording)]) == 0
    assert "Traceback" not in capsys.readouterr().err


def test_a_rank_whose_own_report_fails_is_in_the_answer_of_its_job(recording, monkeypatch):
    analyses = with_damage("gpu-idle")
    monkeypatch.setattr(reporting.registered, "ALL", analyses)

    [rank] = task.figures_of_file(RankFile(str(recording)))

    job = job_report([rank])
    assert rank.findings
    assert rank.verdict
    assert "rank 0: gpu-idle failed" in " ".join(render_job(job).split())
    document = json.loads(job.to_json())
    validator("ranks").validate(document)
    assert any("gpu-idle failed" in text for text in document["ranks"][0]["warnings"])


@pytest.mark.parametrize(
    "part", ["job_findings.findings_of", "critical_path.critical_path", "answer.stragglers"]
)
def test_a_part_of_the_answer_of_a_job_that_fails_leaves_the_others(part, monkeypatch):
    ranks = late_in_every_third()
    undamaged = json.loads(job_report(ranks).to_json())
    monkeypatch.setattr(f"traceview.traces.ranks.{part}", damaged)

    job = job_report(ranks)

    document = json.loads(job.to_json())
    validator("ranks").validate(document)
    assert "internal error: DamageError: on purpose" in document["job"]["warnings"][0]
    assert "failed, all else holds" in " ".join(render_job(job).split())
    assert document["job"]["tables"]["groups"] == undamaged["job"]["tables"]["groups"]
