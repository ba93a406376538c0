"""Versions of kernels side by side in a terminal and as JSON."""

import json
import re

import pytest
from rich.cells import cell_len

from tests.ptx.compiled_kernels import a_compiled, a_finding, a_line, a_report, an_access
from tests.render.example_report import CONTROLS, HOSTILE
from traceview.base.hardware import limits_of, occupancy
from traceview.kernels.inspect.comparison import ComparedVersion, compare
from traceview.kernels.inspect.target_report import PtxReport
from traceview.kernels.ptx.model import Argument
from traceview.render.json import render_json
from traceview.render.kernels.diff import render_diff_text

UNPRINTABLE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]")
PAD = a_finding("high", "16 loads are narrow", "Pad n to a multiple of 16", "recompiled", a_line())
SPILLS = a_finding("medium", "64 bytes are spilled", "Use a smaller tile", "read", None)


def narrow(**changes):
    both = [an_access(32, 4), an_access(32, 4, level="sass", opcode="LDG.E")]
    store = an_access(32, 2, kind="store", source=a_line(33))
    fields = {"accesses": (*both, store), "findings": (PAD,), "registers": 40}
    return a_report(**(fields | changes))


def wide(**changes):
    both = [an_access(128, 1), an_access(128, 1, level="sass", opcode="LDG.E.128")]
    store = an_access(32, 2, kind="store", source=a_line(33))
    fields = {
        "accesses": (*both, store),
        "findings": (SPILLS,),
        "occupancy": occupancy(limits_of("sm_90"), 128, 128),
        "spill_bytes": 64,
    }
    return a_report(**(fields | changes))


def diff(*kernels, labels="48", option="--num-warps"):
    each = [
        ComparedVersion(label, PtxReport("gelu.py", (kernel,)))
        for label, kernel in zip(labels, kernels, strict=True)
    ]
    return compare(each, option)


def shown(*kernels, width=100, **options):
    return render_diff_text(diff(*kernels, **options), width=width)


def test_what_differs_stands_in_columns_with_the_change():
    text = shown(narrow(), wide())
    assert text.startswith("gelu_kernel  --num-warps 4 → 8\n---")
    for row in (
        r"num-warps +4 +8 +change",
        r"registers +40 +32 +-8 \(-20 %\)",
        r"spills +0 B +64 B +\+64 B",
        r"occupancy +100.0 % +25.0 % +-75.0 points",
        r"occupancy limited by +warps and registers +registers",
        r"gelu.py:31 global load \(PTX = SASS\) +4 × 32 bits +1 × 128 bits +wider",
    ):
        assert re.search(row, text), row


def test_a_line_that_moved_within_its_file_has_both_numbers():
    moved = wide(accesses=(an_access(128, 1, source=a_line(33)),))
    text = shown(wide(accesses=(an_access(32, 4),)), moved)
    assert re.search(r"gelu.py:31 → 33 global load \(PTX\) +4 × 32 bits +1 × 128 bits", text)


def test_what_is_equal_is_said_once():
    text = shown(narrow(), wide(), width=400)
    assert text.count("elements per thread 8") == 1
    assert text.count("gelu.py:33 global store 2 × 32 bits (PTX)") == 1
    assert text.count("load instructions 2") == 1


def test_findings_appear_and_vanish():
    text = shown(narrow(), wide())
    assert re.search(r"high +vanishes +16 loads are narrow\n +→ Pad n", text)
    assert re.search(r"medium +appears +64 bytes are spilled", text)
    same = shown(
        narrow(), narrow(findings=(a_finding("high", "8 loads", PAD.action, "", a_line()),))
    )
    assert re.search(r"high +in both +4: 16 loads are narrow\n +8: 8 loads\n", same)


def test_of_three_versions_there_is_no_change_but_who_has_what():
    text = shown(narrow(), wide(), wide(), labels="248")
    assert "change" not in text
    assert re.search(r"registers +40 +32 +32", text)
    assert re.search(r"medium +in 4, 8 +64 bytes", text)


def test_equal_versions_differ_in_nothing():
    assert "Nothing differs." in shown(wide(), wide())


def test_a_level_that_one_version_has_alone_is_neither_new_nor_gone():
    text = shown(wide(), wide(accesses=(an_access(128, 1),)))
    assert re.search(r"global load \(SASS\) +1 × 128 bits +–\n", text)
    assert re.search(r"gelu.py:33 global store \(PTX\) +2 × 32 bits +none +gone", text)


def test_left_out_kernels_are_named():
    alone = a_report(compiled=a_compiled(name="alone"))
    versions = [
        ComparedVersion("a", PtxReport("a", (wide(), alone))),
        ComparedVersion("b", PtxReport("b", (wide(),))),
    ]
    assert "Left out: alone of a has no counterpart" in render_diff_text(compare(versions))


@pytest.mark.parametrize("width", [40, 80, 160])
@pytest.mark.parametrize("name", ["gelu", HOSTILE, CONTROLS, "漢字" * 40, "x" * 100_000])
def test_no_line_is_wider_than_asked_and_none_reaches_the_terminal(name, width):
    argument = Argument(name, "constexpr", value=name)
    bad = narrow(
        compiled=a_compiled(name=name, arguments=(argument,)),
        accesses=(an_access(opcode=name, source=a_line(31, f"/tmp/{name}.py")),),
        notes=(name,),
        findings=(a_finding("high", name, name, name),),
    )
    for labels in ((name, "8"), (name, "b", "c", "d")):
        text = shown(bad, *[wide()] * (len(labels) - 1), labels=labels, width=width)
        assert max(cell_len(line) for line in text.splitlines()) <= width
        assert not UNPRINTABLE.search(text)


def test_json_has_the_kernels_as_ever_and_what_became_of_them():
    document = json.loads(render_json(diff(narrow(), wide()), "1.0"))
    assert (document["schema_version"], document["target"], document["arch"]) == (
        1,
        "gelu.py",
        "sm_90",
    )
    assert document["versions"] == ["--num-warps 4", "--num-warps 8"]
    assert [kernel["version"] for kernel in document["kernels"]] == document["versions"]
    assert [kernel["registers"] for kernel in document["kernels"]] == [40, 32]
    (entry,) = document["diff"]
    assert entry["kernels"] == [0, 1]
    registers = next(q for q in entry["quantities"] if q["name"] == "registers")
    assert registers == {
        "topic": "resources",
        "name": "registers",
        "differs": True,
        "values": [40, 32],
    }
    load = entry["accesses"][0]
    assert (load["level"], load["kind"], load["differs"]) == ("ptx", "load", True)
    assert [v["widths"] for v in load["values"]] == [
        [{"width_bits": 32, "count": 4}],
        [{"width_bits": 128, "count": 1}],
    ]
    assert [[f and f["severity"] for f in same] for same in entry["findings"]] == [
        ["high", None],
        [None, "medium"],
    ]


def test_json_tells_what_was_left_out():
    alone = a_report(compiled=a_compiled(name="alone"))
    versions = [
        ComparedVersion("a", PtxReport("a", (wide(), alone))),
        ComparedVersion("b", PtxReport("b", (wide(),))),
    ]
    document = json.loads(render_json(compare(versions), "1"))
    assert document["left_out"] == [{"name": "alone", "version": "a", "index": 1}]
    assert document["target"] == "a, b"
