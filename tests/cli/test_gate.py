"""`traceview gate` on shipped recordings, as this project's own build runs it."""

import json

import pytest

import traceview
from tests.places import DATA
from traceview.cli import run

RULES = """
certainty = "95 %"
[counts.synchronizations]
equals = 0
[counts.launches]
max_increase = 0
[peak_memory_bytes]
max_increase = "5 %"
"""
BEFORE, AFTER = DATA / "mlp_nosync.sqlite.xz", DATA / "mlp_print_loss.sqlite.xz"


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    path = tmp_path_factory.mktemp("gate") / "gate.toml"
    path.write_text(RULES)
    return path


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return traceview.baseline(BEFORE, out=tmp_path_factory.mktemp("base") / "base.json")


def test_a_printed_loss_fails_the_build_at_its_line(base, config, tmp_path, monkeypatch, capsys):
    summary = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    outputs = [
        "--github",
        "--junit",
        str(tmp_path / "gate.xml"),
        "--json",
        str(tmp_path / "g.json"),
    ]
    status = run(["gate", str(base), "--candidate", str(AFTER), "--config", str(config), *outputs])
    shown = capsys.readouterr().out
    assert status == 1
    assert "::error file=mlp.py,line=90,title=synchronizations_per_step regressed::" in shown
    assert "### traceview gate: regressed" in summary.read_text()
    assert json.loads((tmp_path / "g.json").read_text())["outcome"] == "regressed"
    assert "<failure" in (tmp_path / "gate.xml").read_text()


def test_the_same_recording_passes_and_needs_force(base, config, capsys):
    arguments = ["gate", str(base), "--candidate", str(base), "--config", str(config)]
    assert run(arguments) == 2
    assert "the same capture" in capsys.readouterr().err
    assert run([*arguments, "--force"]) == 0
    assert "Passed: 3 rules held." in capsys.readouterr().out


def test_one_run_per_side_leaves_a_time_undecided(base, tmp_path, capsys):
    config = tmp_path / "gate.toml"
    config.write_text('[step_time]\nmax_increase = "3 %"\nand_at_least = "0.1 ms"\n')
    arguments = ["gate", str(base), "--candidate", str(AFTER), "--config", str(config)]
    assert run(arguments) == 2
    assert "3 runs per side would decide" in " ".join(capsys.readouterr().out.split())


def test_several_candidates_follow_one_option(base, config, capsys):
    several = ["--candidate", str(AFTER), str(DATA / "mlp_sync.sqlite.xz"), "--json"]
    assert run(["gate", str(base), *several, "--config", str(config)]) == 1
    assert len(json.loads(capsys.readouterr().out)["candidate"]) == 2


@pytest.mark.parametrize(
    "content", [b"", b"SQLite format 3\x00", b'{"format":"traceview baseline"']
)
def test_what_cannot_be_judged_is_one_line_and_status_2(base, config, tmp_path, content, capsys):
    broken = tmp_path / "broken.json"
    broken.write_bytes(content)
    for sides in ((broken, base), (base, broken), (base, tmp_path / "absent")):
        arguments = ["gate", str(sides[0]), "--candidate", str(sides[1]), "--config", str(config)]
        assert run(arguments) == 2
        message = capsys.readouterr().err
        assert message.startswith("traceview: error: ")
        assert message.count("\n") == 1
    wrong = ["gate", str(base), "--candidate", str(AFTER), "--config", str(tmp_path / "no.toml")]
    assert run(wrong) == 2


def test_what_goes_wrong_on_the_way_is_no_regression(base, config, monkeypatch, capsys):
    arguments = ["gate", str(base), "--candidate", str(base), "--config", str(config), "--force"]
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "/nowhere/summary.md")
    assert run([*arguments, "--github"]) == 2
    assert "cannot write the job summary /nowhere/summary.md" in capsys.readouterr().err

    def broken(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr(traceview, "gate", broken)
    assert run(arguments) == 2
    assert "internal error: ZeroDivisionError" in capsys.readouterr().err
    assert run(["report", str(base)]) == 1


def test_one_file_for_two_outputs_is_misuse(base, config, tmp_path, capsys):
    arguments = ["gate", str(base), "--candidate", str(AFTER), "--config", str(config)]
    path = str(tmp_path / "out")
    assert run([*arguments, "--junit", path, "--json", path]) == 2
    assert f"two outputs have the name {path}" in capsys.readouterr().err
