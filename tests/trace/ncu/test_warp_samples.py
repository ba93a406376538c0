"""Warp samples of Nsight Compute and Proton: the same counts from each kind of file."""

import random
from collections import Counter

import pytest

from tests.fuzz.mutants import bytes_changed
from tests.places import DATA
from tests.ptx.sass.machine_codes import assembled
from tests.trace.ncu.sampled_files import (
    blocks,
    ncu_report,
    page_with_source,
    proton_profile,
    source_page,
)
from tests.trace.ncu.test_report_file import REPORT, report
from traceview.base.errors import InputError
from traceview.kernels.ptx.model import SourceLine
from traceview.traces.trace.warp_samples import read_samples

SYMBOL = "_Z4gelui"
STALLS = {0: {"wait": 2}, 2: {"long_scoreboard": 40, "selected": 1}}
SASS = ["MOV R1, c[0x0][0x28]", "@!P0  LDG.E.128 R4, desc[UR4][R2.64]", "FADD R4, R4, 1"]
OPCODES = ((None, "MOV"), ("!P0", "LDG.E.128"), (None, "FADD"))
FIRST_ROWS = """"Kernel Name","void scale<(bool)1, (int)32>(float *, float *, long *)",
"Address","Source","Warp Stall Sampling (All Cycles)","Warp Stall Sampling (Not-issued Cycles)",\
"Instructions Executed","# Samples","Access Size","stall_barrier","stall_imc","stall_no_inst",\
"stall_imc (Not Issued)","stall_no_inst (Not Issued)","stall_sleeping (Not Issued)"
"0x7fc48541d900","      IMAD.MOV.U32 R1, RZ, RZ, c[0x0][0x28] ","42","42","3632","42","-","0",\
"32","10","32","10","0"
"""


def read(tmp_path, content, name="samples"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_samples(path)


def test_a_report_has_the_samples_of_all_launches_by_instruction(tmp_path):
    cubin, function, code = assembled("gelu-3.7.1-sm90")
    by_offset = {0: {"wait": 2}, 48: {"long_scoreboard": 200, "drain": 0}, 1 << 20: {"wait": 3}}
    (samples,) = read(tmp_path, ncu_report(function.name, cubin, [by_offset, {48: {"wait": 5}}]))
    assert samples.is_named(function.name)
    assert samples.machine_code == code
    assert samples.by_index == {
        0: Counter(wait=2),
        3: Counter(long_scoreboard=200, wait=5),
        None: Counter(wait=3),
    }


def test_code_is_that_of_the_process_and_the_last_loaded_before_the_launch(tmp_path):
    """All at the same addresses, with the launches of one of two processes after both codes."""
    cubin, function, code = assembled("gelu-3.7.1-sm90")
    other, last = (cubin.replace(code, code[:16] + bytes([n]) + code[17:]) for n in (254, 255))
    ours = [blocks(function.name, cubin, [{0: {"wait": 1}}], 7)]
    ours += [blocks(function.name, last, [{0: {"wait": 4}}], 7)]
    theirs = blocks(function.name, other, [{0: {"wait": 2}}], 8)
    content = report(ours[0][0], theirs[0], ours[0][1], theirs[1], *ours[1])
    found = {each.machine_code[16]: dict(each.by_index) for each in read(tmp_path, content)}
    assert found == {code[16]: {0: {"wait": 1}}, 254: {0: {"wait": 2}}, 255: {0: {"wait": 4}}}


def test_samples_of_reasons_without_a_column_are_others(tmp_path):
    """Such as warpgroup_arrive, as of Nsight Compute 2025.3."""
    page = source_page(SYMBOL, SASS, {0: {"wait": 5}, 1: {"barrier": 3}})
    page = page.replace("# Samples", "Warp Stall Sampling (All Samples)").replace('"5"', '"7"', 1)
    (samples,) = read(tmp_path, page)
    assert samples.by_index == {0: Counter(wait=5, other=2), 1: Counter(barrier=3)}


@pytest.mark.parametrize("page", [source_page, page_with_source])
def test_a_source_page_has_those_of_each_code_once(tmp_path, page):
    other = page(SYMBOL, SASS[:1], {0: {"barrier": 7}})
    text = "==PROF== Disconnected\n" + page(SYMBOL, SASS, STALLS) * 2 + other
    samples, different = read(tmp_path, text)
    assert samples.symbol == different.symbol == SYMBOL
    assert samples.opcodes == OPCODES
    assert samples.by_index == {
        0: Counter(wait=4),
        2: Counter(long_scoreboard=80, selected=2),
    }
    assert different.by_index == {0: Counter(barrier=7)}


@pytest.mark.parametrize("count", ["1.234.567", "1,234,567", "1 234 567", "1’234’567"])
def test_counts_of_a_source_page_in_any_locale(tmp_path, count):
    page = source_page(SYMBOL, SASS, {0: {"wait": 1_234_567}, 1: {"wait": 1234}})
    for plain, printed in (("1234567", count), ("1234", count[:-4])):
        page = page.replace(f'"{plain}"', f'"{printed}"')
    (samples,) = read(tmp_path, page)
    assert samples.by_index == {0: Counter(wait=1_234_567), 1: Counter(wait=1234)}


def test_a_source_page_of_another_version_with_a_cpp_name(tmp_path):
    (samples,) = read(tmp_path, FIRST_ROWS)
    assert samples.is_named("_Z5scaleILb1ELi32EEvPfS0_Pl")
    assert not samples.is_named("_Z5otherILb1ELi32EEvPfS0_Pl")
    assert samples.by_index == {0: Counter(imc_miss=32, no_instructions=10)}


def test_a_profile_of_proton_has_those_of_lines(tmp_path):
    lines = {("/src/gelu.py", 19): {"long_scoreboard": 9}, ("/src/gelu.py", 21): {"imc_miss": 4}}
    (samples,) = read(tmp_path, proton_profile("gelu", lines))
    assert samples.is_named("gelu")
    assert samples.by_line == {SourceLine(*line): Counter(stalls) for line, stalls in lines.items()}


def test_a_recorded_profile_of_proton_is_read_by_line():
    """Of two kernels in kernels/, recorded on one H200 with Triton 3.6.0."""
    by_name = {each.symbol: each for each in read_samples(DATA / "proton-3.6.0.hatchet")}
    gelu, softmax = by_name.pop("gelu_kernel"), by_name.pop("softmax_kernel")
    assert not by_name
    stalls = gelu.by_line[SourceLine("/src/kernels/gelu.py", 107)]
    assert stalls.most_common(1)[0][0] == "long_scoreboard"
    assert {line.file for line in softmax.by_line} == {
        "/src/kernels/softmax.py",
        "/lib/triton/language/standard.py",
    }


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (REPORT, "no warp samples per instruction"),
        (REPORT[:5000], "damaged"),
        ("", "no warp samples"),
        ('{"a": [1', "can be read"),
        ("[" * 100_000, "can be read"),
        ('[{"frame": 1, "metrics": {"stalled_wait": 3}}, 7, {"children": 3}]', "no warp samples"),
        ('"Address","Source","stall_wait"\n"0x10","MOV R1, 1","-"\n', "no warp samples"),
        (source_page(SYMBOL, SASS, {}), "no warp samples"),
        (source_page(SYMBOL, SASS, {0: {"wait": 0.5}}), "no warp samples"),
        (proton_profile("gelu", {("gelu.py", 1): {"wait": 0.5}}), "no warp samples"),
        ((DATA / "README.md").read_text(), "no warp samples"),
    ],
)
def test_what_has_no_samples(tmp_path, content, said):
    with pytest.raises(InputError, match=said) as raised:
        read(tmp_path, content)
    assert raised.value.remedy


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        read_samples(tmp_path / "none.csv")


def test_damaged_files_are_refused_or_read(tmp_path):
    chance, outcomes = random.Random(3), set()
    cubin, function, _ = assembled("gelu-3.7.1-sm90")
    whole = [
        ncu_report(function.name, cubin, [{48: {"wait": 5}}]),
        page_with_source(SYMBOL, SASS, STALLS).encode(),
        proton_profile("gelu", {("/src/gelu.py", 19): {"wait": 9}}).encode(),
    ]
    for content in whole * 60:
        damaged = bytes_changed(content, chance, range(4, len(content)))
        try:
            read(tmp_path, damaged)
            outcomes.add("read")
        except InputError:
            outcomes.add("refused")
    assert outcomes == {"read", "refused"}
