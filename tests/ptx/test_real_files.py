"""What compilers wrote: read in full, against other parsers, and damaged at random."""

import importlib.util
import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.inspect.rules.written_ptx import need, need_compiler
from tests.oracles.other_ptx_readers import need_pyptx, opcodes_line_by_line, opcodes_of_pyptx
from tests.places import PTX_FILES
from traceview.base.errors import PtxSyntaxError
from traceview.kernels.ptx.accesses import accesses, instruction_mix, tensor_ops
from traceview.kernels.ptx.parser import parse_ptx
from traceview.kernels.toolchain.cuda_cpp import compile_cuda

FILES = sorted(PTX_FILES.glob("*.ptx"))
TEXTS = {path.stem: path.read_text() for path in FILES}
SOURCE = "/home/user/kernels/kernels.py"
each_text = pytest.mark.parametrize("name", TEXTS)


def function(name):
    (kernel,) = parse_ptx(TEXTS[name], name).functions
    return kernel


def line_of(text):
    lines = (PTX_FILES / "kernels.py").read_text().splitlines()
    (number,) = [number for number, line in enumerate(lines, 1) if text in line]
    return number


def opcodes(text):
    return Counter(i.opcode for f in parse_ptx(text).functions for i in f.instructions)


@each_text
def test_opcodes_are_those_that_a_line_by_line_reading_finds(name):
    ours, theirs = opcodes(TEXTS[name]), opcodes_line_by_line(TEXTS[name])
    # Operands on lines of their own look like opcodes to so simple a reading.
    assert ours == Counter({op: count for op, count in theirs.items() if op in ours})


@each_text
def test_opcodes_are_those_that_pyptx_finds(name):
    need_pyptx()
    assert opcodes(TEXTS[name]) == opcodes_of_pyptx(TEXTS[name])


@pytest.mark.parametrize("version", ["3.6.0", "3.7.1", "3.9.0"])
def test_every_version_of_triton_leads_to_the_same_lines(version):
    gelu = function(f"gelu-{version}-sm90")
    lines = {access.kind: access.source for access in accesses(gelu)}
    assert lines["load"].file == lines["store"].file == SOURCE
    assert lines["load"].line == line_of("values = tl.load(x + offsets, mask=mask")
    assert lines["store"].line == line_of("tl.store(y + offsets, gelu_of")
    roots = [i for i in gelu.instructions if i.opcode == "ex2.approx.ftz.f32"]
    assert {i.source.line for i in roots} == {line_of("tl.store(y + offsets, gelu_of")}
    assert {tuple(line.line for line in i.inlined) for i in roots} == {(line_of("return 0.5 * x"),)}


@pytest.mark.parametrize("version", ["3.7.1", "3.9.0"])
def test_helpers_of_the_library_lead_to_the_user_s_call(version):
    shuffles = [
        i for i in function(f"softmax-{version}-sm90").instructions if i.opcode.startswith("shfl")
    ]
    assert {i.source.file for i in shuffles} == {SOURCE}
    assert {i.source.line for i in shuffles} == {line_of("tl.exp("), line_of("tl.sum(")}
    assert {i.inlined[0].file for i in shuffles} == {"/usr/lib/python3/triton/language/standard.py"}


@pytest.mark.parametrize("name", [name for name in TEXTS if "nv" not in name])
def test_no_line_lies_outside_of_its_kernel(name):
    text = (PTX_FILES / "kernels.py").read_text()
    begin = line_of(f"def {name.partition('-')[0]}(")
    rest = text.splitlines()[begin:]
    length = next(n for n, line in enumerate(rest) if line and not line.startswith(" "))
    lines = {i.source.line for i in function(name).instructions if i.source}
    assert begin - 1 <= min(lines)
    assert max(lines) <= begin + length


def test_what_nvcc_writes():
    listing = parse_ptx(TEXTS["nvcc-13.0-sm90"])
    table, copy4, waits = listing.kernels()
    assert [f.name for f in listing.functions if not f.is_entry] == ["_Z6powersfi"]
    assert table.directives == {"maxntid": (256, 1, 1), "minnctapersm": (2,)}
    assert (table.static_shared_bytes, copy4.static_shared_bytes) == (256 * 4 + 3 * 8, 0)
    assert max(i.loop_depth for i in table.instructions) == 2
    assert [i.loop_depth for i in waits.instructions if i.opcode.startswith("mbarrier")] == [1, 1]


@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
def test_what_the_nvcc_of_this_machine_writes(arch):
    need_compiler()
    need("ptxas")
    need_pyptx()
    text, _ = compile_cuda(PTX_FILES / "kernels.cu", arch)
    assert opcodes(text) == opcodes_of_pyptx(text)
    assert [f.name for f in parse_ptx(text).kernels()] == ["table", "copy4", "waits"]


def test_what_nvcc_writes_for_blackwell():
    wide, _, pictures = parse_ptx(TEXTS["nvcc-13.0-sm100"]).kernels()
    assert [(a.opcode, a.width_bits) for a in accesses(wide)] == [
        ("ld.global.nc.v4.f64", 256),
        ("st.global.v4.f64", 256),
    ]
    texels = next(a for a in accesses(pictures) if a.space == "texture")
    assert (texels.source.file, texels.source.line) == ("/home/user/kernels/wide.cu", 21)


NVCC = TEXTS["nvcc-13.0-sm90"]
TRITON = TEXTS["tma_copy-3.9.0-sm90"]


def problem_with(text):
    try:
        listing = parse_ptx(text)
    except PtxSyntaxError as error:
        return error
    for each in listing.functions:
        assert sum(instruction_mix(each).values()) == len(each.instructions)
        accesses(each)
        tensor_ops(each)
    return None


def check(text):
    """Either a listing that everything can be asked of, or the one error, on one line."""
    problem = problem_with(text)
    if problem:
        assert str(problem).isprintable()
        assert 1 <= problem.line <= text.count("\n") + 1
        assert problem.column >= 1


PIECES = st.sampled_from(
    [*';{}"/@.,:[]()%$!\0\n', "/*", "*/", "//", ".loc ", ".shared .b8 x[", "9" * 5000]
)


@given(st.sampled_from([NVCC, TRITON]), st.data())
def test_damage_gives_a_listing_or_a_syntax_error(text, data):
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        gone = data.draw(st.integers(0, 80))
        text = text[:at] + data.draw(PIECES | st.text(max_size=5)) + text[at + gone :]
    check(text)


@given(st.sampled_from([NVCC, TRITON]), st.integers(0, 16_000))
def test_a_text_cut_within_a_function_is_an_error(text, at):
    body = text[text.index(".visible .entry") : text.index("\n}\n")]
    cut = text[: text.index(".visible .entry") + 1 + at % (len(body) - 1)]
    with pytest.raises(PtxSyntaxError):
        parse_ptx(cut)


@given(st.text(max_size=200))
def test_any_text_gives_a_listing_or_a_syntax_error(text):
    check(text)
    check(".version 8.7\n.target sm_90\n" + text)


@pytest.mark.slow
def test_thousands_of_modules_of_another_compiler_parse():
    """Those read hold each form of line: the rest differ in names, numbers and order only."""
    found = importlib.util.find_spec("mojolearn")
    if not found:
        pytest.skip("no modules of another compiler here: make modules")
    folder = Path(found.submodule_search_locations[0], "cuda_ptx")
    begin = rb"//\n// Generated by LLVM NVPTX Back-End[^\0]*\0"
    modules = [
        text for path in folder.rglob("*.so") for text in re.findall(begin, path.read_bytes())
    ]
    assert len(modules) > 4000
    chosen = with_every_form(modules)
    assert len(chosen) > 300
    for text in chosen:
        (kernel,) = parse_ptx(text.decode()).kernels()
        assert kernel.instructions[-1].opcode in {"ret", "trap", "exit", "bra.uni"}


def with_every_form(modules):
    """The shortest modules that hold each form of line: a line without its names and numbers."""
    name = re.compile(rb"(?<![.%])\b[A-Za-z]\w*_[\w$]*|\b[fd][A-F]*\b")
    lines, forms, chosen = set(), set(), []
    for text in sorted(set(modules), key=lambda text: (len(text), text)):
        new_lines = set(text.translate(None, b"0123456789").splitlines()) - lines
        new_forms = {name.sub(b"", line) for line in new_lines} - forms
        lines |= new_lines
        forms |= new_forms
        if new_forms:
            chosen.append(text)
    return chosen
