"""Instructions by class: against nvdisasm's listing counted as text, and idioms by hand."""

import re
from collections import Counter

import pytest

from tests.inspect.rules.written_ptx import need
from tests.places import PTX_FILES
from traceview.kernels.ptx.instruction_mix import CLASSES, class_of, instruction_mix
from traceview.kernels.ptx.model import Instruction
from traceview.kernels.ptx.parser import parse_ptx
from traceview.kernels.toolchain.listings import assemble, disassemble, text_of

REAL = ["matmul-3.7.1-sm80", "softmax-3.7.1-sm90", "nvcc-13.0-sm90"]
MATMUL = "*fp16:16, *fp16:16, *fp16:16, " + "i32:16, " * 9 + "64, 64, 32"
# What each class has in common as text, written without the tables of the code.
PATTERNS = {
    "global load": r"LDG\b",
    "global store": r"STG\b",
    "shared load": r"LDSM?\b(?! RZ, \[RZ)",
    "shared store": r"STSM?\b",
    "async copy": r"(LDGSTS|UTMALDG|UTMASTG)\b",
    "MMA": r"(HMMA|HGMMA|UTCHMMA)\b",
    "fp32": r"(FADD|FMUL|FFMA|FMNMX|FSEL|FSETP)",
    "conversion": r"(I2F|F2F|F2I|I2I)",
    "special function": r"MUFU",
    "shuffle": r"(SHFL|VOTE|REDUX|CREDUX|ELECT)",
    "barrier": r"(U?BAR|DEPBAR|LDGDEPBAR|SYNCS|WARPGROUP|WARPSYNC|MEMBAR|FENCE|ERRBAR|UTCBAR|"
    r"NANOSLEEP|CCTL|UTMACMDFLUSH|UTCATOMSWS|CGAERRBAR|UTMACCTL|UTMACMD)",
}


def listed(cubin, name=None):
    """The parsed function, nvdisasm's text of it, and its lines of code with their addresses."""
    function = next(f for f in disassemble(cubin).kernels() if name in (None, f.name))
    text = text_of(cubin).partition(f"\n{function.name}:\n")[2]
    # Until the next kernel, or the functions behind this one that it calls.
    text = re.split(r"\n(?:\t\.section|\$.*:\n)", text)[0]
    lines = re.findall(r"/\*([0-9a-f]{4,})\*/\s+(.*?) ;", text)
    while lines[-1][1] == "NOP":
        lines.pop()
    at, last = lines[-1]
    if labels(text).get(last.removeprefix("BRA `(.").removesuffix(")")) == int(at, 16):
        lines.pop()
    return function, text, lines


def labels(text):
    """The address that each label stands before."""
    found = re.findall(r"\.(L_x_\d+):\n(?:\s*//##.*\n)*\s*/\*([0-9a-f]+)\*/", text)
    return {label: int(at, 16) for label, at in found}


def assembled(name):
    need("ptxas", "nvdisasm")
    text = (PTX_FILES / f"{name}.ptx").read_text()
    return assemble(text, re.search(r"\.target (sm_\w+)", text)[1]).cubin


def compiled(compile_triton, arch):
    need("nvdisasm")
    pytest.importorskip("torch", reason="the kernel's file imports it")
    from tests.ptx.kernels.matmul import matmul_kernel

    return compile_triton(matmul_kernel.fn, MATMUL, arch, ("",), num_stages=3).cubin


def agree(function, lines):
    mix = instruction_mix(function)
    code = [re.sub(r"^@!?U?P[T\d]+ +", "", line) for _, line in lines]
    assert mix.counts.total == len(code) > 20
    for class_, pattern in PATTERNS.items():
        expected = sum(bool(re.match(pattern, line)) for line in code)
        assert mix.counts.by_class.get(class_, 0) == expected, class_
    assert sum(line.counts.total for line in mix.lines) == len(code)


@pytest.mark.parametrize("name", REAL)
def test_classes_are_those_of_the_listing_counted_as_text(name):
    cubin = assembled(name)
    for kernel in disassemble(cubin).kernels():
        function, _, lines = listed(cubin, kernel.name)
        agree(function, lines)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_a_loop_holds_what_stands_between_its_label_and_the_jump_back(compile_triton, arch):
    function, text, lines = listed(compiled(compile_triton, arch))
    agree(function, lines)
    loop = instruction_mix(function).hottest_loop
    places = labels(text)
    jumps = [
        (places[label], int(at, 16))
        for at, line in lines
        for label in re.findall(r"\bBRA .*?`\(\.(L_x_\d+)\)", line)
        if label in places
    ]
    products = [int(at, 16) for at, line in lines if re.search(r"H(G|)MMA\b", line)]
    around = [(a, b) for a, b in jumps if any(a <= at <= b for at in products)]
    begin, end = min(around, key=lambda each: each[1] - each[0])
    inside = [line for at, line in lines if begin <= int(at, 16) <= end]
    # On sm_100 it also leaves that range, to wait for a barrier elsewhere, and returns.
    detours = [at for at in loop.instructions if not begin <= 16 * at <= end]
    assert loop.counts.total - len(detours) == len(inside)
    assert len(detours) == 0 or arch == "sm_100"
    assert loop.counts.by_class["MMA"] == sum(begin <= at <= end for at in products)


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        ("IMAD.MOV.U32 R2, RZ, RZ, R3", "move"),
        ("IMAD.U32 R2, RZ, RZ, UR4", "move"),
        ("IMAD.SHL.U32 R2, R3, 0x4, RZ", "integer"),
        ("HADD2.F32 R9, -RZ, R4.H0_H0", "conversion"),
        ("HFMA2.MMA R3, -RZ, RZ, 0, 5.9e-08", "move"),
        ("HFMA2.BF16_V2 R5, R4, R3, R2", "fp16"),
        ("UIADD3 UR4, UR4, 0x1, URZ", "integer"),
        ("UMOV UR5, 0x400", "move"),
        ("QMMA.16832.F32.E4M3.E4M3 R4, R8, R6, R4", "MMA"),
        ("LDL.64 R2, [R1]", "local load"),
        ("SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R2", "barrier"),
        ("NOTHINGKNOWN R1", "other"),
    ],
)
def test_a_sass_instruction_counts_as_what_it_does(instruction, expected):
    opcode, _, operands = instruction.partition(" ")
    assert class_of(Instruction(opcode, operands, None, 1), "sass") == expected
    assert class_of(Instruction(opcode, operands, "!PT", 1), "sass") == "other"


@pytest.mark.parametrize(
    ("opcode", "expected"),
    [
        ("ld.global.v4.b32", "global load"),
        ("st.shared.b16", "shared store"),
        ("ld.local.b32", "local load"),
        ("ldmatrix.sync.aligned.m8n8.x4.shared.b16", "shared load"),
        ("ld.param.u64", "move"),
        ("cp.async.cg.shared.global", "async copy"),
        ("cp.async.wait_group", "barrier"),
        ("cp.async.bulk.wait_group.read", "barrier"),
        ("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16", "MMA"),
        ("wgmma.wait_group.sync.aligned", "barrier"),
        ("tcgen05.ld.sync.aligned.32x32b.x64.b32", "tensor memory"),
        ("fma.rn.bf16x2", "fp16"),
        ("fma.rn.f64", "fp64"),
        ("setp.lt.f32", "fp32"),
        ("cvta.to.global.u64", "integer"),
        ("cvt.rn.f16.f32", "conversion"),
        ("ex2.approx.f32", "special function"),
        ("shfl.sync.bfly.b32", "shuffle"),
        ("red.global.gpu.relaxed.add.u32", "atomic"),
        ("bra.uni", "control"),
    ],
)
def test_a_ptx_instruction_counts_as_what_it_does(opcode, expected):
    assert class_of(Instruction(opcode, "", None, 1), "ptx") == expected


def test_every_class_is_listed():
    counted = Counter()
    for path in PTX_FILES.glob("*.ptx"):
        for function in parse_ptx(path.read_text()).kernels():
            counted.update(instruction_mix(function).counts.by_class)
    assert set(counted) <= set(CLASSES)
    assert counted["other"] < counted.total() / 50


LOOPS = """.version 8.7
.target sm_90
.visible .entry k(.param .u64 p) {
.loc 1 5 1
OUTER: add.f32 %f1, %f1, %f2;
.loc 1 6 1
INNER: fma.rn.f32 %f1, %f2, %f3, %f1;
fma.rn.f32 %f1, %f2, %f3, %f1;
@%p1 bra INNER;
WAIT: mbarrier.try_wait.parity.shared.b64 %p3, [%r1], %r2;
@!%p3 bra WAIT;
.loc 1 5 1
@%p2 bra OUTER;
ret;
}
.file 1 "k.py"
"""


def test_an_inner_loop_is_the_hottest_and_one_that_polls_is_none():
    (function,) = parse_ptx(LOOPS).kernels()
    mix = instruction_mix(function)
    outer, inner = mix.loops
    assert (outer.source.line, outer.depth, outer.counts.total) == (5, 1, 7)
    assert (inner.source.line, inner.depth) == (6, 2)
    assert inner.counts.by_class == {"fp32": 2, "control": 1}
    assert mix.hottest_loop is inner
    assert [line.in_hottest_loop for line in mix.lines] == [0, 3]


@pytest.mark.parametrize(("added", "lines"), [("", [5, 6]), ("bar.sync 0;\n", [5])])
def test_a_loop_of_integers_works_unless_it_waits_for_a_barrier(added, lines):
    hashing = "xor.b32 %r1, %r1, 7;\nmul.lo.u32 %r1, %r1, 5;\n" + added
    text = LOOPS.replace(LOOPS[LOOPS.index("INNER:") + 6 : LOOPS.index("@%p1")], "\n" + hashing)
    (function,) = parse_ptx(text).kernels()
    assert [loop.source.line for loop in instruction_mix(function).loops] == lines


def test_a_lock_is_no_hot_loop():
    """Triton hands the result of the atomic to all threads through shared memory."""
    lock = """LOCK: atom.global.cas.b32 %r1, [%rd1], 0, 1;
st.shared.b32 [%r2], %r1;
bar.sync 0;
ld.shared.b32 %r3, [%r2];
@%p1 bra LOCK;
"""
    text = LOOPS.replace("WAIT: mbarrier.try_wait.parity.shared.b64 %p3, [%r1], %r2;\n", lock)
    (function,) = parse_ptx(text.replace("@!%p3 bra WAIT;\n", "")).kernels()
    assert [loop.source.line for loop in instruction_mix(function).loops] == [5, 6]
