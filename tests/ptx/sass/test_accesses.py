"""SASS: read whole and right (against nvdisasm's JSON), and its memory accesses."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.inspect.rules.written_ptx import ARCHES, COPY, KERNELS, MODULE, kernel, need
from tests.places import PTX_FILES
from traceview.base.errors import TraceFormatError
from traceview.kernels.ptx.accesses import accesses
from traceview.kernels.ptx.disassembly import access_of, parse, with_sources_of
from traceview.kernels.ptx.model import Function, Instruction, Listing, SourceLine
from traceview.kernels.ptx.parser import parse_ptx
from traceview.kernels.toolchain import tools
from traceview.kernels.toolchain.listings import assemble, disassemble

TEXT = """\
	.target	sm_90a

	.elftype	@"ET_EXEC"


//--------------------- .text.outer               --------------------------
	.section	.text.outer,"ax",@progbits
	.align	128
        .global         outer
        .type           outer,@function
        .size           outer,(.L_x_4 - outer)
        .other          outer,@"STO_CUDA_ENTRY STV_DEFAULT"
outer:
.text.outer:
	//## File "a.cu", line 10
	//## File ".nv_debug_ptx_txt", line 20
        /*0000*/                   LDC R1, c[0x0][0x28] ;
	//## File "deep.h", line 3 inlined at "b.h", line 5
	//## File "b.h", line 5 inlined at "a.cu", line 11
	//## File "a.cu", line 11
	//## File ".nv_debug_ptx_txt", line 21
        /*0010*/                   LDG.E.64 R4, desc[UR6][R2.64] ;
	//## File ".nv_debug_ptx_txt", line 22
        /*0020*/              @!P0 BRA `(.L_x_1) ;
.L_x_0:
	//## File "a.cu", line 12
        /*0030*/                   LDS R5, [R4+0x10] ;
.L_x_2:
        /*0040*/              @!PT LDS RZ, [RZ] ;
        /*0050*/                   STS.128 [R4], R8 ;
        /*0060*/                   BRA.U UP0, `(.L_x_2) ;
        /*0070*/               @P1 BRA `(.L_x_0) ;
.L_x_1:
        /*0080*/               @P2 EXIT ;
        /*0090*/                   CALL.REL.NOINC `($outer$inner) ;
        /*00a0*/                   EXIT ;
        .type           $outer$inner,@function
        .size           $outer$inner,(.L_x_4 - $outer$inner)
$outer$inner:
        /*00b0*/                   STG.E desc[UR6][R2.64], R4 ;
        /*00c0*/                   RET.REL.NODEC R2 `(outer) ;
.L_x_3:
        /*00d0*/                   BRA `(.L_x_3);
        /*00e0*/                   NOP;
        /*00f0*/                   NOP;
.L_x_4:


//--------------------- SYMBOLS --------------------------

	.type		.nv.reservedSmem.offset0,@object
"""


@pytest.fixture
def outer() -> Function:
    return parse(TEXT).functions[0]


class TestText:
    def test_functions_and_which_is_a_kernel(self):
        listing = parse(TEXT)
        assert (listing.level, listing.target, listing.version) == ("sass", "sm_90a", None)
        names = [(f.name, f.is_entry, len(f.instructions)) for f in listing.functions]
        assert names == [("outer", True, 11), ("$outer$inner", False, 2)]
        assert [f.name for f in listing.kernels()] == ["outer"]

    def test_an_instruction_whole(self, outer):
        assert outer.instructions[1] == Instruction(
            opcode="LDG.E.64",
            operands="R4, desc[UR6][R2.64]",
            predicate=None,
            line=TEXT[: TEXT.index("LDG.E.64")].count("\n") + 1,
            source=SourceLine("a.cu", 11),
            inlined=(SourceLine("deep.h", 3), SourceLine("b.h", 5)),
            ptx_line=21,
        )

    def test_a_source_line_holds_until_the_next(self, outer):
        places = [(i.source.line, len(i.inlined), i.ptx_line) for i in outer.instructions]
        assert places[:4] == [(10, 0, 20), (11, 2, 21), (11, 2, 22), (12, 0, 22)]

    def test_a_new_function_knows_nothing_yet(self):
        inner = parse(TEXT).functions[1]
        assert {(i.source, i.ptx_line) for i in inner.instructions} == {(None, None)}

    def test_loops_are_counted(self, outer):
        assert [i.loop_depth for i in outer.instructions] == [0, 0, 0, 1, 2, 2, 2, 1, 0, 0, 0]

    def test_a_retry_for_a_uniform_register_is_no_loop(self):
        retried = parse(TEXT.replace("BRA.U UP0,", "BRA.U.ANY")).functions[0]
        assert max(i.loop_depth for i in retried.instructions) == 1

    def test_what_fills_the_last_line_is_no_code(self):
        assert [i.opcode for i in parse(TEXT).functions[1].instructions] == [
            "STG.E",
            "RET.REL.NODEC",
        ]

    @pytest.mark.parametrize(
        ("flags", "target"),
        [
            ("EF_CUDA_64BIT_ADDRESS EF_CUDA_SM80 EF_CUDA_VIRTUAL_SM(EF_CUDA_SM70)", "sm_80"),
            ("EF_CUDA_ACCELERATORS EF_CUDA_SM90 EF_CUDA_VIRTUAL_SM(EF_CUDA_SM90)", "sm_90a"),
        ],
    )
    def test_the_target_in_the_older_form(self, flags, target):
        assert parse(TEXT.replace(".target\tsm_90a", f'.headerflags\t@"{flags}"')).target == target

    @pytest.mark.parametrize("text", ["", "hello\n", "\t.target\tsm_90\n"])
    def test_no_code(self, text):
        with pytest.raises(TraceFormatError, match="no SASS"):
            parse(text)

    def test_the_ptx_knows_better_where_code_comes_from(self):
        place, helper = SourceLine("user.py", 7), SourceLine("lib.py", 1)
        told = Instruction("ld", "", None, 21, place, (helper,))
        ptx = Listing("ptx", "sm_90a", "8.0", (Function("outer", "ptx", True, (told,)),))
        loads = with_sources_of(parse(TEXT), ptx).functions[0].instructions
        assert (loads[1].source, loads[1].inlined) == (place, (helper,))
        assert loads[0].source == SourceLine("a.cu", 10)


WIDTHS = {
    "LDG.E": ("load", "global", 32),
    "LDG.E.64": ("load", "global", 64),
    "LDG.E.128.CONSTANT": ("load", "global", 128),
    "LDG.E.ENL2.256": ("load", "global", 256),
    "LDG.E.LTC256B.U8": ("load", "global", 8),
    "STG.E.EF.U16": ("store", "global", 16),
    "LD.E.S8": ("load", "generic", 8),
    "ST.E.64": ("store", "generic", 64),
    "LDL.128": ("load", "local", 128),
    "STL": ("store", "local", 32),
    "LDS.U.128": ("load", "shared", 128),
    "LDSM.16.M88": ("load", "shared", 32),
    "LDSM.16.MT88.2": ("load", "shared", 64),
    "STSM.16.M88.4": ("store", "shared", 128),
    "LDGSTS.E": ("async-copy", "global", 32),
    "LDGSTS.E.BYPASS.LTC128B.128.ZFILL": ("async-copy", "global", 128),
    "UTMALDG.2D": ("async-copy", "global", None),
    "UBLKCP.S.G": ("async-copy", "global", None),
    "UTMAREDG.2D.ADD": ("reduction", "global", None),
    "ATOMG.E.ADD.STRONG.GPU": ("atomic", "global", 32),
    "ATOMG.E.CAS.64.STRONG.GPU": ("atomic", "global", 64),
    "REDG.E.ADD.F32x4.FTZ.RN.STRONG.GPU": ("reduction", "global", 128),
    "REDG.E.ADD.F16x2.RN.STRONG.GPU": ("reduction", "global", 32),
    "REDG.E.ADD.F64.RN.STRONG.GPU": ("reduction", "global", 64),
    "ATOMS.MAX.S32": ("atomic", "shared", 32),
    "CCTL.E.PF2": ("prefetch", "global", None),
    "TEX.LL": ("load", "texture", None),
    "TLD.LZ": ("load", "texture", None),
    "TLD4.G": ("load", "texture", None),
    "SULD.D.BA.1D.U8.STRONG.SM.TRAP": ("load", "surface", 8),
    "SULD.D.BA.2D.128.STRONG.SM": ("load", "surface", 128),
    "SUST.D.BA.1D.STRONG.SM.TRAP": ("store", "surface", 32),
    "SUST.P.2D.STRONG.SM.TRAP": ("store", "surface", None),
    "SURED.D.BA.1D.ADD.U64.STRONG.SYS.TRAP": ("reduction", "surface", 64),
}


def one(opcode: str, operands: str = "", predicate: str | None = None) -> Instruction:
    return Instruction(opcode, operands, predicate, 1)


class TestAccesses:
    @pytest.mark.parametrize("opcode", WIDTHS)
    def test_width(self, opcode):
        access = access_of(one(opcode))
        assert (access.kind, access.space, access.width_bits) == WIDTHS[opcode]
        assert access.opcode == opcode

    @pytest.mark.parametrize(
        "opcode", ["LDC.64", "ULDC", "MOV", "TXQ", "TMML", "CCTL.IVALL", "SYNCS.EXCH.64", "LEA"]
    )
    def test_what_is_none(self, opcode):
        assert access_of(one(opcode)) is None

    def test_what_never_executes_is_none(self):
        assert access_of(one("LDS", "RZ, [RZ]", "!PT")) is None

    @pytest.mark.parametrize(
        ("instruction", "predicated"),
        [
            (one("LDG.E", "R8, desc[UR4][R14.64]"), False),
            (one("LDG.E", "R8, desc[UR4][R14.64]", "!P1"), True),
            (one("LDGSTS.E.128", "[R53], desc[UR18][R24.64], P0"), True),
            (one("LDGSTS.E.128", "[R53], desc[UR18][R24.64], !P0"), True),
            (one("ATOMG.E.ADD", "PT, RZ, desc[UR6][R12.64], R9"), False),
        ],
    )
    def test_predicated(self, instruction, predicated):
        assert access_of(instruction).predicated is predicated

    @pytest.mark.parametrize(
        ("opcode", "scope"),
        [
            ("ATOMG.E.ADD.STRONG.GPU", "gpu"),
            ("REDG.E.MAX.S32.STRONG.SM", "cta"),
            ("ATOM.E.ADD.STRONG.SYS", "sys"),
            ("ATOMS.ADD", "cta"),
            ("LDG.E.STRONG.SYS", None),
        ],
    )
    def test_scope(self, opcode, scope):
        assert access_of(one(opcode)).scope == scope

    @pytest.mark.parametrize(
        ("opcode", "hints"),
        [
            ("LDG.E.128", ()),
            ("LDG.E.EL.EFL2.256", ("EL", "EFL2")),
            ("LDG.E.NA.U16.CONSTANT", ("NA", "CONSTANT")),
            ("LDGSTS.E.BYPASS.LTC128B.128", ("BYPASS", "LTC128B")),
        ],
    )
    def test_hints(self, opcode, hints):
        assert access_of(one(opcode)).hints == hints

    def test_equal_ones_of_a_line_are_counted(self, outer):
        twice = Function("k", "sass", True, outer.instructions + outer.instructions[1:2])
        rows = [(a.opcode, a.count, a.loop_depth, a.source.line) for a in accesses(twice)]
        assert rows == [("LDG.E.64", 2, 0, 11), ("LDS", 1, 1, 12), ("STS.128", 1, 2, 12)]


def loads_of(ptx: str) -> tuple[tuple[str, int | None, int], ...]:
    """Opcode, width and count of the loads of a kernel, as ptxas makes them."""
    need("ptxas", "nvdisasm")
    (function,) = disassemble(assemble(ptx).cubin).functions
    return tuple((a.opcode, a.width_bits, a.count) for a in accesses(function) if a.kind == "load")


class TestWhatPtxasMakes:
    """The rules by which a width in PTX becomes another in SASS, or stays."""

    def test_dead_lanes_narrow_a_load(self):
        body = """setp.lt.u32 %p1, %r1, 9;
        mov.b32 %r2, 0; mov.b32 %r3, 0; mov.b32 %r4, 0; mov.b32 %r5, 0;
        @%p1 ld.global.v4.b32 {%r2,%r3,%r4,%r5}, [%rd1];
        add.u32 %r2, %r2, %r3; st.global.b32 [%rd2], %r2;"""
        assert loads_of(kernel(body)) == (("LDG.E.64", 64, 1),)

    def test_two_of_64_bits_are_128(self):
        body = "ld.global.v2.b64 {%rd3,%rd4}, [%rd1]; st.global.v2.b64 [%rd2], {%rd3,%rd4};"
        assert loads_of(kernel(body)) == (("LDG.E.128", 128, 1),)

    def test_four_neighbours_stay_four(self):
        loads = " ".join(f"ld.global.b32 %r{i + 2}, [%rd1+{4 * i}];" for i in range(4))
        body = loads + "st.global.v4.b32 [%rd2], {%r2,%r3,%r4,%r5};"
        assert loads_of(kernel(body)) == (("LDG.E", 32, 4),)

    def test_256_bits_on_blackwell(self):
        many = "{%r2,%r3,%r4,%r5,%r6,%r7,%r8,%r9}"
        body = f"ld.global.v8.b32 {many}, [%rd1]; st.global.v8.b32 [%rd2], {many};"
        ptx = kernel(body, target="sm_100").replace(".version 8.0", ".version 8.8")
        ((opcode, width, count),) = loads_of(ptx)
        assert opcode.startswith("LDG.E.")
        assert (width, count) == (256, 1)


WIDE = PTX_FILES / "nvcc-13.0-sm100.ptx"


def test_what_nvcc_writes_is_as_wide_in_both_levels():
    """Accesses of 256 bits, textures and surfaces."""
    need("ptxas", "nvdisasm")
    text = WIDE.read_text()
    written = {f.name: moved(accesses(f)) for f in parse_ptx(text).functions}
    running = {f.name: moved(accesses(f)) for f in disassemble(assemble(text).cubin).functions}
    assert written == running
    assert written["wide"] == {("load", "global", 256), ("store", "global", 256)}
    assert ("load", "texture", None) in written["pictures"]
    assert ("store", "surface", 128) in written["pictures"]


def moved(found):
    return {(access.kind, access.space, access.width_bits) for access in found}


@pytest.mark.parametrize("arch", ARCHES)
def test_it_equals_the_json_of_nvdisasm(arch, tmp_path):
    need("ptxas", "nvdisasm")
    path = tmp_path / "module.cubin"
    path.write_bytes(assemble(MODULE, arch).cubin)
    theirs = in_json(path)
    ours = {f.name: f.instructions for f in disassemble(path.read_bytes()).functions}
    assert set(ours) == set(theirs) == set(KERNELS)
    for name, code in ours.items():
        assert theirs[name][: len(code)] == [written(instruction) for instruction in code]
        assert {opcode for opcode, _, _ in theirs[name][len(code) :]} <= {"BRA", "NOP"}


def in_json(path: Path) -> dict[str, list[tuple[str, str, str]]]:
    tool = tools.find_newest("nvdisasm")[0]
    said = subprocess.run([tool, "-json", path], capture_output=True, text=True, check=True).stdout
    return {
        function["function-name"]: [
            (i["opcode"], bare(i.get("operands", "")), i.get("predicate", "").lstrip("@"))
            for i in function["sass-instructions"]
        ]
        for function in json.loads(said)[1]
    }


def written(instruction: Instruction) -> tuple[str, str, str]:
    return instruction.opcode, bare(instruction.operands), instruction.predicate or ""


def bare(operands: str) -> str:
    """Without spaces and commas, which the JSON leaves out here and there."""
    return re.sub(r"[ ,]", "", operands)


def test_lines_of_ptx():
    need("ptxas", "nvdisasm")
    (function,) = disassemble(assemble(COPY, "sm_90").cubin).functions
    (load,) = (i for i in function.instructions if i.opcode.startswith("LDG"))
    assert "ld.global.v4.b32" in COPY.splitlines()[load.ptx_line - 1]


@pytest.mark.parametrize("raw", [b"", b"not a cubin", b"\x7fELF" + bytes(100)])
def test_what_is_no_cubin(raw):
    need("nvdisasm")
    with pytest.raises(TraceFormatError, match="nvdisasm cannot read the cubin: ") as caught:
        disassemble(raw)
    assert "\n" not in str(caught.value)
    assert "/tmp" not in str(caught.value)


def test_half_a_cubin():
    need("ptxas", "nvdisasm")
    cubin = assemble(COPY).cubin
    with pytest.raises(TraceFormatError, match="nvdisasm cannot read"):
        disassemble(cubin[: len(cubin) // 2])
