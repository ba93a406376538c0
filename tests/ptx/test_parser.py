"""Corner cases of PTX, each written by hand with its whole expected reading."""

import time

import pytest

from traceview.base.errors import PtxSyntaxError
from traceview.kernels.ptx.model import SourceLine
from traceview.kernels.ptx.parser import parse_ptx

START = ".version 8.7\n.target sm_90a\n.address_size 64\n"


def module(text):
    return parse_ptx(START + text, "k.ptx")


def kernel(body, head=".visible .entry k()", end=""):
    (function,) = module(f"{head} {{\n{body}\n}}\n{end}").functions
    return function


def read(body):
    return [(i.predicate, i.opcode, i.operands) for i in kernel(body).instructions]


def test_the_start_names_version_and_target():
    listing = parse_ptx(".version 9.4 .target sm_100a, debug .address_size 64", "x")
    assert (listing.level, listing.version, listing.target) == ("ptx", "9.4", "sm_100a")
    assert listing.functions == ()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("ret;", [(None, "ret", "")]),
        ("@%p1 bra L; L: ret;", [("%p1", "bra", "L"), (None, "ret", "")]),
        ("@!p \n\t bra.uni\tL;\nL:", [("!p", "bra.uni", "L")]),
        ("@ ! %p1 exit;", [("!%p1", "exit", "")]),
        ("mov .u32 %r1, %tid.x;", [(None, "mov.u32", "%r1, %tid.x")]),
        ("frobnicate.new::kind.b7 %r1;", [(None, "frobnicate.new::kind.b7", "%r1")]),
        ("a.x b; c.y d;", [(None, "a.x", "b"), (None, "c.y", "d")]),
        (
            "ld.global.L1::evict_first.L2::cache_hint.v2.b32 { %r1, %r2 }, [ %rd1 + 0 ], %rd2;",
            [
                (
                    None,
                    "ld.global.L1::evict_first.L2::cache_hint.v2.b32",
                    "{ %r1, %r2 }, [ %rd1 + 0 ], %rd2",
                )
            ],
        ),
        ("mov.b32 %r1, // one; {\n 2;", [(None, "mov.b32", "%r1,  2")]),
        ("mov.b32 /* a; */ %r1, 2;", [(None, "mov.b32", "%r1, 2")]),
        ("/* ret; */ // exit;\n trap;", [(None, "trap", "")]),
        (
            "call.uni (retval0), \n f, \n (\n param0\n );",
            [(None, "call.uni", "(retval0), f, ( param0 )")],
        ),
        ("proto : .callprototype (.param .b32 _) _ (.param .b64 _);", []),
        ('.pragma "nounroll; {";', []),
        (".reg .b32 %r<4>; .local .align 8 .b8 depot[16];", []),
        (
            "setp.lt.and.s32 %p1|%p2, a, b, !%p3;",
            [(None, "setp.lt.and.s32", "%p1|%p2, a, b, !%p3")],
        ),
    ],
)
def test_statements(body, expected):
    assert [(p, o, " ".join(x.split())) for p, o, x in read(body)] == [
        (p, o, " ".join(x.split())) for p, o, x in expected
    ]


def test_lines_count_from_one_and_belong_to_the_opcode():
    body = "mov.b32\n %r1,\n 1; mov.b32 %r2, 2;\n\n/* a\n b */ ret;"
    first = START.count("\n") + 2
    assert [i.line - first for i in kernel(body).instructions] == [0, 2, 5]


def test_the_head_of_a_function():
    function = kernel(
        "ret;",
        ".weak .entry gemm(\n .param .u64 .ptr .global .align 16 gemm_param_0,\n"
        " .param .align 64 .b8 gemm_param_1[128]\n)\n.maxntid 256, 1, 1\n.minnctapersm 2\n"
        ".maxnreg 64 .reqnctapercluster 2 .explicitcluster .maxclusterrank 8\n",
    )
    assert (function.name, function.is_entry) == ("gemm", True)
    assert function.parameters == ("gemm_param_0", "gemm_param_1")
    assert function.directives == {
        "maxntid": (256, 1, 1),
        "minnctapersm": (2,),
        "maxnreg": (64,),
        "reqnctapercluster": (2,),
        "explicitcluster": (),
        "maxclusterrank": (8,),
    }


def test_prototypes_are_no_functions_and_device_functions_no_kernels():
    listing = module(
        ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n"
        ".func (.param .b32 r) f(.param .b32 x);\n"
        ".func .attribute(.unified(1, 2)) (.param .b32 r) f(.param .b32 x)\n{ ret; }\n"
        '.visible .entry k()\n.pragma "nounroll";\n{ ret; }\n'
    )
    assert [(f.name, f.is_entry, f.parameters) for f in listing.functions] == [
        ("f", False, ("x",)),
        ("k", True, ()),
    ]
    assert [f.name for f in listing.kernels()] == ["k"]


def test_variables_and_debug_sections_are_passed_over():
    listing = module(
        ".global .align 1 .b8 _$_str[3] = {95, 95, 0};\n.const .f32 c[2] = { 0f00, 1.0 };\n"
        ".visible .entry k() { ret; }\n"
        '.file 1 "a.cu", 1700000000, 4242\n.section .debug_info\n{\n.b8 1 // } "\n}\n'
        ".section .debug_macinfo { }\n.section .debug_str {\n$L__info: .b8 115 // ;\n}\n"
    )
    assert len(listing.functions) == 1


@pytest.mark.parametrize(
    ("declared", "bytes_"),
    [
        ("", 0),
        (".shared .align 4 .b8 a[100];", 100),
        (".shared .b8 a; .shared .f64 b, c[2][2];", 48),
        (".shared .align 16 .b8 a[1]; .shared .v4 .f32 b[2];", 48),
        (".shared .b32 a[0x10];", 64),
        (".shared .b8 a[010], b[0b1010], c[0X1FU][ 2 ];", 80),
        (".shared .b8 a[WARP_SZ][2];", 64),
        (".extern .shared .align 16 .b8 dynamic[];", 0),
        ("{ .shared .b16 inner[3]; }", 6),
    ],
)
def test_static_shared_memory(declared, bytes_):
    assert kernel(f"{declared} ret;").static_shared_bytes == bytes_


def test_shared_memory_of_the_module_and_of_callees_counts_where_it_is_used():
    # The numbers are those that ptxas -v prints for this module.
    listing = module(
        ".shared .align 1 .b8 m[1];\n"
        ".func f() { .shared .align 8 .b8 own[40]; st.shared.u32 [own], 0; ret; }\n"
        ".entry a() { .shared .b8 x[9]; st.shared.u8 [x], 1; ret; }\n"
        ".entry b() { st.shared.u8 [m], 1; call f; ret; }\n"
    )
    shared = {function.name: function.static_shared_bytes for function in listing.functions}
    assert shared == {"f": 40, "a": 9, "b": 48}


def lines(body, end):
    return [(i.opcode, i.source, i.inlined) for i in kernel(body, end=end).instructions]


A, B = '.file 1 "/home/a/kernel.py"\n', '.file 2 "/lib" "standard.py"\n'


def test_lines_come_from_a_table_that_comes_last():
    read_lines = lines("a; .loc 1 5 3\n b;\n.loc 2 7 1 c; .loc 1 0 1\n d; .loc 9 1 1\n e;", A + B)
    assert read_lines == [
        ("a", None, ()),
        ("b", SourceLine("/home/a/kernel.py", 5), ()),
        ("c", SourceLine("/lib/standard.py", 7), ()),
        ("d", None, ()),
        ("e", None, ()),
    ]


INLINED = (
    "f",
    SourceLine("/home/a/kernel.py", 35),
    (SourceLine("/lib/standard.py", 170), SourceLine("/lib/standard.py", 191)),
)


def test_a_remark_gives_the_calls_around_a_line():
    body = ".loc 2 170 27 // standard.py:170:27 @[ standard.py:191:40 @[ kernel.py:35:19 ] ]\n f;"
    assert lines(body, A + B) == [INLINED]


def test_inlined_at_gives_the_calls_around_a_line():
    at = "function_name $L__info_string0"
    body = (
        f".loc 1 35 19\n.loc 2 191 40, {at}, inlined_at 1 35 19 // standard.py:191:40\n"
        f".loc 2 170 27, {at}+12, inlined_at 2 191 40\n f;"
    )
    assert lines(body, A + B) == [INLINED]


def test_a_helper_called_twice_belongs_to_its_latest_call():
    at = "function_name $L__info_string0, inlined_at"
    body = (
        f".loc 2 9 1, {at} 1 35 19\n.loc 2 5 1, {at} 2 9 1\n f;"
        f".loc 2 9 1, {at} 1 40 19\n.loc 2 5 1, {at} 2 9 1\n g;"
    )
    assert [source.line for _, source, _ in lines(body, A + B)] == [35, 40]


def test_of_two_files_with_one_name_the_kernel_s_own_is_meant():
    end = '.file 1 "/lib/x.py"\n.file 2 "/home/x.py"\n'
    body = ".loc 2 1 0 // x.py:1:0\n a;\n.loc 1 7 0 // x.py:7:0 @[ x.py:3:1 ]\n b;"
    assert lines(body, end)[1] == (
        "b",
        SourceLine("/home/x.py", 3),
        (SourceLine("/lib/x.py", 7),),
    )


def test_lines_within_inline_assembly_are_those_before_it():
    body = (
        ".loc 1 51 9\n a;\n// begin inline asm\n{\n.loc 1 54 9\nb;\n.loc 1 55 9\nc;\n}\n"
        "// end inline asm\nd;\n.loc 1 60 9\ne;"
    )
    assert [source.line for _, source, _ in lines(body, A)] == [51, 51, 51, 51, 60]


@pytest.mark.parametrize(
    ("text", "line", "column", "said"),
    [
        ("", 1, 1, "the text is empty"),
        ("\n \n", 1, 1, "the text is empty"),
        ("\x7fELF\x02\x01\x01\0\0", 1, 1, "not PTX text"),
        ("def kernel():", 1, 1, "not PTX text"),
        ("// nothing else", 1, 16, "ends before .version"),
        ("// x\n.target sm_90", 2, 1, "begins with .version"),
        (".version 8.7\n", 2, 1, "ends without .target"),
        (".version eight\n", 1, 1, ".version is damaged"),
        (START + ".entry k() {\n ret\n}", 6, 1, "incomplete before: '}'"),
        (START + ".entry k() {\n mov a, b\n  mov c, d;\n}", 6, 3, "missing before: 'mov c, d;'"),
        (START + ".entry k() {\n ret;", 5, 6, "the text ends within k"),
        (START + ".entry k(.param .b32", 4, 1, "no ';'"),
        (START + ".entry k() {\n bra L;\n}", 5, 2, "k has no label 'L'"),
        (START + ".entry k() {\n [x];\n}", 5, 2, "not the beginning of a PTX statement"),
        (START + ".entry k() { ;}", 4, 14, "not the beginning of a PTX statement"),
        (START + ".entry k() {\n.func f() {}\n}", 5, 1, "k is not closed"),
        (START + "mov.u32 a, b;", 4, 1, "outside of any function"),
        (START + "}", 4, 1, "outside of any function"),
        (START + "{ }", 4, 1, "no function header before"),
        (START + ".entry () { }", 4, 1, "not a function header"),
        (START + ".shared .b8 x[k];", 4, 1, "is not a number"),
        # ptxas refuses each of these, too.
        (START + ".shared .b8 x[4*256];", 4, 1, "is not a number"),
        (START + ".shared .b8 x[08];", 4, 1, "is not a number"),
        (START + ".shared .b8 x[1_0];", 4, 1, "is not a number"),
        (START + ".shared .b8 x" + "[9]" * 50_000 + ";", 4, 1, "is not a number"),
        (START + ".section .debug_info {\n.b8 1", 4, 1, ".section is damaged"),
        (START + ".entry k() { /* ret; }", 4, 14, "not the beginning of a PTX statement"),
        (START + '.entry k() { .pragma "x; }', 4, 14, "no ';'"),
        (START + ".entry k() { .loc 1 99999999999999 1\n }", 4, 14, ".loc is damaged"),
    ],
)
def test_syntax_errors_name_line_and_column(text, line, column, said):
    with pytest.raises(PtxSyntaxError) as caught:
        parse_ptx(text, "k.ptx")
    assert (caught.value.line, caught.value.column) == (line, column)
    assert str(caught.value).startswith(f"k.ptx, line {line}, column {column}: ")
    assert said in str(caught.value)
    assert caught.value.remedy
    assert str(caught.value).isprintable()


def test_what_follows_the_text_in_a_binary_is_no_part_of_it():
    assert parse_ptx(START + "\0\0").functions == ()


def test_deep_nesting_and_long_chains_end():
    at = "function_name $L__info, inlined_at 1 1 1"
    nested = "{" * 20_000 + "}" * 20_000
    chain = f".loc 1 1 1, {at}\n" * 5_000
    assert [i.opcode for i in kernel(f"{chain} {nested} ret;", end=A).instructions] == ["ret"]


def of_many(text, begin="", end=""):
    return lambda count: START + begin + "".join(text.format(i, i + 1) for i in range(count)) + end


GROWING = {
    "functions": of_many(".entry f{0}(.param .u64 p) .maxntid 64 {{ ret; }}\n"),
    "loops in a row": of_many("L{0}: a;\n@%p1 bra L{0};\n", ".entry k() {\n", "}"),
    "branches to one place": of_many("@%p1 bra L; a;\n", ".entry k() {\n", "L: }"),
    "scopes with one label": of_many("{{ L: a;\n@%p1 bra L; }}\n", ".entry k() {\n", "}"),
    "scopes in scopes": lambda n: START + ".entry k() {\n" + "L: { bra L;\n" * n + "}" * n + "}",
    "lines": of_many(".loc 1 {1} 1 // a:{0}:3 @[ b:{0}:2 ]\na;\n", A + ".entry k() {\n", "}"),
    "shared variables": of_many(
        ".shared .b8 m{0}[4];\n.entry f{0}() {{ st.shared.b8 [m{0}], 1; }}\n"
    ),
    "calls of calls": of_many(
        ".func f{1}() {{ call f{0}; }}\n", ".shared .b8 m[4];\n.func f0() { a [m]; }\n"
    ),
}


@pytest.mark.parametrize("shape", GROWING)
def test_four_times_the_text_takes_four_times_the_time(shape):
    """And not sixteen times, as if each piece had to do with each. One try of three may show it."""
    few, many = (GROWING[shape](count) for count in (4_000, 16_000))
    tries = ((min(cpu_seconds(few), cpu_seconds(few)), cpu_seconds(many)) for _ in range(3))
    assert any(long < 9 * short for short, long in tries)


def cpu_seconds(text):
    begin = time.process_time()
    parse_ptx(text)
    return time.process_time() - begin
