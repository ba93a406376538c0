"""Cubins of the PTX files of the tests, with a kernel of each and its machine code."""

from functools import cache

from tests.inspect.rules.written_ptx import need
from tests.places import PTX_FILES
from traceview.kernels.ptx.cubin import machine_code
from traceview.kernels.ptx.model import Function
from traceview.kernels.toolchain import listings


def assembled(name: str) -> tuple[bytes, Function, bytes]:
    """The cubin of a PTX file, its first kernel in SASS, and the kernel's machine code."""
    need("ptxas", "nvdisasm")
    return _assembled(name)


@cache
def _assembled(name: str) -> tuple[bytes, Function, bytes]:
    cubin = listings.assemble((PTX_FILES / f"{name}.ptx").read_text()).cubin
    kernel = listings.disassemble(cubin).kernels()[0]
    return cubin, kernel, machine_code(cubin, kernel.name)
