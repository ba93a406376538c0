"""Cache folders as Triton 3.6 to 3.9 write them."""

import json

import pytest

from traceview.base.errors import InputError
from traceview.kernels.headless.compile_options import CompileOptions
from traceview.kernels.inspect.python_targets import read_cache
from traceview.kernels.inspect.targets import kernels_of
from traceview.kernels.ptx.model import Argument

IR = """\
#loc = loc("/home/user/gelu.py":9:0)
#loc17 = loc("x_ptr"(#loc))
module {
  tt.func public @gelu_kernel(%x_ptr: !tt.ptr<f32> {tt.divisibility = 16 : i32} \
loc("x_ptr"(#loc)), %y_ptr: !tt.ptr<bf16> loc("y_ptr"(#loc)), %n: i32 \
{tt.divisibility = 8 : i32} loc("n"(#loc)), %eps: f32 loc("eps"(#loc))) \
attributes {noinline = false} {
    %offs = tt.get_program_id x : i32 loc(#loc19)
"""


def described(name="gelu_kernel", backend="cuda"):
    target = {"backend": backend, "arch": 90, "warp_size": 32}
    return {"name": name, "target": target, "num_warps": 4, "num_stages": 3, "shared": 2048}


@pytest.fixture
def entry(tmp_path):
    folder = tmp_path / "0" / "HMEQGMK2"
    folder.mkdir(parents=True)
    (folder / "gelu_kernel.json").write_text(json.dumps(described()))
    (folder / "__grp__gelu_kernel.json").write_text('{"child_paths": {}}')
    (folder / "gelu_kernel.ptx").write_text("// the code")
    (folder / "gelu_kernel.cubin").write_bytes(b"\x7fELF")
    (folder / "gelu_kernel.ttir").write_text(IR)
    return folder


def test_a_kernel_is_read_whole(tmp_path, entry):
    (compiled,) = read_cache(tmp_path)
    assert (compiled.name, compiled.arch, compiled.how) == ("gelu_kernel", "sm_90", "given")
    assert (compiled.ptx, compiled.cubin) == ("// the code", b"\x7fELF")
    assert (compiled.num_warps, compiled.num_stages) == (4, 3)
    assert compiled.dynamic_shared_bytes == 2048
    assert (compiled.source_file, compiled.source_line) == ("/home/user/gelu.py", 9)
    assert compiled.grid is None


def test_arguments_come_from_the_ir(entry):
    assert read_cache(entry)[0].arguments == (
        Argument("x_ptr", "*fp32", divisible_by_16=True),
        Argument("y_ptr", "*bf16"),
        Argument("n", "i32"),
        Argument("eps", "fp32"),
    )


def test_without_ir_the_code_is_still_read(entry):
    (entry / "gelu_kernel.ttir").unlink()
    (compiled,) = read_cache(entry)
    assert (compiled.arguments, compiled.source_file) == ((), None)


def test_a_cubin_alone_will_do(entry):
    (entry / "gelu_kernel.ptx").unlink()
    assert read_cache(entry)[0].ptx is None


def test_a_damaged_entry_is_named_and_left_out(tmp_path, entry):
    other = tmp_path / "B"
    other.mkdir()
    (other / "broken.json").write_text('{"name": "bro')
    (other / "broken.ptx").write_text("")
    notes = []
    assert len(read_cache(tmp_path, note=notes.append)) == 1
    assert len(notes) == 1
    assert "broken.json is left out" in notes[0]


def test_kernels_of_other_makers_are_passed_over(entry):
    (entry / "gelu_kernel.json").write_text(json.dumps(described(backend="hip")))
    with pytest.raises(InputError, match="no CUDA kernel"):
        read_cache(entry)


def test_one_kernel_by_name_or_glob_and_those_of_an_architecture(tmp_path, entry):
    for options in ({"kernel": "gelu_kernel"}, {"kernel": "ge*"}, {"arch": "sm_90"}):
        assert len(kernels_of(str(tmp_path), CompileOptions(**options))) == 1
    with pytest.raises(InputError, match=r"no kernel 'gelo'; it has gelu_kernel"):
        kernels_of(str(tmp_path), CompileOptions(kernel="gelo"))
    with pytest.raises(InputError, match=r"no kernel for sm_80; its kernels are for sm_90"):
        kernels_of(str(tmp_path), CompileOptions(arch="sm_80"))


def test_an_empty_folder_and_no_folder(tmp_path):
    with pytest.raises(InputError, match="TRITON_CACHE_DIR"):
        read_cache(tmp_path)
    with pytest.raises(InputError, match="not a folder"):
        read_cache(tmp_path / "none")


def test_what_triton_writes_is_what_is_read(tmp_path, monkeypatch):
    # Without it, 3.9 warns that its default is to change.
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    triton = pytest.importorskip("triton", reason="compiles with Triton")
    compiler = pytest.importorskip("triton.compiler")
    from traceview.kernels.headless.fakes.triton_driver import Gpu
    from traceview.kernels.headless.worker.jit_functions import Jitted, compile_for

    (tmp_path / "kernel.py").write_text(KERNEL)
    names: dict = {"__name__": "cached"}
    path = str(tmp_path / "kernel.py")
    exec(compile(KERNEL, path, "exec"), names)
    arguments = (
        Argument("x_ptr", "*fp16", divisible_by_16=True),
        Argument("n", "i32"),
        Argument("BLOCK", "constexpr", value=64),
    )
    with triton.knobs.cache.scope():
        triton.knobs.cache.dir = str(tmp_path / "cache")
        compile_for(Gpu("8.0").target, Jitted(names["kernel"]), arguments, {"num_warps": 2})
    (compiled,) = read_cache(tmp_path / "cache")
    assert compiler is not None
    assert (compiled.name, compiled.arch, compiled.num_warps) == ("kernel", "sm_80", 2)
    assert compiled.arguments == arguments[:2]
    assert (compiled.source_file, compiled.source_line) == (path, 5)
    assert compiled.cubin is not None


KERNEL = """\
import triton
import triton.language as tl

@triton.jit
def kernel(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, 0.0, mask=offsets < n)
"""
