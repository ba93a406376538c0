"""The rules by which Triton makes an access wide or narrow: compiled, and seen in SASS.

Each rule is a kernel, its signature, and how many global accesses of which width it has in PTX:
`2 × 128` is two instructions that move 128 bits a thread each. SASS has the same, or the rule
says what it has instead, and why. Both levels are also counted from the bare text, by code that
shares nothing with traceview.
"""

import importlib.metadata
import importlib.util
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import cycle
from typing import Any

import pytest

from tests.inspect.rules.vector_width.one_module import OneModule
from tests.inspect.rules.written_ptx import ARCHES, need
from traceview.kernels.inspect.recompilations import differences
from traceview.kernels.ptx.accesses import accesses
from traceview.kernels.ptx.model import Access

if not importlib.util.find_spec("triton"):
    pytest.skip("compiles with Triton", allow_module_level=True)

from tests.ptx.kernels import widths

pytestmark = pytest.mark.programs

Counts = Counter[tuple[str, int]]

TRITON = tuple(int(part) for part in importlib.metadata.version("triton").split(".")[:2])


@dataclass(frozen=True)
class Rule:
    """What a kernel compiles to: its accesses in PTX, those of SASS if they are others, and why.

    `on_sm_100` is its PTX there, if it is another.
    """

    kernel: Any
    signature: str
    ptx: str
    sass: str = ""
    why: str = ""
    on_sm_100: str = ""
    warps: int = 4
    stages: int = 3
    layout: tuple[int, ...] = ()


WIDE = "load 2 × 128, store 2 × 128"
SCALAR = "load 8 × 32, store 8 × 32"
SCALAR_LOADS = "load 8 × 32, store 2 × 128"
TWO_FP32 = "*fp32:16, *fp32:16"
TILES = "*fp16:16, *fp16:16, *fp32:16"
DEAD = "ptxas leaves out the lanes whose values nobody reads"
UNUSED = "of the indices of a run only the first is read"
# A loop of sm_100 has its first pass in front of it, and its copies with that.
RULES = {
    # What the compiler knows of the arguments.
    "aligned": Rule(widths.gelu, f"{TWO_FP32}, i32:16, 1024", WIDE),
    "length not divisible by 16": Rule(widths.gelu, f"{TWO_FP32}, i32, 1024", SCALAR),
    "pointer not aligned": Rule(widths.gelu, "*fp32, *fp32:16, i32:16, 1024", SCALAR_LOADS),
    "shifted by one element": Rule(widths.shifted, f"{TWO_FP32}, 1, 1024", SCALAR_LOADS),
    "shifted by two": Rule(widths.shifted, f"{TWO_FP32}, 2, 1024", "load 4 × 64, store 2 × 128"),
    "shifted by four": Rule(widths.shifted, f"{TWO_FP32}, 4, 1024", WIDE),
    # Elements a thread: BLOCK ÷ (32 × warps).
    "half an element": Rule(widths.gelu, f"{TWO_FP32}, i32:16, 64", "load 1 × 32, store 1 × 32"),
    "one element": Rule(widths.gelu, f"{TWO_FP32}, i32:16, 128", "load 1 × 32, store 1 × 32"),
    "two elements": Rule(widths.gelu, f"{TWO_FP32}, i32:16, 256", "load 1 × 64, store 1 × 64"),
    "four elements": Rule(widths.gelu, f"{TWO_FP32}, i32:16, 512", "load 1 × 128, store 1 × 128"),
    "four elements by more warps": Rule(
        widths.gelu, f"{TWO_FP32}, i32:16, 1024", "load 1 × 128, store 1 × 128", warps=8
    ),
    "32 elements": Rule(
        widths.gelu, f"{TWO_FP32}, i32:16, 1024", "load 8 × 128, store 8 × 128", warps=1
    ),
    # A width is in bits, whatever the elements are.
    "fp16": Rule(widths.gelu, "*fp16:16, *fp16:16, i32:16, 1024", "load 1 × 128, store 1 × 128"),
    "four fp16": Rule(widths.gelu, "*fp16:16, *fp16:16, i32:16, 512", "load 1 × 64, store 1 × 64"),
    "bf16": Rule(widths.gelu, "*bf16:16, *bf16:16, i32:16, 1024", "load 1 × 128, store 1 × 128"),
    "bf16, length not divisible": Rule(
        widths.gelu, "*bf16:16, *bf16:16, i32, 1024", "load 8 × 16, store 8 × 16"
    ),
    "fp8": Rule(widths.copy, "*fp8e5:16, *fp8e5:16, i32:16, 2048", "load 1 × 128, store 1 × 128"),
    "int8": Rule(widths.copy, "*i8:16, *i8:16, i32:16, 2048", "load 1 × 128, store 1 × 128"),
    "int8, length not divisible": Rule(
        widths.copy, "*i8:16, *i8:16, i32, 512", "load 4 × 8, store 4 × 8"
    ),
    "fp64": Rule(widths.copy, "*fp64:16, *fp64:16, i32:16, 512", WIDE),
    "fp64, length not divisible": Rule(
        widths.copy, "*fp64:16, *fp64:16, i32, 512", "load 4 × 64, store 4 × 64"
    ),
    # Strides and gathers.
    "stride 2": Rule(widths.strided, f"{TWO_FP32}, 2, 1024", SCALAR_LOADS),
    "stride at run time": Rule(widths.strided, f"{TWO_FP32}, i32, 1024", SCALAR_LOADS),
    "stride at run time, divisible": Rule(
        widths.strided, f"{TWO_FP32}, i32:16, 1024", SCALAR_LOADS
    ),
    "stride 1 as a constexpr": Rule(widths.strided, f"{TWO_FP32}, 1, 1024", WIDE),
    "gather": Rule(
        widths.gather,
        "*fp32:16, *i32:16, *fp32:16, 1024",
        "load 2 × 128, load 8 × 32, store 2 × 128",
    ),
    "gather of runs": Rule(
        widths.gather_of_runs,
        "*fp32:16, *i32:16, *fp32:16, 1024",
        "load 4 × 128, store 2 × 128",
        sass="load 2 × 128, load 2 × 32, store 2 × 128",
        why=UNUSED,
    ),
    "gather of runs, fp16": Rule(
        widths.gather_of_runs,
        "*fp16:16, *i32:16, *fp16:16, 1024",
        "load 3 × 128, store 1 × 128",
        sass="load 1 × 128, load 1 × 32, store 1 × 128",
        why=f"{UNUSED}, and of two loads of indices one is not needed at all",
    ),
    # Rows of a matrix.
    "rows divisible": Rule(widths.softmax, f"{TWO_FP32}, i32:16, i32:16, 4, 256", WIDE),
    "row stride not divisible": Rule(widths.softmax, f"{TWO_FP32}, i32, i32:16, 4, 256", SCALAR),
    "row length not divisible": Rule(widths.softmax, f"{TWO_FP32}, i32:16, i32, 4, 256", SCALAR),
    "transpose": Rule(
        widths.transpose, f"{TWO_FP32}, i32:16, i32:16, 32", "load 2 × 128, store 2 × 128"
    ),
    "transpose, one stride not divisible": Rule(
        widths.transpose, f"{TWO_FP32}, i32, i32:16, 32", SCALAR_LOADS
    ),
    # What ptxas makes narrower, and what it does not make wider.
    "masked, two lanes of four dead": Rule(
        widths.first_two_of_four,
        f"{TWO_FP32}, i32:16, 1024",
        "load 2 × 128, store 1 × 128",
        sass="load 2 × 64, store 1 × 128",
        why=DEAD,
    ),
    "masked, every other lane dead": Rule(
        widths.every_other,
        f"{TWO_FP32}, i32:16, 1024",
        "load 2 × 128, store 1 × 128",
        sass="load 4 × 32, store 1 × 128",
        why=f"{DEAD}; the two that are left do not touch",
    ),
    "neighbouring scalars": Rule(widths.four_scalars, TWO_FP32, "load 4 × 32, store 1 × 32"),
    # Loads of a pipelined loop are asynchronous copies of at least 32 bits.
    "pipelined": Rule(
        widths.products,
        f"{TILES}, i32:16, i32:16, i32:16, 64",
        "async-copy 24 × 128, store 8 × 128",
        on_sm_100="async-copy 32 × 128, store 8 × 128",
    ),
    "pipelined, one stride not divisible": Rule(
        widths.products,
        f"{TILES}, i32:16, i32:16, i32, 64",
        "async-copy 12 × 128, load 32 × 16, store 8 × 128",
        on_sm_100="async-copy 16 × 128, load 64 × 16, store 8 × 128",
    ),
    "not pipelined": Rule(
        widths.products,
        f"{TILES}, i32:16, i32:16, i32:16, 64",
        "load 8 × 128, store 8 × 128",
        on_sm_100="load 16 × 128, store 8 × 128",
        stages=1,
    ),
    # Pointers that are divisible by 32, which Triton's own launcher never says.
    "eight neighbours": Rule(
        widths.eight_side_by_side,
        "*fp32:32, *fp32:32, i32:16, 1024",
        WIDE,
        on_sm_100="load 1 × 256, store 1 × 256" if TRITON >= (3, 9) else WIDE,
        layout=(8,),
    ),
    "eight neighbours, divisible by 16": Rule(
        widths.eight_side_by_side, f"{TWO_FP32}, i32:16, 1024", WIDE, layout=(8,)
    ),
}


def cases() -> Iterator[Any]:
    """Each rule on sm_90 and on one other architecture, these in turn; a new Triton sees all."""
    others = cycle(arch for arch in ARCHES if arch != "sm_90")
    for name, rule in RULES.items():
        other = "sm_100" if rule.on_sm_100 else next(others)
        chosen = ARCHES if os.environ.get("TRACEVIEW_TEST_ARCHES") == "all" else ("sm_90", other)
        for arch in chosen:
            says_more = arch == "sm_90" or rule.on_sm_100 or rule.why
            yield pytest.param(name, arch, marks=() if says_more else pytest.mark.programs)


def group(case: Any) -> tuple[str, int]:
    return case.values[1], len(case.marks)


def named(name: str) -> str:
    """A rule as the name of a kernel."""
    return re.sub(r"\W+", "_", f"rule {name}")


CASES = [*cases()]
# Those that run together: of one architecture, with the same marks.
TOGETHER = {
    case.values: tuple(other.values[0] for other in CASES if group(other) == group(case))
    for case in CASES
}


@pytest.fixture(scope="module")
def module_of(compile_triton):
    """The module of all rules that run together."""
    need("nvdisasm", "ptxas")

    def compiled(name, arch):
        rule = RULES[name]
        options = {"num_warps": rule.warps, "num_stages": rule.stages}
        return compile_triton(rule.kernel, rule.signature, arch, _layout(rule), **options).ptx

    @cache
    def module(names, arch):
        return OneModule({named(name): compiled(name, arch) for name in names})

    return module


@pytest.mark.parametrize(("name", "arch"), CASES)
def test_rule(name, arch, module_of):
    rule, module = RULES[name], module_of(TOGETHER[name, arch], arch)
    ptx_text, ptx = module.ptx(named(name))
    sass_text, sass = module.sass(named(name))
    written, running = list(accesses(ptx)), list(accesses(sass))
    expected = (rule.on_sm_100 if arch == "sm_100" else "") or rule.ptx
    assert counted(written) == read_in_ptx(ptx_text) == counts(expected)
    assert counted(running) == read_in_sass(sass_text) == counts(rule.sass or expected)
    # Where they differ, the rule tells why, and traceview tells the user.
    assert bool(rule.why) == (counted(written) != counted(running))
    changes = {found.change for found in differences([*written, *running])}
    assert changes == ({"narrowed"} if rule.why else set())
    if not rule.why:
        assert counted(written, in_loops=True) == counted(running, in_loops=True)


def _layout(rule: Rule) -> tuple[Any, ...]:
    from triton.experimental.gluon.language import BlockedLayout

    return (BlockedLayout([*rule.layout], [32], [rule.warps], [0]),) if rule.layout else ()


def counts(said: str) -> Counts:
    """What a rule says, counted."""
    found = re.findall(r"([a-z-]+) (\d+) × (\d+)", said)
    return Counter({(kind, int(bits)): int(count) for kind, count, bits in found})


def counted(accesses: Iterable[Access], in_loops: bool = False) -> Counts:
    """What traceview finds in global memory; with `in_loops` only there."""
    found: Counts = Counter()
    for access in accesses:
        if access.space == "global" and (access.loop_depth or not in_loops):
            found[access.kind, access.width_bits] += access.count
    return found


def read_in_ptx(text: str) -> Counts:
    """Global accesses by what stands in the lines of PTX."""
    moves = re.findall(r"\b(ld|st)\.global(?:\.v(\d))?\.[a-z]+(\d+)\s", text)
    copies = re.findall(r"\bcp\.async\.c[ag]\.shared\.global \[.*?\], \[.*?\], 0x([0-9a-f]+)", text)
    assert len(moves) + len(copies) == len(re.findall(r"\b(?:ld|st|atom|red)?\.global\b", text))
    kinds = {"ld": "load", "st": "store"}
    found = Counter((kinds[kind], int(count or 1) * int(bits)) for kind, count, bits in moves)
    return found + Counter(("async-copy", 8 * int(size, 16)) for size in copies)


def read_in_sass(text: str) -> Counts:
    """Global accesses by what stands in the lines that nvdisasm prints."""
    kinds = {"LDG": "load", "STG": "store", "LDGSTS": "async-copy"}
    names = {"U8": 8, "S8": 8, "U16": 16, "S16": 16, "64": 64, "128": 128, "256": 256}
    found = re.findall(r"\*/ +(?:@!?U?P\d )? *(LDG|STG|LDGSTS)\.E((?:\.\w+)*) ", text)
    assert len(found) == len(re.findall(r"\b(?:LDG|STG|LDGSTS|ATOMG|REDG|LD|ST)\.", text))
    return Counter(
        (kinds[kind], next((names[w] for w in words.split(".") if w in names), 32))
        for kind, words in found
    )
