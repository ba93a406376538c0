"""The kernels of Triton's tutorials and more, compiled as launched, for each architecture."""

import importlib.util
from collections import Counter

import pytest

from tests.inspect.rules.written_ptx import ARCHES
from tests.oracles.other_ptx_readers import need_pyptx, opcodes_line_by_line, opcodes_of_pyptx
from tests.places import TRITON_KERNELS
from traceview.kernels.headless.compile_options import CompileOptions
from traceview.kernels.inspect.python_targets import compile_python
from traceview.kernels.ptx.accesses import accesses, instruction_mix, tensor_ops
from traceview.kernels.ptx.model import Compiled
from traceview.kernels.ptx.parser import parse_ptx

SCRIPT = TRITON_KERNELS / "tutorials.py"
TENSOR_CORES = {"sm_80": "mma", "sm_90": "wgmma.mma_async", "sm_100": "tcgen05.mma"}

for package in ("torch", "triton"):
    if not importlib.util.find_spec(package):
        pytest.skip(f"launches kernels with {package}", allow_module_level=True)


# All in one test, so that no two workers compile the same.
@pytest.mark.programs
@pytest.mark.parametrize("arch", ARCHES)
def test_all_ptx_is_read_as_others_read_it(arch):
    compiled = compile_python(str(SCRIPT), CompileOptions(arch=arch))
    names = {each.name for each in compiled}
    assert len(names) == SCRIPT.read_text().count("@launches\n") == 15
    for each in compiled:
        check(each)
    products = next(each for each in compiled if each.name == "descriptor_kernel")
    (function,) = parse_ptx(products.ptx).functions
    assert {op.operation for op in tensor_ops(function)} == {TENSOR_CORES[arch]}
    need_pyptx()
    for each in compiled:
        assert opcodes(each.ptx) == opcodes_of_pyptx(each.ptx), each.name


def check(compiled: Compiled) -> None:
    (function,) = parse_ptx(compiled.ptx, compiled.name).functions
    assert (function.name, function.is_entry) == (compiled.name, True)
    ours, theirs = opcodes(compiled.ptx), opcodes_line_by_line(compiled.ptx)
    assert ours == Counter({op: count for op, count in theirs.items() if op in ours})
    assert sum(instruction_mix(function).values()) == len(function.instructions)
    places = {access.source for access in accesses(function) if access.space == "global"}
    assert {place.file for place in places} == {str(SCRIPT)}


def opcodes(text: str) -> Counter[str]:
    return Counter(i.opcode for f in parse_ptx(text).functions for i in f.instructions)
