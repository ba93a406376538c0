"""The answers of the server, without a client."""

import pytest

from traceview.serve.answers import Answers
from traceview.serve.folder import ServedFolder
from traceview.traces.analyses.base import Failed, Skipped


@pytest.mark.parametrize(("kind", "status"), [(Skipped, "skipped"), (Failed, "failed")])
def test_an_answer_without_tables_says_why(tmp_path, monkeypatch, kind, status):
    outcome = kind("no kernels", "record them")
    monkeypatch.setattr(Answers, "_report", lambda *_: {"gpu-idle": outcome})

    answer = Answers(ServedFolder.of(tmp_path)).answer("a.sqlite", "gpu-idle", None, None)

    assert answer == {"status": status, "reason": "no kernels", "remedy": "record them"}
