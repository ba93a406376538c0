"""Which launches are those of which gathered code."""

import json

import pytest

from tests.build import Export
from traceview.base.errors import InputError, MissingTableError
from traceview.kernels.headless.compile_options import CompileOptions
from traceview.kernels.inspect.target_report import inspect_trace
from traceview.traces.facts.code import gathered_code
from traceview.traces.trace.load import load
from traceview.traces.trace.nsys.added_tables import KERNELS_TABLE

PTX = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry {name}(.param .u64 p)
.reqntid {threads}
{{
    .reg .b64 %rd<3>;
    .reg .f32 %f<3>;
    ld.param.u64 %rd1, [p];
    ld.global.f32 %f1, [%rd1];
    st.global.f32 [%rd1], %f1;
    ret;
}}
"""


def ptx(name="k", threads=128):
    return PTX.format(name=name, threads=threads)


def launch(export, start, end, *, name="k", threads=128, grid=8, shared=0, **columns):
    return export.launch(
        (start, start + 1),
        (start, end),
        name=name,
        blockX=threads,
        blockY=1,
        blockZ=1,
        gridX=grid,
        gridY=1,
        gridZ=1,
        dynamicSharedMemory=shared,
        staticSharedMemory=0,
        **columns,
    )


def launches(code):
    return [(c.compiled.name, c.launches, c.total_ns, c.alike) for c in code.launched]


def test_the_longest_comes_first_and_the_rest_is_told(tmp_path):
    export = Export().code("a", ptx("a"), num_warps=4).code("b", ptx("b")).code("c", ptx("c"))
    launch(export, 0, 10, name="a")
    launch(export, 10, 50, name="b")
    launch(export, 50, 57, name="cublas")
    code = gathered_code(export.load(tmp_path))
    assert launches(code) == [("b", 1, 40, 0), ("a", 1, 10, 0)]
    assert [idle.name for idle in code.idle] == ["c"]
    assert (code.other_ns, code.total_ns, code.unfit) == (7, 57, {})


def test_variants_are_told_apart_by_block_and_shared_memory(tmp_path):
    export = Export()
    export.code("k", ptx(threads=128), hash="1", shared_memory_bytes=0)
    export.code("k", ptx(threads=256), hash="2", shared_memory_bytes=0)
    export.code("k", ptx(threads=256), hash="3", shared_memory_bytes=4096)
    launch(export, 0, 10, threads=256, shared=4096)
    launch(export, 10, 30, threads=256)
    launch(export, 30, 60, threads=128)
    launch(export, 60, 61, threads=512)
    code = gathered_code(export.load(tmp_path))
    told = [
        (c.compiled.dynamic_shared_bytes, ".reqntid 128" in c.compiled.ptx, c.total_ns)
        for c in code.launched
    ]
    assert told == [(0, True, 30), (0, False, 20), (4096, False, 10)]
    assert code.unfit == {"k": 1}


def test_variants_that_nothing_tells_apart_share_their_launches(tmp_path):
    export = Export().code("k", ptx(), hash="1").code("k", ptx(), hash="2")
    launch(launch(export, 0, 10), 10, 20)
    assert launches(gathered_code(export.load(tmp_path))) == [("k", 2, 20, 1), ("k", 2, 20, 1)]


def test_registers_tell_apart(tmp_path):
    assembled = pytest.importorskip("traceview.kernels.toolchain.listings").assemble
    pytest.importorskip("elftools")
    few = assembled(ptx()).cubin
    many = assembled(ptx(), options=["--maxrregcount=24"]).cubin
    from traceview.kernels.ptx.cubin import resources

    registers = resources(few)["k"].registers
    export = Export().code("k", ptx(), few, hash="1").code("k", ptx(), many, hash="2")
    launch(export, 0, 10, registersPerThread=registers)
    launch(export, 10, 12, registersPerThread=200)
    code = gathered_code(export.load(tmp_path))
    same = resources(many)["k"].registers == registers
    assert [c.launches for c in code.launched] == [1] * (1 + same)
    assert code.unfit == {"k": 1}


def test_code_for_another_gpu_does_not_fit(tmp_path):
    export = Export().code("k", ptx(), arch="sm_80").code("k", ptx(), arch="sm_90")
    launch(export, 0, 10)
    code = gathered_code(export.load(tmp_path))
    assert [c.compiled.arch for c in code.launched] == ["sm_90"]


def test_the_most_frequent_grid_is_that_of_the_report(tmp_path):
    export = Export().code("k", ptx())
    for at, grid in enumerate((8, 16, 16, 4)):
        launch(export, 10 * at, 10 * at + 5, grid=grid)
    (code,) = gathered_code(export.load(tmp_path)).launched
    assert (code.compiled.grid, code.grids, code.launches) == ((16, 1, 1), 3, 4)


def test_arguments_and_source(tmp_path):
    signature = [
        {"name": "x", "type": "*fp32", "divisible_by_16": True},
        {"name": "B", "type": "constexpr", "divisible_by_16": False},
    ]
    export = Export().code(
        "k",
        ptx(),
        signature=json.dumps(signature),
        constexprs='{"B": 1024}',
        source_file="~/k.py",
        source_line=3,
        source_text="def k():\n    pass\n",
    )
    (compiled,) = gathered_code(export.load(tmp_path)).idle
    assert [(a.name, a.type, a.divisible_by_16, a.value) for a in compiled.arguments] == [
        ("x", "*fp32", True, None),
        ("B", "constexpr", False, 1024),
    ]
    assert compiled.source_text.splitlines()[2] == "def k():"


@pytest.mark.parametrize("text", ["", "[", "{}", "7", '[1, "x"]', "[" * 100_000])
def test_a_signature_that_is_none_gives_no_arguments(tmp_path, text):
    export = Export().code("k", ptx(), signature=text, constexprs=text)
    (compiled,) = gathered_code(export.load(tmp_path)).idle
    assert compiled.arguments == ()


def test_not_gathered_and_nothing_to_gather_are_told(tmp_path):
    absent = Export().drop(KERNELS_TABLE).load(tmp_path)
    with pytest.raises(MissingTableError):
        gathered_code(absent)
    (tmp_path / "built.sqlite").unlink()
    with pytest.raises(InputError, match="compiled and loaded no Triton kernel"):
        inspect_trace(Export().load(tmp_path), CompileOptions())


def test_the_report_has_the_grid_and_the_waves_of_the_run(tmp_path):
    said = []
    export = Export().code("k", ptx(), num_warps=4).code("idle", ptx("idle"))
    launch(export, 0, 60, grid=132 * 16)
    launch(export, 60, 100, name="cublas")
    report = inspect_trace(export.load(tmp_path), CompileOptions(), note=said.append)
    (kernel,) = report.kernels
    assert (kernel.compiled.grid, kernel.compiled.launches) == ((2112, 1, 1), 1)
    assert kernel.waves == pytest.approx(1.0)
    assert [a.width_bits for a in kernel.accesses if a.level == "ptx"] == [32, 32]
    assert said == [
        "1 variant was compiled but never launched, and not shown; --kernel NAME shows them",
        "40.0 % of kernel time is in kernels without code here: code of libraries (cuBLAS, cuDNN, "
        "ATen) and of CUDA C++ built by nvcc is not recorded",
    ]


def test_one_kernel_by_its_name(tmp_path):
    trace = launch(Export().code("k", ptx()).code("idle", ptx("idle")), 0, 9).load(tmp_path)
    assert [k.name for k in inspect_trace(trace, CompileOptions(kernel="idle")).kernels] == ["idle"]
    with pytest.raises(InputError, match="no code of a kernel 'other'; it has k, idle"):
        inspect_trace(trace, CompileOptions(kernel="other"))
    assert [k.name for k in inspect_trace(trace, CompileOptions(kernel="i*")).kernels] == ["idle"]
    for kernel in (None, "idle", "i*"):
        with pytest.raises(InputError, match="no kernel for sm_80; its kernels are for sm_90"):
            inspect_trace(trace, CompileOptions(arch="sm_80", kernel=kernel))


def test_the_trace_is_a_target(tmp_path):
    import traceview

    export = launch(Export().code("k", ptx()), 0, 9)
    path = export.write(tmp_path / "run.sqlite")
    assert [k.name for k in traceview.inspect_ptx(path).kernels] == ["k"]
    assert traceview.inspect_ptx(path, sm_count=1).kernels[0].waves == pytest.approx(0.5)


def test_code_that_does_not_tell_its_block_has_that_of_its_launches(unpack):
    """gelu_scalar is CUDA C++: blocks of 256 threads, of which an SM holds eight."""
    report = inspect_trace(load(unpack("rates")), CompileOptions(kernel="gelu_scalar"))
    (kernel,) = report.kernels
    assert kernel.compiled.num_warps == 8
    assert kernel.occupancy.blocks_per_sm == 8
    assert kernel.waves == pytest.approx(1_048_576 / (8 * 132))


HELD = {
    "holds no code of its kernels; record again with kernel code": lambda e: launch(e, 0, 10),
    "holds no kernels, only 1 copy, 1 memset, 2 CUDA calls; traceview report": lambda e: e.copy(
        (0, 1), (2, 3)
    ).set((4, 5), (6, 7)),
    "holds no kernels, only 1 CUDA call, 1 range; traceview report": lambda e: e.range(
        "step", 0, 5
    ).call("cudaMalloc", 1, 2),
    "holds no kernels, only nothing": lambda e: e,
}


@pytest.mark.parametrize("said", HELD)
def test_a_recording_without_code_says_what_it_holds(tmp_path, said):
    export = Export().drop(KERNELS_TABLE)
    HELD[said](export)
    with pytest.raises(InputError) as caught:
        inspect_trace(export.load(tmp_path), CompileOptions())
    assert said in str(caught.value)
