"""The same script on each architecture: tensor cores, copies and widths, with any Triton."""

import importlib.util
from collections import defaultdict

import pytest

from tests.places import TRITON_KERNELS
from traceview.kernels.headless.compile_options import CompileOptions
from traceview.kernels.inspect.python_targets import compile_python
from traceview.kernels.ptx.accesses import accesses, tensor_ops
from traceview.kernels.ptx.model import Compiled
from traceview.kernels.ptx.parser import parse_ptx

SCRIPT = TRITON_KERNELS / "architectures.py"
MMA = {("mma", "m16n8k16")}
# In descriptors, so that the opcode does not tell it.
TCGEN05 = {("tcgen05.mma", None)}
WGMMA = {("wgmma.mma_async", "m64n128k16")}
# From the documentation of PTX and of Triton: A100 and the consumer GPUs have mma alone, Hopper
# wgmma and TMA, B200 tcgen05; sm_120 has TMA and mma, without tcgen05. A scaled product is
# kind::mxf8f6f4, of depth 32.
TENSOR_CORES = {
    **{arch: {"gelu": set(), "product": MMA} for arch in ("sm_80", "sm_86", "sm_89")},
    "sm_90": {
        "gelu": set(),
        "product": WGMMA,
        "tma_copy": set(),
        "gluon_wgmma": {("wgmma.mma_async", "m64n64k16")},
    },
    "sm_100": {
        "gelu": set(),
        "product": TCGEN05,
        "tma_copy": set(),
        "specialized_product": TCGEN05,
        "scaled_product": TCGEN05,
        "gluon_tcgen05": TCGEN05,
    },
    "sm_120": {
        "gelu": set(),
        "product": MMA,
        "tma_copy": set(),
        "specialized_product": MMA,
        "scaled_product": {("mma", "m16n8k32")},
    },
}
TMA = {("async-copy", None)}
COPIED = {("async-copy", 128), ("store", 128)}
# What moves in global memory. A row of scales is four bytes; a thread of wgmma holds pairs of
# elements, and one of tcgen05 a row.
MOVED = {
    "gelu": {("load", 128), ("store", 128)},
    "product": COPIED,
    "tma_copy": TMA,
    "specialized_product": TMA,
    "scaled_product": {("load", 128), ("load", 32), ("store", 128)},
    "gluon_wgmma": TMA | {("store", 64)},
    "gluon_tcgen05": TMA | {("store", 128)},
}

for package in ("torch", "triton"):
    if not importlib.util.find_spec(package):
        pytest.skip(f"launches kernels with {package}", allow_module_level=True)


# Those with instructions of their own for tensor cores; each script is compiled anew for each.
ARCHES = [
    pytest.param(arch, marks=() if arch in ("sm_90", "sm_100") else pytest.mark.programs)
    for arch in TENSOR_CORES
]


@pytest.mark.parametrize("arch", ARCHES)
def test_features_of_an_architecture(arch):
    kernels = compile_python(str(SCRIPT), CompileOptions(arch=arch, timeout_s=300))
    operations, moved = defaultdict(set), defaultdict(set)
    for compiled in kernels:
        assert compiled.arch.rstrip("af") == arch
        operations[compiled.name] |= tensor_cores(compiled)
        moved[compiled.name] |= global_widths(compiled)
    assert dict(operations) == TENSOR_CORES[arch]
    assert dict(moved) == {name: MOVED[name] for name in TENSOR_CORES[arch]}


def entry(compiled: Compiled):
    (function,) = parse_ptx(compiled.ptx, compiled.name).kernels()
    return function


def tensor_cores(compiled: Compiled) -> set[tuple[str, str | None]]:
    return {(op.operation, op.shape) for op in tensor_ops(entry(compiled))}


def global_widths(compiled: Compiled) -> set[tuple[str, int | None]]:
    found = accesses(entry(compiled))
    lines = {access.source.file for access in found if access.space == "global"}
    assert lines == {str(SCRIPT)}
    return {(access.kind, access.width_bits) for access in found if access.space == "global"}
