"""Recordings of kernels that load and store once per thread, with their code."""

from tests.build import Export
from tests.ptx.compiled_kernels import HEADER
from traceview.traces.analyses.base import Result
from traceview.traces.analyses.load_widths import ANALYSIS

PEAK = 1_000_000_000_000

GPU = {"memoryBandwidth": PEAK, "smCount": 100, "clockRate": 1_000_000_000}

THREADS = 128


def ptx(name="k", bits=32, more="", loop=False):
    """Loads and stores once a thread; `loop` puts both into a loop."""
    data = {32: "%r3", 64: "{%r3,%r4}", 128: "{%r3,%r4,%r5,%r6}"}[bits]
    kind = {32: "b32", 64: "v2.b32", 128: "v4.b32"}[bits]
    loop_start, loop_end = ("L:", "@%p1 bra L;") if loop else ("", "")
    return f"""{HEADER}
.visible .entry {name}(.param .u64 x, .param .u64 y)
{{
    .reg .pred %p<3>; .reg .b32 %r<20>; .reg .b64 %rd<20>;
    .loc 1 6 0
    ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y];
    mov.u32 %r1, %tid.x;
    mad.wide.s32 %rd3, %r1, {bits // 8}, %rd1; mad.wide.s32 %rd4, %r1, {bits // 8}, %rd2;
    {loop_start}
    .loc 1 7 0
    ld.global.{kind} {data}, [%rd3];
    {more}
    .loc 1 8 0
    st.global.{kind} [%rd4], {data};
    {loop_end}
    ret;
}}
.file 1 "/home/user/{name}.cu"
"""


def launched(export, start, took, *, name="k", blocks=100_000, threads=THREADS, **columns):
    block = {"blockX": threads, "gridX": blocks, "staticSharedMemory": 0, "dynamicSharedMemory": 0}
    rest = {"blockY": 1, "blockZ": 1, "gridY": 1, "gridZ": 1}
    span = (start, start + took)
    return export.launch((start, start + 1), span, name=name, **{**block, **rest, **columns})


def export():
    return Export().gpu(0, **GPU)


def loaded(export, folder):
    """The trace, from a folder of its own: a test may build several."""
    own = folder / str(len(list(folder.iterdir())))
    own.mkdir()
    return export.load(own)


def answer(export, folder) -> Result:
    outcome = ANALYSIS.run(loaded(export, folder))
    assert isinstance(outcome, Result)
    return outcome


def costs(outcome, *columns):
    return [tuple(row[c] for c in columns) for row in outcome.tables["costs"].rows()]


def moved(calls=1, blocks=100_000, bytes_each=8):
    return calls * blocks * THREADS * bytes_each


def ns_of(share, blocks=100_000, bytes_each=8):
    """How long a launch takes that moves its bytes at that share of the peak."""
    return round(moved(1, blocks, bytes_each) / PEAK * 1e9 / share)
