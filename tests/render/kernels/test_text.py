"""Kernels in a terminal and as JSON: they fit, say what was found, and no name breaks them."""

import json
import re
from dataclasses import replace

import pytest
from rich.cells import cell_len

from tests.ptx.compiled_kernels import a_compiled, a_line, a_report, an_access
from tests.render.example_report import CONTROLS, HOSTILE
from traceview.kernels.inspect.target_report import PtxReport
from traceview.kernels.ptx.accesses import TensorOp
from traceview.kernels.ptx.model import Argument
from traceview.kernels.ptx.parser import parse_ptx
from traceview.render.json import render_json
from traceview.render.kernels.names import SourceNames
from traceview.render.kernels.summary import variant
from traceview.render.kernels.text import render_ptx_text, render_views

UNPRINTABLE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]")


def of(*kernels):
    return PtxReport("gelu.py", kernels or (a_report(),))


def hostile(text):
    line = a_line(31, f"/tmp/{text}.py")
    return a_report(
        compiled=a_compiled(name=text, arguments=(Argument(text, "constexpr", value=text),)),
        accesses=(an_access(opcode=text, source=line),),
        notes=(text,),
    )


def test_a_kernel_is_told_from_its_launch_to_its_finding():
    text = render_ptx_text(of(), width=100)
    assert text.startswith("gelu_kernel  sm_90\n---")
    assert "as launched · 3 launches · grid 64 × 1 × 1 · 4 warps" in text
    assert "registers 32 · spills 0 B · shared 1.02 kB · occupancy 100.0 %" in text
    assert "elements per thread 8 · waves 0.250" in text
    assert re.search(r"gelu.py:31 +ld.global.v4.b32 +128 bit +2 +0 +2 × LDG.E.64", text)
    assert "load narrowed from 2 × 128 bits in PTX to 2 × 64 bits in SASS" in text
    assert re.search(r"low +the load loses 2 lanes\n +→ Load less\n +seen in both", text)
    assert "Note: no such tool" in text


@pytest.mark.parametrize(
    ("message", "action", "is_short"),
    [
        ("the load at a.py:8 loses 1,024 of 16 lanes", "Load less", True),
        ("the load at a.py:8 loses 2 of 8 lanes", "Load less", True),
        ("the load at a.py:8 loses 2 of 8 lanes", "Load 2 less", False),
        ("the load at a.py:9 loses 2 of 8 lanes", "Load less", False),
        ("the store at a.py:8 loses 2 of 8 lanes", "Load less", False),
    ],
)
def test_what_variants_of_a_kernel_share_is_told_once(message, action, is_short):
    first = a_report()
    (finding, *_) = first.findings
    known = replace(finding, template="the load at a.py:8 loses 2 of 8 lanes", remedy="Load less")
    other = replace(finding, template=message, remedy=action)
    text = render_ptx_text(
        of(replace(first, findings=(known,)), replace(first, findings=(other,))), width=100
    )
    assert text.count("1 finding as above") == text.count("also: ") == is_short
    assert text.count("→ ") == 2 - is_short
    assert text.count("Note: no such tool") == 1
    alone = render_ptx_text(of(replace(first, findings=(other,))), width=100)
    assert f"→ {action}" in alone


def an_instance(types, bits, number):
    """An instance of a template k, whose line 8 loads so many bits."""
    report = a_report()
    template = f"the load at a.cu:8 moves {bits} bits"
    finding = replace(report.findings[0], template=template, remedy="Move more")
    return replace(
        report,
        compiled=replace(report.compiled, name=f"_Z1kI{number}"),
        demangled_name=f"void {types}(int)",
        findings=(finding,),
    )


@pytest.mark.parametrize(("second", "is_short"), [("k<__half>", True), ("other<__half>", False)])
def test_what_instances_of_a_template_share_is_said_once_with_their_names(second, is_short):
    instances = an_instance("k<float>", 32, 1), an_instance(second, 16, 2)
    text = render_ptx_text(of(*instances), width=100)
    assert ("moves 16 to 32 bits" in text) == is_short
    assert (f"also: {second}" in text) == is_short
    assert ("moves 16 bits" in text) == (not is_short)


def test_a_variant_is_named_after_what_it_alone_has():
    blocks = [
        a_report(compiled=a_compiled(arguments=(Argument("BLOCK", "constexpr", value=size),)))
        for size in (64, 128)
    ]
    assert [variant(block, blocks) for block in blocks] == ["BLOCK=64", "BLOCK=128"]
    assert variant(blocks[0], [blocks[0], blocks[0]]) == "k"


def test_a_guess_is_called_a_guess():
    guessed = replace(a_report(), compiled=a_compiled(how="guessed"))
    assert "with guessed arguments (no launch, no signature)" in render_ptx_text(of(guessed))


@pytest.mark.parametrize("width", [40, 80, 160])
@pytest.mark.parametrize("name", ["gelu", HOSTILE, CONTROLS, "漢字" * 40, "x" * 100_000])
def test_no_line_is_wider_than_asked_and_none_reaches_the_terminal(name, width):
    for text in (
        render_ptx_text(of(hostile(name)), width=width),
        render_views(of(hostile(name)), ["source", "ptx", "sass"], width=width),
    ):
        assert max(cell_len(line) for line in text.splitlines()) <= width
        assert not UNPRINTABLE.search(text)


def test_color_adds_styles_and_nothing_else():
    plain, colored = (render_ptx_text(of(), width=100, color=color) for color in (False, True))
    assert "\x1b[1;36mlow" in colored
    stripped = re.sub(r"\x1b\[[\d;]*m", "", colored)
    assert [line.rstrip() for line in stripped.splitlines()] == plain.splitlines()


def test_sass_without_a_line_of_ptx_has_a_row_of_its_own():
    alone = an_access(32, 3, level="sass", opcode="LDG.E", source=None)
    text = render_ptx_text(of(a_report(accesses=(alone,))), width=100)
    assert re.search(r"\? +32 bit +3 +0 +LDG.E ", text)


def test_beside_a_width_of_ptx_is_the_same_width_of_sass():
    accesses = (
        an_access(128, 2, opcode="ld.global.v4.b32"),
        an_access(32, 8),
        an_access(32, 8, level="sass", opcode="LDG.E"),
        an_access(128, 2, level="sass", opcode="LDG.E.128"),
    )
    text = render_ptx_text(of(a_report(accesses=accesses)), width=120)
    assert re.search(r"v4\.b32 +128 bit +2 +0 +2 × LDG\.E\.128 ", text)
    assert re.search(r"b32 +32 bit +8 +0 +8 × LDG\.E ", text)


def test_sass_of_several_loops_is_added_up():
    """ptxas unrolls a loop into one of eight passes and one for the rest."""
    accesses = (
        an_access(128, 2, loop_depth=1, opcode="ld.global.v4.b32"),
        an_access(128, 8, level="sass", opcode="LDG.E.128", loop_depth=1),
        an_access(128, 6, level="sass", opcode="LDG.E.128"),
    )
    text = render_ptx_text(of(a_report(accesses=accesses)), width=120)
    assert re.search(r"128 bit +2 +1 +14 × LDG\.E\.128 ", text)


def test_spills_of_many_lines_have_a_row_per_kind_and_loop():
    spill = {"level": "sass", "space": "local"}
    accesses = [
        an_access(32, 3, kind="load", opcode="LDL", source=a_line(n), loop_depth=n % 2, **spill)
        for n in range(40)
    ]
    accesses.append(an_access(128, 2, kind="store", opcode="STL.128", source=a_line(7), **spill))
    text = render_ptx_text(of(a_report(accesses=tuple(accesses))), width=120)
    assert re.search(r"20 lines +32 bit +60 +0 +LDL +", text)
    assert re.search(r"20 lines +32 bit +60 +1 +LDL +", text)
    assert re.search(r"gelu.py:7 +128 bit +2 +0 +STL\.128 +", text)
    assert text.count("LDL") == 2


def test_a_command_in_a_note_is_whole():
    note = f'correct them with --signature "{", ".join(["*fp16:16"] * 200)}"'
    text = render_ptx_text(of(a_report(notes=(note,))), width=120)
    assert note in " ".join(text.split())


def test_beside_a_matrix_of_ptx_is_a_matrix_of_sass():
    stores = {"kind": "store", "space": "shared"}
    accesses = (
        an_access(128, 8, opcode="stmatrix.sync.aligned.m8n8.x4.shared.b16", **stores),
        an_access(128, 8, opcode="st.shared.v4.b32", **stores),
        an_access(128, 8, level="sass", opcode="STS.128", **stores),
        an_access(128, 8, level="sass", opcode="STSM.16.M88.4", **stores),
    )
    text = render_ptx_text(of(a_report(accesses=accesses)), width=140)
    assert re.search(r"stmatrix\S+ +128 bit +8 +0 +8 × STSM", text)
    assert re.search(r"st\.shared\.v4\.b32 +128 bit +8 +0 +8 × STS\.128", text)


def variants():
    """Four variants of `axpy` that constexprs do not tell apart, and another kernel."""

    def compiled(type_, divisible, value, **changes):
        arguments = (
            Argument("x[0]", type_, True),
            Argument("x[1]", type_, True),
            Argument("scale", "fp32"),
            Argument("n", "i32", divisible, value),
            Argument("BLOCK", "constexpr", value=512),
        )
        return a_report(compiled=a_compiled(name="axpy", arguments=arguments, **changes))

    return (
        compiled("*fp32", True, 4096),
        compiled("*fp16", False, 4100),
        compiled("*fp16", False, 4097),
        compiled("*fp16", False, None),
        a_report(),
    )


def test_variants_of_a_kernel_are_told_apart_by_their_arguments():
    text = render_ptx_text(of(*variants()), width=140)
    lines = [line for line in text.splitlines() if line.startswith("as ")]
    assert lines[:4] == [
        "as given · 4 warps · BLOCK=512 · x[0], x[1] (*fp32:16) · n=4096 (i32:16)",
        "as given · 4 warps · BLOCK=512 · x[0], x[1] (*fp16:16) · n=4100 (i32)",
        "as given · 4 warps · BLOCK=512 · x[0], x[1] (*fp16:16) · n=4097 (i32)",
        "as given · 4 warps · BLOCK=512 · x[0], x[1] (*fp16:16) · n (i32)",
    ]
    alone = render_ptx_text(of(variants()[1]), width=140)
    assert "as given · 4 warps · BLOCK=512\n" in alone
    assert lines[1] in render_views(of(*variants()), ["ptx"], width=140)


def test_variants_that_differ_in_a_value_alone_show_no_types():
    text = render_ptx_text(of(*variants()[1:3]), width=140)
    assert "BLOCK=512 · n=4100\n" in text
    assert "BLOCK=512 · n=4097\n" in text
    # What was compiled and not launched has no value to show.
    assert "BLOCK=512\n" in render_ptx_text(of(*variants()[2:4]), width=140)


def test_a_product_in_several_loops_is_named_once():
    ops = tuple(TensorOp("tcgen05.mma", None, ("kind::f16",), depth, 2) for depth in (0, 1))
    text = render_ptx_text(of(a_report(tensor_ops=ops)), width=120)
    assert "tensor cores: 4 × tcgen05.mma kind::f16\n" in text


def test_files_of_one_name_are_told_apart():
    files = ["/a/x/gelu.py", "/a/y/gelu.py", "/b/norm.py"]
    report = a_report(accesses=tuple(an_access(source=a_line(1, file)) for file in files))
    names = SourceNames.of([report])
    assert [names.of_line(a_line(1, file)) for file in files] == [
        "x/gelu.py:1",
        "y/gelu.py:1",
        "norm.py:1",
    ]


def test_a_long_file_name_loses_its_middle_and_keeps_its_line():
    """Inductor names files by a hash, and each line of figures names several."""
    files = [f"/tmp/torchinductor_u/k5/c{'k5o53xdp' * 6}{end}.py" for end in ("a", "b")]
    report = a_report(accesses=tuple(an_access(source=a_line(34, file)) for file in files))
    first, second = (SourceNames.of([report]).of_line(a_line(34, file)) for file in files)
    assert first.startswith("ck5o53xdpk5o53xdp")
    assert first.endswith("a.py:34")
    assert len(first) <= 41 + len(":34")
    assert first != second


def test_the_source_has_the_widths_in_its_margin(tmp_path):
    file = tmp_path / "gelu.py"
    file.write_text("\n".join(f"line {n}" for n in range(1, 60)))
    load = an_access(128, 2, source=a_line(31, str(file)))
    loaded = an_access(64, 2, level="sass", source=a_line(31, str(file)))
    text = render_views(of(a_report(accesses=(load, loaded))), ["source"], width=100)
    assert "ld 2 × 128 bits → 2 × 64 bits  31  line 31" in text
    assert "28  line 28" in text
    assert "line 27" not in text


def test_a_source_that_is_gone_or_changed_is_said(tmp_path):
    file = tmp_path / "gelu.py"
    report = of(a_report(accesses=(an_access(source=a_line(31, str(file))),)))
    assert "cannot be read" in render_views(report, ["source"], width=200)
    file.write_text("short\n")
    assert "has only 1 line: it changed" in render_views(report, ["source"], width=200)


def test_listings_are_annotated():
    text = (
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 x)\n{\n"
        ".loc 1 31 0\nld.global.b32 %r1, [%rd1];\nadd.s32 %r1, %r1, 1;\nret;\n}\n"
        '.file 1 "/home/user/gelu.py"\n'
    )
    report = of(a_report(ptx=parse_ptx(text).kernels()[0]))
    shown = render_views(report, ["ptx", "sass"], width=100)
    assert "gelu.py:31 global 32 bits  ld.global.b32 %r1, [%rd1]" in shown
    assert "No SASS available." in shown


def test_json_has_what_the_contract_promises():
    document = json.loads(render_json(of(), "1.0"))
    assert (document["schema_version"], document["target"]) == (1, "gelu.py")
    assert document["arch"] == "sm_90"
    (kernel,) = document["kernels"]
    promised = "name registers spill_bytes shared_memory_bytes num_warps accesses findings"
    promised += " elements_per_thread instruction_mix occupancy"
    assert set(promised.split()) <= set(kernel)
    assert kernel["accesses"][0].items() >= {
        ("level", "ptx"),
        ("kind", "load"),
        ("space", "global"),
        ("opcode", "ld.global.v4.b32"),
        ("width_bits", 128),
        ("predicated", False),
        ("count", 2),
        ("loop_depth", 0),
        ("source", "gelu.py:31"),
    }
    assert kernel["occupancy"].keys() >= {
        "blocks_per_sm",
        "limiter",
        "theoretical_occupancy_pct",
    }
    assert kernel["findings"][0]["severity"] == "low"


def test_json_of_what_is_not_known_is_null():
    unknown = a_report(registers=None, occupancy=None, dynamic_shared_bytes=None)
    (kernel,) = json.loads(render_json(of(replace(unknown, static_shared_bytes=None)), "1"))[
        "kernels"
    ]
    assert [kernel[k] for k in ("registers", "occupancy", "shared_memory_bytes")] == [None] * 3


@pytest.mark.parametrize("name", [HOSTILE, CONTROLS])
def test_json_of_hostile_names_can_be_read(name):
    (kernel,) = json.loads(render_json(of(hostile(name)), "1"))["kernels"]
    assert kernel["name"].encode()
