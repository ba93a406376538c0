"""A long program under torch.profiler: recorded until there is enough, then left alone."""

import pytest

from traceview.traces.recorders.injected.traceview_injected.annotations import training_steps
from traceview.traces.recorders.injected.traceview_injected.notes import STOPPED
from traceview.traces.recorders.injected.traceview_injected.torch_profile import whole_program


class Session:
    stops = 0

    def stop(self):
        self.stops += 1


@pytest.mark.parametrize(("most_s", "stopped_at"), [(0.0, 7 + whole_program.LEAST_STEPS), (99, 0)])
def test_steps_and_seconds_are_both_needed(tmp_path, monkeypatch, most_s, stopped_at):
    monkeypatch.setattr(whole_program, "MOST_S", most_s)
    monkeypatch.setattr(training_steps, "watch", None)
    session, seen = Session(), []
    training_steps.watch = whole_program._enough(session, str(tmp_path))
    for step in range(7, 100):
        if training_steps.watch:
            seen.append(step)
            training_steps.watch(step)

    assert seen[-1] == (stopped_at or 99)
    assert session.stops == bool(stopped_at)
    assert (tmp_path / STOPPED).exists() == bool(stopped_at)
    if stopped_at:
        assert 0 <= float((tmp_path / STOPPED).read_text("utf-8")) < 99
