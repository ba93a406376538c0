"""`traceview ptx`: what goes where, and one clear line for what cannot be read."""

import json
from pathlib import Path

import pytest

import traceview
from tests.ptx.made import a_report, ptx_kernel
from traceview.cli import run
from traceview.ptx.report import PtxReport

DATA = Path(__file__).parents[1] / "ptx" / "data"
GELU = DATA / "gelu-3.7.1-sm90.ptx"


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """Answer every target with a made report, in an empty folder; gives what was asked for."""
    calls = []

    def inspect_ptx(target, **options):
        calls.append((target, options))
        options["note"]("a remark")
        return PtxReport(target, (a_report(),))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(traceview, "inspect_ptx", inspect_ptx)
    return calls


def test_the_kernels_are_printed_and_remarks_go_to_stderr(asked, capsys):
    assert run(["ptx", "gelu.py"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("gelu_kernel  sm_90")
    assert "\x1b" not in shown.out
    assert shown.err == "traceview: a remark\n"


def test_options_reach_the_compiler(asked):
    line = "ptx gelu.py --kernel k --arch sm_100 --signature *fp32:16 --constexpr B=1 "
    line += "--constexpr C=a=b --num-warps 8 --num-stages 2 --first-config --timeout 9 --sms 132"
    assert run([*line.split(), "--", "--size", "7"]) == 0
    ((target, options),) = asked
    del options["note"]
    assert target == "gelu.py"
    assert options == {
        "kernel": "k",
        "arch": "sm_100",
        "signature": "*fp32:16",
        "constexprs": {"B": "1", "C": "a=b"},
        "num_warps": 8,
        "num_stages": 2,
        "first_config": True,
        "emulate": False,
        "timeout_s": 9.0,
        "sm_count": 132,
        "arguments": ("--size", "7"),
    }


@pytest.mark.parametrize("option", [["--json"], ["--json", "-"]])
def test_json_alone_on_stdout(asked, capsys, option):
    assert run(["ptx", "gelu.py", *option]) == 0
    assert json.loads(capsys.readouterr().out)["kernels"][0]["name"] == "gelu_kernel"


def test_json_to_a_file_which_is_not_replaced_unasked(asked, tmp_path, capsys):
    assert run(["ptx", "gelu.py", "--json", "k.json"]) == 0
    assert json.loads((tmp_path / "k.json").read_text())["schema_version"] == 1
    assert "Wrote k.json" in capsys.readouterr().err
    assert run(["ptx", "gelu.py", "--json", "k.json"]) == 1
    assert run(["ptx", "gelu.py", "--json", "k.json", "--force"]) == 0
    assert len(asked) == 2


@pytest.mark.parametrize(
    "arguments",
    [[], ["--json", "gelu.py"], ["gelu.py", "--constexpr", "B"], ["gelu.py", "--num-warps", "0"]],
)
def test_misuse(asked, arguments):
    assert run(["ptx", *arguments]) == 2
    assert asked == []


def test_a_target_taken_for_the_json_is_explained(asked, capsys):
    run(["ptx", "--json", "gelu.py"])
    assert "traceview ptx gelu.py --json" in capsys.readouterr().err


@pytest.mark.parametrize("view", ["--source", "--ptx", "--sass"])
def test_views_of_real_ptx(capsys, view):
    assert run(["ptx", str(GELU), view]) == 0
    assert {"--source": "cannot be read", "--ptx": "PTX\n", "--sass": "SASS"}[
        view
    ] in capsys.readouterr().out


NOT_TARGETS = {
    "empty.ptx": b"",
    "half.ptx": GELU.read_bytes()[:3000],
    "binary.ptx": bytes(range(256)) * 100,
    "elf.ptx": b"\x7fELF" + bytes(100),
    "large.ptx": b"no PTX at all\n" * 4_000_000,
    "none.ptx": b".version 8.0\n.target sm_90\n.address_size 64\n",
    "empty.cubin": b"",
    "half.cubin": b"\x7fELF" + bytes(100),
    "notes.txt": b"text",
    "run.sqlite": b"SQLite format 3\0",
    "run.json.gz": b"\x1f\x8b",
}


@pytest.mark.parametrize("name", [*NOT_TARGETS, "gone.ptx", "gone.py", "no folder"])
def test_one_clear_line_for_what_is_no_target(name, tmp_path, capsys):
    path = tmp_path / name
    if name in NOT_TARGETS:
        path.write_bytes(NOT_TARGETS[name])
    assert run(["ptx", str(path)]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("traceview: error: ")
    assert shown.err.count("\n") == 1
    assert len(shown.err) < 600


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--kernel", "other"], "has no kernel 'other'; it has k"),
        (["--arch", "hopper"], "'hopper' is no GPU architecture; write it as --arch sm_90"),
        (["--arch", "sm_80"], "which does not run on sm_80"),
    ],
)
def test_what_does_not_fit_the_target(tmp_path, capsys, options, said):
    file = tmp_path / "k.ptx"
    file.write_text(ptx_kernel(""))
    assert run(["ptx", str(file), *options]) == 1
    assert said in capsys.readouterr().err


def test_an_empty_folder_has_no_kernels(tmp_path, capsys):
    assert run(["ptx", str(tmp_path)]) == 1
    assert capsys.readouterr().err.count("\n") == 1
