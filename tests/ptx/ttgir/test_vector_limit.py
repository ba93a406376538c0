"""What limits the vector of an access, by the layouts and values of TTGIR."""

import pytest

from traceview.kernels.ptx.accesses import accesses
from traceview.kernels.ptx.parser import parse_ptx
from traceview.kernels.ptx.ttgir.layouts import thread_share
from traceview.kernels.ptx.ttgir.parser import parse_ttgir
from traceview.kernels.ptx.ttgir.vector_limit import vector_limits

HEAD = """#blocked = #ttg.blocked<{sizePerThread = [SHARE], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>
#loc = loc("/home/user/k.py":1:0)
#loc1 = loc("/home/user/k.py":7:4)
#loc2 = loc("rows"(#loc1))
#loc3 = loc(callsite(#loc9 at #loc4))
#loc4 = loc("/home/user/k.py":9:4)
#loc9 = loc("/home/user/helper.py":2:0)
module attributes {"ttg.num-warps" = 4 : i32} {
  tt.func public @k(%x: !tt.ptr<f32> {tt.divisibility = 16 : i32} loc("x"(#loc)), %n: i32 HINT loc("n"(#loc))) attributes {noinline = false} {
    %cst = arith.constant dense<3> : tensor<1024xi32, #blocked> loc(#loc1)
    %c4 = arith.constant dense<4> : tensor<1024xi32, #blocked> loc(#loc1)
    %r = tt.make_range {end = 1024 : i32, start = 0 : i32} : tensor<1024xi32, #blocked> loc(#loc1)
    %many = tt.splat %n : i32 -> tensor<1024xi32, #blocked> loc(#loc1)
    %p = tt.splat %x : !tt.ptr<f32> -> tensor<1024x!tt.ptr<f32>, #blocked> loc(#loc1)
"""  # noqa: E501
T, P = "tensor<1024xi32, #blocked>", "tensor<1024x!tt.ptr<f32>, #blocked>"
ADDRESS = f"%a = tt.addptr %p, %o : {P}, {T} loc(#loc1)\n%v = tt.load %a : {P} loc(#loc3)"


def limit(body, share=4, hint="{tt.divisibility = 16 : i32}", offsets="%o", mask=""):
    """What limits a load of x at `offsets`."""
    head = HEAD.replace("SHARE", str(share)).replace("HINT", hint)
    address = f"%a = tt.addptr %p, {offsets} : {P}, {T} loc(#loc1)"
    load = f"%v = tt.load %a{mask} : {P} loc(#loc3)"
    (found,) = vector_limits(parse_ttgir("\n".join([head, body, address, load, "}", "}"])))
    return found


def op(name, left, right, result="%o"):
    return f"{result} = arith.{name} {left}, {right} : {T} loc(#loc2)"


def test_adjacent_elements_are_one_vector():
    found = limit("", offsets="%r")
    assert (found.width_bits, found.limit, found.arrays) == (128, "layout", {"x"})
    assert (found.line.file, found.line.line) == ("/home/user/k.py", 9)


def test_a_layout_may_give_a_thread_too_few():
    found = limit("", share=1, offsets="%r")
    assert (found.width_bits, found.limit, found.share.adjacent) == (32, "layout", 1)


@pytest.mark.parametrize(
    ("body", "opcode"),
    [
        (op("divsi", "%r", "%many"), "arith.divsi"),
        (op("muli", "%r", "%cst"), "arith.muli"),
        (op("xori", "%r", "%cst"), "arith.xori"),
    ],
)
def test_offsets_that_are_not_known_to_be_adjacent_name_the_operation(body, opcode):
    found = limit(body)
    assert (found.width_bits, found.limit) == (32, "contiguity")
    assert (found.culprit.opcode, found.culprit.name, found.culprit.line.line) == (
        opcode,
        "rows",
        7,
    )


def test_a_quotient_names_what_is_divided():
    assert limit(op("divsi", "%r", "%many")).culprit.operands == ("n",)


@pytest.mark.parametrize("name", ["remsi", "addi"])
def test_a_multiple_of_16_keeps_runs_together(name):
    assert limit(op(name, "%r", "%many")).width_bits == 128


@pytest.mark.parametrize(
    ("name", "why", "opcode"),
    [("remsi", "contiguity", "arith.remsi"), ("addi", "alignment", "parameter")],
)
def test_a_parameter_that_is_not_divisible_limits_runs_or_alignment(name, why, opcode):
    found = limit(op(name, "%r", "%many"), hint="")
    assert (found.width_bits, found.limit, found.culprit.opcode) == (32, why, opcode)


def test_a_mask_by_a_bound_that_is_not_divisible():
    bound = f"%m = arith.cmpi slt, %r, %many : {T} loc(#loc2)"
    found = limit(bound, hint="", offsets="%r", mask=", %m")
    assert (found.width_bits, found.limit, found.mask) == (32, "mask", 1)
    assert found.culprit.name == "n"
    assert limit(bound, offsets="%r", mask=", %m").width_bits == 128


def test_a_declared_run_counts():
    hints = [f"tt.{name} = dense<4> : tensor<1xi32>" for name in ("contiguity", "divisibility")]
    declared = op("divsi", "%r", "%many").replace(" : ", f" {{{', '.join(hints)}}} : ")
    assert limit(declared).width_bits == 128


def test_names_that_sibling_regions_repeat_are_different_values():
    loop = "scf.for %i = %n to %n step %n  : i32 {{\n{}\n}} loc(#loc1)\n"
    first = loop.format(op("addi", "%r", "%c4", "%q"))
    second = loop.format(op("divsi", "%r", "%many", "%q"))
    assert limit(first + second + op("addi", "%r", "%c4")).width_bits == 128


TWO = "#ttg.blocked<{sizePerThread = [1, 2], order = [1, 0]}>"


@pytest.mark.parametrize(
    ("layout", "shape", "order", "adjacent"),
    [
        ("#ttg.blocked<{sizePerThread = [1, 8], order = [1, 0]}>", (16, 4), (1, 0), 4),
        ("#ttg.blocked<{sizePerThread = [4, 1], order = [0, 1]}>", (16, 64), (0, 1), 4),
        (f"#ttg.slice<{{dim = 0, parent = {TWO}}}>", (64,), (0,), 2),
        (f"#ttg.slice<{{dim = 1, parent = {TWO}}}>", (64,), (0,), 1),
        ("#ttg.linear<{register = [[0, 1], [0, 2], [8, 0]], lane = []}>", (16, 8), (1, 0), 4),
        ("#ttg.dot_op<{opIdx = 0, parent = #mma, kWidth = 4}>", (16, 32), (1, 0), 4),
        ("#ttg.nvidia_mma<{versionMajor = 2, instrShape = [16, 8]}>", (16, 32), (1, 0), 2),
    ],
)
def test_each_kind_of_layout_gives_a_thread_its_share(layout, shape, order, adjacent):
    share = thread_share(layout, shape)
    assert (share.order, share.adjacent) == (order, adjacent)


def test_a_layout_that_is_not_understood_is_left_out():
    assert thread_share("#ttg.future<{}>", (16,)) is None


@pytest.mark.parametrize(
    ("kernel", "signature"),
    [
        ("gelu", "*fp32:16, *fp32:16, i32:16, 1024"),
        ("gelu", "*fp32:16, *fp32:16, i32, 1024"),
        ("gelu", "*fp16:16, *fp16:16, i32:16, 128"),
        ("gelu", "*fp32, *fp32:16, i32:16, 1024"),
        ("magnitudes", "*fp32:16, *fp32:16, i32:16, 1024"),
        ("backwards", "*fp32:16, *fp32:16, i32:16, 1024"),
        ("scale_channels", "*fp32:16, *fp32:16, *fp32:16, i32:16, 1024"),
        ("rotary", "*fp16:16, *fp16:16, i32:16, 64, 16"),
        ("causal", "*fp32:16, *fp32:16, i32:16, 1024"),
        ("sequences", "*fp32:16, *i32:16, *fp32:16, 1024"),
        ("keep_some", "*fp32:16, *i1:16, *fp32:16, i32:16, 1024"),
        ("wrapped_start", "*fp32:16, *fp32:16, i32:16, 1024"),
        ("clamped_start", "*fp32:16, *fp32:16, i32:16, 1024"),
        ("clamped_start", "*fp32:16, *fp32:16, i32, 1024"),
    ],
)
def test_the_width_is_the_one_that_triton_chose(compile_triton, kernel, signature):
    import triton

    from tests.inspect.rules import narrow_kernels
    from tests.ptx.kernels import apart

    module = apart if hasattr(apart, kernel) else narrow_kernels
    made = compile_triton(getattr(module, kernel), signature, "sm_90")
    computed, written = {}, {}
    since_3_9 = tuple(map(int, triton.__version__.split(".")[:2])) >= (3, 9)
    for found in vector_limits(parse_ttgir(made.ttgir), aligned_remainders=since_3_9):
        computed.setdefault((found.line, found.kind), set()).add(found.width_bits)
    for function in parse_ptx(made.ptx).kernels():
        for access in accesses(function):
            if access.space == "global":
                written.setdefault((access.source, access.kind), set()).add(access.width_bits)
    # Scalars have no layout.
    assert computed == {place: widths for place, widths in written.items() if place in computed}


def test_a_hint_that_is_equal_for_all_axes_is_written_once():
    square = "tensor<32x32xi32, #blocked>"
    hint = "{tt.divisibility = dense<16> : tensor<2xi32>}"
    body = "\n".join(
        [
            f"%w = tt.splat %n : i32 -> {square} loc(#loc1)",
            f"%h = arith.addi %w, %w {hint} : {square} loc(#loc2)",
            f"%s = arith.addi %h, %h : {square} loc(#loc2)",
        ]
    )
    found = limit(body, offsets="%r")
    assert found.width_bits == 128


def test_a_clamped_offset_is_as_aligned_as_its_bounds():
    offset = f"%s = arith.minsi %many, %c4 : {T} loc(#loc2)\n" + op("addi", "%r", "%s")
    assert limit(offset).width_bits == 128
    found = limit(offset, hint="")
    assert (found.width_bits, found.limit, found.culprit.name) == (32, "alignment", "n")


def test_a_scalar_remainder_may_be_any_number_before_triton_3_9():
    scalars = """%c64 = arith.constant 64 : i32 loc(#loc1)
%s = arith.remsi %n, %c64 : i32 loc(#loc2)
%w = tt.splat %s : i32 -> tensor<1024xi32, #blocked> loc(#loc1)
"""
    head = HEAD.replace("SHARE", "4").replace("HINT", "{tt.divisibility = 16 : i32}")
    body = "\n".join([head, scalars, op("addi", "%r", "%w"), ADDRESS, "}", "}"])
    (old,) = vector_limits(parse_ttgir(body), aligned_remainders=False)
    assert (old.width_bits, old.limit, old.culprit.opcode) == (32, "alignment", "arith.remsi")
    (new,) = vector_limits(parse_ttgir(body))
    assert new.width_bits == 128


LOOP = """%c1 = arith.constant 1 : i32 loc(#loc1)
%last = scf.for %i = %c1 to %n step %c1 iter_args(%at = %n) -> (i32) : i32 {
  %w = tt.splat %at : i32 -> tensor<1024xi32, #blocked> loc(#loc1)
  %o = arith.addi %r, %w : tensor<1024xi32, #blocked> loc(#loc1)
  %a = tt.addptr %p, %o : P, T loc(#loc1)
  %v = tt.load %a : P loc(#loc3)
  %next = arith.addi %at, %c1 : i32 loc(#loc1)
  scf.yield %next : i32 loc(#loc1)
} loc(#loc4)
"""


def test_what_a_loop_advances_is_told_by_the_line_of_the_loop():
    head = HEAD.replace("SHARE", "4").replace("HINT", "{tt.divisibility = 16 : i32}")
    loop = LOOP.replace(" P,", f" {P},").replace(" T ", f" {T} ").replace(": P", f": {P}")
    (found,) = vector_limits(parse_ttgir(f"{head}{loop}}}}}"))
    assert (found.limit, found.culprit.opcode, found.culprit.name) == ("alignment", "loop", None)
    assert found.culprit.line.line == 9


@pytest.mark.parametrize("step", [1, 2, 3, 4])
def test_the_step_of_a_loop_tells_what_no_declaration_changes(step):
    head = HEAD.replace("SHARE", "4").replace("HINT", "{tt.divisibility = 16 : i32}")
    loop = LOOP.replace(" P,", f" {P},").replace(" T ", f" {T} ").replace(": P", f": {P}")
    loop = loop.replace("splat %at", "splat %i").replace("constant 1 ", f"constant {step} ")
    (found,) = vector_limits(parse_ttgir(f"{head}{loop}}}}}"))
    assert (found.culprit and found.culprit.constant) == (None if step == 4 else step)


@pytest.mark.parametrize("share", [1, 2, 4])
@pytest.mark.parametrize(("divisor", "aligned"), [(8, 2), (16, 1)])
def test_a_layout_follows_an_address_that_is_not_aligned(share, divisor, aligned):
    """Triton gives a thread no more adjacent elements than the address allows."""
    scalars = (
        f"%d = arith.constant {divisor} : i32 loc(#loc1)\n"
        "%q = arith.divsi %n, %d : i32 loc(#loc2)\n"
        f"%w = tt.splat %q : i32 -> {T} loc(#loc1)\n"
    )
    found = limit(scalars + op("addi", "%r", "%w"), share=share)
    assert found.width_bits == 32 * min(share, aligned)
    if share >= aligned:
        assert (found.limit, found.culprit.opcode) == ("alignment", "arith.divsi")


def test_offsets_that_were_loaded_through_shared_memory_are_a_gather():
    assert limit(f"%o = ttg.local_load %buffer : {T} loc(#loc1)").gathered
