"""`traceview ptx`: what goes where, and one clear line for what cannot be read."""

import json
from typing import NamedTuple

import pytest

import traceview
from tests.places import DATA, PTX_FILES
from tests.ptx.compiled_kernels import a_report, ptx_kernel
from traceview.base.errors import InputError
from traceview.cli import run
from traceview.kernels.headless.compile_options import CompileOptions
from traceview.kernels.inspect.target_report import PtxReport

GELU = PTX_FILES / "gelu-3.7.1-sm90.ptx"
NVRTC = DATA / "gelu-nvrtc-12.9-sm90.ptx"


class Call(NamedTuple):
    """One call of `inspect_target`."""

    target: str
    options: CompileOptions
    sm_count: int | None


@pytest.fixture
def calls(monkeypatch, tmp_path):
    """The calls of `inspect_target`, which returns a fixed report; the folder is empty."""
    calls = []

    def inspect_target(target, options, *, sm_count, neighbours, note, step):
        calls.append(Call(target, options, sm_count))
        note("a remark")
        step("a step")
        return PtxReport(target, (a_report(),))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("traceview.kernels.inspect.target_report.inspect_target", inspect_target)
    return calls


def test_the_kernels_are_printed_and_remarks_go_to_stderr(calls, capsys):
    assert run(["ptx", "gelu.py"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("gelu_kernel  sm_90")
    assert "\x1b" not in shown.out
    assert shown.err == "traceview: a remark\n"


def test_python_functions_take_values(calls):
    traceview.inspect_ptx("gelu.py", constexprs={"BLOCK": 512, "EVEN": True}, arguments="--fast")
    traceview.diff_ptx("gelu.py", constexprs={"BLOCK": [256, "1024"]})
    assert [call.options.constexprs for call in calls] == [
        {"BLOCK": "512", "EVEN": "True"},
        {"BLOCK": "256"},
        {"BLOCK": "1024"},
    ]
    assert calls[0].options.arguments == ("--fast",)
    with pytest.raises(InputError, match="only one version to compare"):
        traceview.diff_ptx("gelu.py", constexprs={"BLOCK": [256, "256"]})


def test_a_number_is_no_architecture():
    with pytest.raises(
        InputError, match="'90' is not a GPU architecture; pass, for example, --arch sm_90"
    ):
        traceview.inspect_ptx(GELU, arch=90)


def test_options_reach_the_compiler(calls):
    line = "ptx gelu.py --kernel k --arch sm_100 --signature *fp32:16 --constexpr B=1 "
    line += "--constexpr C=a=b --num-warps 8 --num-stages 2 --first-config --timeout 9 --sms 132"
    assert run([*line.split(), "--", "--size", "7"]) == 0
    assert calls == [
        Call(
            "gelu.py",
            CompileOptions(
                kernel="k",
                arch="sm_100",
                signature="*fp32:16",
                constexprs={"B": "1", "C": "a=b"},
                num_warps=8,
                num_stages=2,
                first_config=True,
                timeout_s=9.0,
                arguments=("--size", "7"),
            ),
            132,
        )
    ]


def test_flags_reach_the_compiler(calls):
    assert run(["ptx", "gelu.py", "--emulate", "--compile"]) == 0
    assert calls[0].options == CompileOptions(emulate=True, compile_torch=True)


@pytest.mark.parametrize("option", [["--json"], ["--json", "-"]])
def test_json_alone_on_stdout(calls, capsys, option):
    assert run(["ptx", "gelu.py", *option]) == 0
    assert json.loads(capsys.readouterr().out)["kernels"][0]["name"] == "gelu_kernel"


def test_json_to_a_file_which_is_not_replaced_unasked(calls, tmp_path, capsys):
    assert run(["ptx", "gelu.py", "--json", "k.json"]) == 0
    assert json.loads((tmp_path / "k.json").read_text())["schema_version"] == 1
    assert "Wrote k.json" in capsys.readouterr().err
    assert run(["ptx", "gelu.py", "--json", "k.json"]) == 1
    assert run(["ptx", "gelu.py", "--json", "k.json", "--force"]) == 0
    assert len(calls) == 2


@pytest.mark.parametrize(
    "arguments",
    [[], ["--json", "gelu.py"], ["gelu.py", "--constexpr", "B"], ["gelu.py", "--num-warps", "0"]],
)
def test_misuse(calls, arguments):
    assert run(["ptx", *arguments]) == 2
    assert calls == []


def test_a_target_taken_for_the_json_is_explained(calls, capsys):
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
        (["--arch", "sm_80"], "cannot run on sm_80"),
    ],
)
def test_what_does_not_fit_the_target(tmp_path, capsys, options, said):
    file = tmp_path / "k.ptx"
    file.write_text(ptx_kernel(""))
    assert run(["ptx", str(file), *options]) == 1
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--arch", "hopper"], "'hopper' is not a GPU architecture; pass, for example, --arch"),
        (["--num-warps", "3"], "3 is not a power of two"),
        (["--num-warps", "64"], "64 is not in the range"),
    ],
)
def test_a_bad_value_is_misuse(capsys, options, said):
    assert run(["ptx", "k.ptx", *options]) == 2
    assert said in capsys.readouterr().err


def test_an_empty_folder_has_no_kernels(tmp_path, capsys):
    assert run(["ptx", str(tmp_path)]) == 1
    assert capsys.readouterr().err.count("\n") == 1


FORMS = {
    "gelu.py --num-warps 4 8": [("gelu.py", "num_warps", 4), ("gelu.py", "num_warps", 8)],
    "--num-warps 4 8 gelu.py": [("gelu.py", "num_warps", 4), ("gelu.py", "num_warps", 8)],
    "gelu.py --num-warps 4 --num-warps 8": [
        ("gelu.py", "num_warps", 4),
        ("gelu.py", "num_warps", 8),
    ],
    "gelu.py --num-stages 2 3 4": [("gelu.py", "num_stages", n) for n in (2, 3, 4)],
    "gelu.py --arch sm_80 sm_90": [("gelu.py", "arch", "sm_80"), ("gelu.py", "arch", "sm_90")],
    "gelu.py --signature *fp32,8 *fp16,8": [
        ("gelu.py", "signature", "*fp32,8"),
        ("gelu.py", "signature", "*fp16,8"),
    ],
    "gelu.py --constexpr B=1 B=2 --constexpr C=3": [
        ("gelu.py", "constexprs", {"B": "1", "C": "3"}),
        ("gelu.py", "constexprs", {"B": "2", "C": "3"}),
    ],
    "gelu.py --diff a b": [("gelu.py", "kernel", "a"), ("gelu.py", "kernel", "b")],
    "--diff a.ptx b.py:k": [("a.ptx", "kernel", None), ("b.py:k", "kernel", None)],
}


@pytest.mark.parametrize("line", FORMS)
def test_the_forms_of_a_comparison(calls, capsys, line):
    assert run(["ptx", *line.split(), "--", "7"]) == 0
    name = FORMS[line][0][1]
    assert [(call.target, name, getattr(call.options, name)) for call in calls] == FORMS[line]
    assert all(call.options.arguments == ("7",) for call in calls)
    shown = capsys.readouterr()
    assert "Nothing differs." in shown.out
    unused = "is not a Triton source, so it does not use arguments after --"
    notes = [f"traceview: {name} {unused}" for name in line.split() if name.endswith(".ptx")]
    assert shown.err.splitlines() == [*notes, "traceview: a remark"]


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("gelu.py --num-warps 4 64", 2),
        ("gelu.py --num-warps 1 2 4 8 16", 1),
        ("gelu.py --num-warps 4 8 --arch sm_80 sm_90", 1),
        ("--diff a b --num-warps 4 8", 1),
        ("gelu.py --diff a b --kernel c", 2),
        ("gelu.py --diff a", 2),
        ("gelu.py --num-warps 4 8 --source", 2),
    ],
)
def test_what_cannot_be_compared(calls, capsys, line, status):
    assert run(["ptx", *line.split()]) == status
    assert calls == []
    assert capsys.readouterr().out == ""


def test_one_value_is_no_comparison(calls, capsys):
    assert run(["ptx", "--num-warps", "4", "gelu.py", "--num-warps", "4"]) == 0
    assert [call.options.num_warps for call in calls] == [4]
    assert "Nothing differs" not in capsys.readouterr().out


def test_json_of_a_comparison(calls, capsys):
    assert run(["ptx", "gelu.py", "--num-warps", "4", "8", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [k["version"] for k in document["kernels"]] == ["--num-warps 4", "--num-warps 8"]
    assert len(document["diff"]) == 1


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("in/gelu.py --html", "gelu.html"),
        ("gelu.py:kernel --html", "gelu.html"),
        ("package.module:kernel --html", "package.module.html"),
        ("in/k.v2 --html", "k.v2.html"),
        ("run.sqlite.xz --html", "run.html"),
        ("gelu.py --num-warps 4 8 --html", "gelu.html"),
        ("--diff a.ptx in/b.cubin --html", "a-b.html"),
        ("--diff x.py:a x.py:b --html", "x.html"),
        ("gelu.py --html page.html", "page.html"),
    ],
)
def test_a_page_is_named_after_its_target(calls, tmp_path, capsys, line, name):
    assert run(["ptx", *line.split()]) == 0
    assert (tmp_path / name).read_text().startswith("<!doctype html>")
    assert capsys.readouterr().err.endswith(f"Wrote {name}\n")
    calls.clear()
    (tmp_path / name).write_text("mine")
    assert run(["ptx", *line.split()]) == 1
    assert "exists already" in capsys.readouterr().err
    assert calls == []
    assert run(["ptx", *line.split(), "--force"]) == 0


@pytest.mark.parametrize("line", ["gelu.py --html gelu.py", "gelu.py:k --json gelu.py"])
def test_the_target_is_never_written_over(calls, tmp_path, capsys, line):
    (tmp_path / "gelu.py").write_text("kernel")
    assert run(["ptx", *line.split(), "--force"]) == 1
    assert "is the input target" in capsys.readouterr().err
    assert (tmp_path / "gelu.py").read_text() == "kernel"


def test_a_target_taken_for_the_page_is_explained(calls, capsys):
    assert run(["ptx", "--html", "gelu.py"]) == 2
    assert "traceview ptx gelu.py --html" in capsys.readouterr().err


def test_a_version_that_cannot_be_had_is_named(tmp_path, capsys):
    file = tmp_path / "k.ptx"
    file.write_text(ptx_kernel(""))
    assert run(["ptx", str(file), "--arch", "sm_90", "sm_80"]) == 1
    shown = capsys.readouterr()
    assert shown.err.startswith("traceview: error: --arch sm_80: ")
    assert shown.err.count("\n") == 1


def test_two_files_of_real_ptx_side_by_side(capsys):
    files = [str(PTX_FILES / f"gelu-{triton}-sm90.ptx") for triton in ("3.6.0", "3.7.1")]
    assert run(["ptx", "--diff", *files]) == 0
    shown = capsys.readouterr().out
    assert "gelu-3.6.0-sm90.ptx → gelu-3.7.1-sm90.ptx" in shown
    assert "elements per thread 8" in " ".join(shown.split())


def test_two_signatures_of_a_triton_kernel(capsys, monkeypatch):
    pytest.importorskip("triton")
    pytest.importorskip("torch")
    monkeypatch.setenv("COLUMNS", "160")
    target = str(PTX_FILES.parent / "kernels" / "gelu.py") + ":gelu_kernel"
    signatures = [f"*fp32:16, *fp32:16, {n}, 1024" for n in ("i32", "i32:16")]
    assert run(["ptx", target, "--signature", *signatures]) == 0
    rows = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "n_elements i32 i32:16" in rows
    (load,) = [row for row in rows if row.startswith("gelu.py:12 global load")]
    assert "8 × 32 bits 2 × 128 bits wider" in load
    assert any(row.startswith("high vanishes Global loads at gelu.py:12") for row in rows)


def test_expectations_that_are_met_exit_with_0(capsys):
    line = ["ptx", str(NVRTC), "--expect", "gelu_vector: global load >= 128, spills = 0"]
    assert run([*line, "--expect", "registers <= 64"]) == 0
    assert capsys.readouterr().out == "3 conditions met by 2 kernels\n"


def test_an_expectation_that_is_not_met_exits_with_1_and_one_line(capsys):
    assert run(["ptx", str(NVRTC), "--expect", "global load >= 128, spills = 0"]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("gelu_scalar: global load >= 128: 32 bits at ")


def test_an_expectation_that_means_nothing_exits_with_2(capsys):
    assert run(["ptx", str(NVRTC), "--expect", "global lod >= 128"]) == 2
    assert "did you mean global load?" in capsys.readouterr().err
    assert run(["ptx", str(NVRTC), "--expect", "spills = 0", "--sass"]) == 2
    assert "--expect cannot be combined with --sass" in capsys.readouterr().err
    assert run(["ptx", "gelu.py", "--expect", "spills = 0", "--num-warps", "4", "8"]) == 2
    assert "--expect cannot be combined with a comparison" in capsys.readouterr().err


def test_what_if_is_of_one_version(calls, capsys):
    assert run(["ptx", "gelu.py", "--what-if", "--num-warps", "4", "8"]) == 2
    assert "--what-if cannot be combined with a comparison" in capsys.readouterr().err


def test_json_has_the_verdicts(capsys):
    assert run(["ptx", str(NVRTC), "--expect", "gelu_scalar: global load >= 128", "--json"]) == 1
    shown = capsys.readouterr()
    (verdict,) = json.loads(shown.out)["expectations"]
    assert (verdict["kernel"], verdict["condition"], verdict["met"]) == (
        "gelu_scalar",
        "global load >= 128",
        False,
    )
    assert verdict["found"].startswith("32 bits at ")
    assert verdict["sources"]
    assert shown.err.startswith("gelu_scalar: global load >= 128: 32 bits")
