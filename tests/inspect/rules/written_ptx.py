"""Small PTX kernels, each made for one thing, and the tools that the tests need."""

import re
import shutil
from collections.abc import Sequence

import pytest

from traceview.base.errors import ToolNotFoundError
from traceview.kernels.toolchain import tools as programs

ARCHES = ("sm_80", "sm_90", "sm_100")


def need(*tools: str) -> None:
    """Skip where one of NVIDIA's tools is missing."""
    for tool in tools:
        try:
            programs.find(tool)
        except ToolNotFoundError as error:
            pytest.skip(str(error))


def need_compiler() -> None:
    if not (shutil.which("nvcc") and shutil.which("g++")):
        pytest.skip("no nvcc with a host compiler here")


def kernel(
    body: str, name: str = "k", target: str = "sm_80", head: str = "", limits: str = ""
) -> str:
    """PTX of one kernel with pointers p and q and the number n; %r, %rd, %f, %p are declared."""
    return f""".version 8.0
.target {target}
.address_size 64
{head}
.visible .entry {name}(.param .u64 p, .param .u64 q, .param .u32 n) {limits}
{{
    .reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<200>; .reg .b64 %rd<20>; .reg .f32 %f<200>;
    ld.param.u64 %rd1, [p]; ld.param.u64 %rd2, [q]; ld.param.u32 %r1, [n];
    cvta.to.global.u64 %rd1, %rd1; cvta.to.global.u64 %rd2, %rd2;
{body}
    ret;
}}
"""


def lines(template: str, numbers: Sequence[int]) -> str:
    return "\n".join(template.format(i=i, byte=4 * i) for i in numbers)


COPY = kernel(
    "ld.global.v4.b32 {%r2,%r3,%r4,%r5}, [%rd1]; st.global.v4.b32 [%rd2], {%r2,%r3,%r4,%r5};"
)
BOUNDED = kernel("ld.global.b32 %r2, [%rd1]; st.global.b32 [%rd2], %r2;", limits=".maxntid 96, 2")
REQUIRED = kernel("ld.global.b32 %r2, [%rd1]; st.global.b32 [%rd2], %r2;", limits=".reqntid 128")
SHARED = kernel(
    """
    .shared .align 4 .b8 tile[1536];
    mov.u32 %r2, %tid.x; mov.u32 %r3, tile; mad.lo.u32 %r3, %r2, 4, %r3;
    ld.global.b32 %r4, [%rd1]; st.shared.b32 [%r3], %r4; bar.sync 0;
    ld.shared.b32 %r5, [%r3+4]; bar.sync 5; st.global.b32 [%rd2], %r5;
    """
)
DYNAMIC = kernel(
    "ld.shared.b32 %r2, [room]; st.global.b32 [%rd2], %r2;",
    head=".extern .shared .align 16 .b8 room[];",
)
LOAD = "ld.volatile.global.f32 %f{i}, [%rd1+{byte}];"
STORE = "st.volatile.global.f32 [%rd2+{byte}], %f{i};"
FILL = "ld.global.f32 %f{i}, [%rd1+{byte}]; st.local.f32 [depot+{byte}], %f{i};"
# Read through a generic address that is only known at run time: it must be in memory.
IN_ARRAY = f"""
    .local .align 16 .b8 depot[128];
    {lines(FILL, range(32))}
    mov.u64 %rd3, depot; cvta.local.u64 %rd3, %rd3; st.global.u64 [%rd2+512], %rd3;
    mul.wide.u32 %rd4, %r1, 4; add.u64 %rd3, %rd3, %rd4;
    ld.volatile.b32 %r4, [%rd3]; st.global.b32 [%rd2], %r4;
"""
# Values that live across a barrier, more than there are registers.
ALIVE = f"{lines(LOAD, range(120))}\nbar.sync 0;\n{lines(STORE, range(120))}"
ARRAY = kernel(IN_ARRAY)
SPILLING = kernel(ALIVE, limits=".maxnreg 32")
BOTH = kernel(IN_ARRAY + ALIVE, limits=".maxnreg 32")
KERNELS = {
    "copy": COPY,
    "bounded": BOUNDED,
    "required": REQUIRED,
    "shared": SHARED,
    "dynamic": DYNAMIC,
    "array": ARRAY,
    "spilling": SPILLING,
    "both": BOTH,
}

# All of them in one module, each under its own name.
HEADER = kernel("").split(".visible")[0]
MODULE = HEADER + "\n".join(
    text.removeprefix(HEADER.rstrip()).replace(".entry k(", f".entry {name}(")
    for name, text in KERNELS.items()
)

# The first product is read before it is waited for, which every ptxas remarks on.
SERIALISED = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry serial(.param .u64 p, .param .u64 d)
{
    .reg .b64 %rd<4>; .reg .f32 %f<9>;
    ld.param.u64 %rd1, [p]; ld.param.u64 %rd2, [d];
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1,%f2,%f3,%f4}, %rd2, %rd2, 1, 1, 1, 0, 0;
    st.global.f32 [%rd1], %f2;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1,%f2,%f3,%f4}, %rd2, %rd2, 1, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    st.global.v4.f32 [%rd1], {%f1,%f2,%f3,%f4};
    ret;
}
"""


def spills_counted(assembled):
    """The bytes of spill stores and loads of each function, as ptxas counts them."""
    counted = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", assembled.log)
    return [(int(stored), int(loaded)) for stored, loaded in counted]
