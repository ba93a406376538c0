"""A baseline holds all of the figures, and a damaged one is refused in one line."""

import json
from dataclasses import replace

import pytest

import traceview
from tests.comparison.runs import run
from tests.places import DATA
from traceview.base.errors import ComparisonRefusedError, OutputExistsError, TraceFormatError
from traceview.cli import run as run_cli
from traceview.traces.comparison.inputs import baseline_text, is_baseline, read_baseline
from traceview.traces.comparison.run_figures import figures_of

RECORDING = DATA / "mlp_sync.sqlite.xz"


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    path = tmp_path_factory.mktemp("baseline") / "base.json"
    return traceview.baseline(RECORDING, DATA / "mlp_nosync.sqlite.xz", out=path)


def test_a_baseline_holds_what_the_recordings_do(base):
    exact = figures_of(traceview.load(RECORDING))
    kept = read_baseline(base)
    assert replace(kept[0], name=exact.name) == exact
    assert kept[0].name == RECORDING.name
    assert len(kept) == 2
    assert is_baseline(base)
    assert not is_baseline(RECORDING)
    assert base.stat().st_size < RECORDING.stat().st_size / 2


def test_baselines_can_be_joined(base, tmp_path):
    joined = traceview.baseline(base, DATA / "training.sqlite.xz", out=tmp_path / "all.json")
    assert len(read_baseline(joined)) == 3


def test_a_capture_is_one_run_however_often_it_is_passed(base, tmp_path):
    out = tmp_path / "base.json"
    with pytest.raises(ComparisonRefusedError, match=r"capture; pass each capture once$"):
        traceview.baseline(base, RECORDING, out=out)
    assert not out.exists()


def test_hostile_names_survive(tmp_path):
    path = tmp_path / "base.json"
    path.write_text(baseline_text([run(name='<b>"\n\x1b[31m\u202e')], "1"))
    assert read_baseline(path)[0].name == '<b>"\n\x1b[31m\u202e'


def _changed(document, key, value):
    document["runs"][0][key] = value
    return document


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text[: len(text) // 2], "damaged baseline"),
        (lambda text: text.replace('"version":1', '"version":2', 1), "baseline of version 2"),
        (lambda text: text.replace('"version":1', '"version":"x"', 1), "damaged baseline"),
        (lambda text: json.dumps(_changed(json.loads(text), "window_ns", 5)), "do not add up"),
        (lambda text: json.dumps(_changed(json.loads(text), "step_ns", [])), "do not add up"),
        (lambda text: json.dumps(_changed(json.loads(text), "sequence", [99])), "do not add up"),
        (lambda text: json.dumps(_changed(json.loads(text), "sequence", [0])), "do not add up"),
        (lambda text: json.dumps(_changed(json.loads(text), "devices", "two")), "Expected `int`"),
        (lambda text: json.dumps({**json.loads(text), "runs": []}), "without runs"),
        (lambda text: text.replace('"runs"', '"rums"'), "missing required field `runs`"),
    ],
)
def test_damage_is_one_line(tmp_path, damage, message):
    path = tmp_path / "base.json"
    path.write_text(damage(baseline_text([run()], "1")))
    with pytest.raises(TraceFormatError, match=message) as caught:
        read_baseline(path)
    assert "traceview baseline TRACE..." in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_command_writes_once(base, tmp_path, capsys):
    out = str(tmp_path / "base.json")
    assert run_cli(["baseline", str(base), "-o", out]) == 0
    assert capsys.readouterr().err == f"Wrote {out}\n"
    assert run_cli(["baseline", str(base), "-o", out]) == 1
    assert "exists already" in capsys.readouterr().err
    assert run_cli(["baseline", str(base), "-o", out, "--force"]) == 0
    assert run_cli(["baseline", "-o", out]) == 2
    more = str(DATA / "training.sqlite.xz")
    assert run_cli(["baseline", out, more, "-o", out, "--force"]) == 0
    assert len(read_baseline(tmp_path / "base.json")) == 3
    with pytest.raises(OutputExistsError):
        traceview.baseline(base, out=out)
