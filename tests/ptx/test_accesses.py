"""Every kind of memory access, by its opcode; counting; the mix; tensor cores."""

import pytest

from traceview.kernels.ptx.accesses import FAMILIES, TensorOp, accesses, instruction_mix, tensor_ops
from traceview.kernels.ptx.lexer import family
from traceview.kernels.ptx.model import SourceLine
from traceview.kernels.ptx.parser import parse_ptx


def function(body):
    text = f".version 9.0\n.target sm_100a\n.entry k() {{\n{body}\n}}\n"
    return parse_ptx(text + '.file 1 "k.py"\n').functions[0]


def only(instruction):
    (access,) = accesses(function(instruction))
    return access


MOVES = {
    ("load", "global", 32): [
        "ld.global.b32 %r1, [%rd1];",
        "ld.acquire.gpu.global.u32 a, [b];",
    ],
    ("load", "global", 128): [
        "ld.global.v4.b32 {a, b, c, d}, [%rd1];",
        "ld.global.nc.L2::128B.v2.u64 {a, b}, [c];",
        "multimem.ld_reduce.global.add.v4.f32 {a}, [b];",
        "wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {a, b, c, d}, [e], f;",
    ],
    ("load", "global", 256): [
        "ld.global.v8.f32 {a, b, c, d, e, f, g, h}, [%rd1];",
    ],
    ("load", "global", 64): [
        "ld.global.L1::evict_first.L2::cache_hint.v4.b16 {a}, [b], c;",
    ],
    ("load", "generic", 128): [
        "ld.b128 a, [b];",
    ],
    ("load", "global", 8): [
        "ldu.global.u8 a, [b];",
    ],
    ("load", "shared", 128): [
        "ld.shared::cluster.v2.f64 {a, b}, [c];",
        "ldmatrix.sync.aligned.m8n8.x4.trans.shared::cta.b16 {a}, [b];",
        "ldmatrix.sync.aligned.m16n16.x2.trans.shared.b8 {a}, [b];",
    ],
    ("load", "local", 32): [
        "ld.local.bf16x2 a, [b];",
    ],
    ("store", "shared", 128): [
        "st.v4.shared.b32 [a], {b, c, d, e};",
    ],
    ("store", "shared", 64): [
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [a], {b, c}, [d];",
        "stmatrix.sync.aligned.m8n8.x2.shared.b16 [a], {b, c};",
    ],
    ("store", "shared", None): [
        "st.bulk.shared::cta [a], b, 0;",
    ],
    ("atomic", "global", 32): [
        "atom.global.gpu.acq_rel.add.u32 a, [b], c;",
    ],
    ("atomic", "shared", 64): [
        "atom.shared.cas.b64 a, [b], c, d;",
    ],
    ("atomic", "global", 128): [
        "atom.global.v4.f32.add a, [b], {c, d, e, f};",
    ],
    ("reduction", "global", 64): [
        "red.global.add.noftz.v2.f16x2 [a], {b, c};",
    ],
    ("reduction", "global", 32): [
        "multimem.red.global.add.f32 [a], b;",
    ],
    ("async-copy", "global", 128): [
        "cp.async.cg.shared.global [ %r1 + 0 ], [ %rd1 + 0 ], 0x10, 0x10;",
    ],
    ("async-copy", "global", 32): [
        "cp.async.ca.shared.global.L2::128B [a], [b+8], 4, %r1;",
    ],
    ("async-copy", "global", None): [
        "cp.async.ca.shared.global [a], [b], n;",
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [a], [b], 512, [c];",
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [a, {b, c}], [d];",
    ],
    ("async-copy", "shared", None): [
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [a], [b], n, c;",
    ],
    ("prefetch", "global", None): [
        "cp.async.bulk.prefetch.tensor.2d.L2.global.tile [a, {b, c}];",
        "prefetch.global.L2 [a];",
    ],
    ("reduction", "global", None): [
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [a], [b], 64;",
    ],
    ("prefetch", "generic", None): [
        "prefetchu.L1 [a];",
    ],
    ("load", "shared", 32): [
        "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {a}, [b];",
    ],
    ("load", "texture", None): [
        "tex.2d.v4.f32.f32 {a, b, c, d}, [e, {f, g}];",
        "tex.level.a2d.v4.u32.f32 {a, b, c, d}, [e, f, {g, h, i, j}], k;",
        "tld4.r.2d.v4.f32.f32 {a, b, c, d}, [e, {f, g}];",
    ],
    ("load", "surface", 128): [
        "suld.b.2d.v4.b32.trap {a, b, c, d}, [e, {f, g}];",
        "suld.b.1d.v2.b64.zero {a, b}, [c, {d}];",
    ],
    ("load", "surface", 8): [
        "suld.b.1d.b8.clamp {a}, [b, {c}];",
    ],
    ("store", "surface", 64): [
        "sust.b.3d.v2.b32.trap [a, {b, c, d, e}], {f, g};",
    ],
    ("store", "surface", None): [
        "sust.p.2d.v4.b32.trap [a, {b, c}], {d, e, f, g};",
    ],
    ("reduction", "surface", 64): [
        "sured.b.add.1d.u64.trap [a, {b}], c;",
    ],
}


@pytest.mark.parametrize(
    ("instruction", "moved"),
    [(instruction, moved) for moved, each in MOVES.items() for instruction in each],
)
def test_what_moves(instruction, moved):
    access = only(instruction)
    assert (access.kind, access.space, access.width_bits) == moved
    assert (access.level, access.count, access.predicated) == ("ptx", 1, False)


@pytest.mark.parametrize(
    "instruction",
    [
        "ld.param.b64 %rd1, [k_param_0];",
        "st.param.b32 [param0], %r1;",
        "ld.const.f32 a, [b];",
        "cp.async.commit_group;",
        "cp.async.wait_group 0;",
        "cp.async.bulk.wait_group.read 0;",
        "cp.async.mbarrier.arrive.noinc.shared.b64 [a];",
        "mbarrier.init.shared::cta.b64 [a], 1;",
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {a}, b, c, 1, 1, 1, 0, 0;",
        "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {a}, {b}, {c}, {d};",
        "prefetch.const.tensormap [a];",
        "txq.width.b32 a, [b];",
        "suq.width.b32 a, [b];",
        "multimem;",
    ],
)
def test_what_moves_nothing_that_counts(instruction):
    assert accesses(function(instruction)) == ()


@pytest.mark.parametrize(
    ("instruction", "scope", "hints"),
    [
        ("atom.global.add.u32 a, [b], c;", "gpu", ()),
        ("atom.global.sys.acq_rel.add.u32 a, [b], c;", "sys", ()),
        ("red.shared::cta.cta.add.u32 [b], c;", "cta", ()),
        ("sured.b.add.2d.u32.trap [a, {b, c}], d;", None, ()),
        ("ld.global.u32 a, [b];", None, ()),
        ("ld.acquire.cluster.global.u32 a, [b];", "cluster", ()),
        ("ld.global.cs.nc.L1::no_allocate.u32 a, [b];", None, ("cs", "nc", "L1::no_allocate")),
        ("st.wt.global.L2::cache_hint.u32 [b], c, d;", None, ("wt", "L2::cache_hint")),
    ],
)
def test_scope_and_hints(instruction, scope, hints):
    access = only(instruction)
    assert (access.scope, access.hints) == (scope, hints)


def test_equal_accesses_of_a_line_are_counted_together():
    load = "ld.global.b32 a, [b];"
    rows = accesses(
        function(
            f".loc 1 3 1\n{load} {load} @%p {load}\n.loc 1 4 1\n L: {load} @%p bra L;\n"
            "cp.async.ca.shared.global [a], [b], 4; cp.async.ca.shared.global [a], [b], 8;"
        )
    )
    assert [(r.source, r.predicated, r.loop_depth, r.width_bits, r.count) for r in rows] == [
        (SourceLine("k.py", 3), False, 0, 32, 2),
        (SourceLine("k.py", 3), True, 0, 32, 1),
        (SourceLine("k.py", 4), False, 1, 32, 1),
        (SourceLine("k.py", 4), False, 0, 32, 1),
        (SourceLine("k.py", 4), False, 0, 64, 1),
    ]


@pytest.mark.parametrize(
    ("opcode", "expected"),
    [
        ("ld.global.v4.b32", "load"),
        ("ld.param.b32", "other"),
        ("stmatrix.sync.aligned.m8n8.x2.shared.b16", "store"),
        ("cp.async.wait_group", "async-copy"),
        ("red.global.add.f32", "atomic"),
        ("multimem.ld_reduce.global.add.f32", "load"),
        ("multimem.red.global.add.f32", "atomic"),
        ("tcgen05.mma.cta_group::1.kind::f16", "tensor-core"),
        ("shfl.sync.bfly.b32", "shuffle"),
        ("fence.proxy.async", "barrier"),
        ("ex2.approx.ftz.f32", "special-function"),
        ("fma.rn.f32", "float"),
        ("max.bf16x2", "float"),
        ("mad.lo.s32", "integer"),
        ("and.pred", "integer"),
        ("set.lt.u32.f32", "float"),
        ("cvt.rn.f16x2.f32", "conversion"),
        ("bra.uni", "control"),
        ("mov.b32", "other"),
        ("frobnicate.f32", "other"),
    ],
)
def test_families(opcode, expected):
    assert family(opcode) == expected


def test_the_mix_counts_every_instruction_once():
    mix = instruction_mix(function("mov.b32 a, b; add.f32 a, b, c; add.s32 a, b, c; ret;"))
    assert tuple(mix) == FAMILIES
    assert {name: n for name, n in mix.items() if n} == {
        "integer": 1,
        "float": 1,
        "control": 1,
        "other": 1,
    }


def test_tensor_operations_with_shapes_and_types():
    body = """
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {a}, {b}, {c}, {d};
        mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {a}, {b}, {c}, {d};
        mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {a}, {b}, {c}, {d};
        L: wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {a}, b, c, 1, 1, 1;
        @%p bra L;
        wgmma.fence.sync.aligned;
        tcgen05.mma.cta_group::1.kind::f16 [a], b, c, d, e;
        tcgen05.ld.sync.aligned.32x32b.x32.b32 {a}, [b];
        wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {a}, {b}, {c}, {d};
    """
    assert tensor_ops(function(body)) == (
        TensorOp("mma", "m16n8k16", ("f32", "bf16", "bf16", "f32"), 0, 2),
        TensorOp("mma.sp", "m16n8k32", ("f32", "f16", "f16", "f32"), 0, 1),
        TensorOp("wgmma.mma_async", "m64n128k32", ("f32", "e4m3", "e4m3"), 1, 1),
        TensorOp("tcgen05.mma", None, ("kind::f16",), 0, 1),
        TensorOp("wmma.mma", "m16n16k16", ("f32", "f32"), 0, 1),
    )
