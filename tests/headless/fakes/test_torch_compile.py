"""What torch.compile generates, without a GPU; for builds of PyTorch with CUDA and without."""

import importlib.util
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.headless.forked_workers import fresh_start
from traceview.base.errors import InputError
from traceview.kernels.headless import client
from traceview.kernels.headless.compile_options import CompileOptions
from traceview.kernels.headless.events import Generated, places_in
from traceview.kernels.inspect.python_targets import compile_python
from traceview.kernels.ptx.model import Compiled

TESTED = ("2.11", "2.13")


def release_of_torch() -> str:
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("triton") is None:
        return ""
    from importlib.metadata import version

    return ".".join(version("torch").split(".")[:2])


compiles = pytest.mark.skipif(
    release_of_torch() not in TESTED,
    reason=f"--compile is experimental: tested with PyTorch {' and '.join(TESTED)}, with Triton",
)
FORWARD = """\
import torch

@torch.compile
def activated(x, y):
    return torch.nn.functional.gelu(x, approximate="tanh") * y

x = torch.randn(1024, 1000, device="cuda")
activated(x, torch.randn(1024, 1000, device="cuda"))
"""
TRAINING = """\
import torch

model = torch.nn.Sequential(
    torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.LayerNorm(512), torch.nn.Linear(512, 10)
).cuda()
step = torch.compile(model, mode="reduce-overhead")
for _ in range(2):
    x = torch.randn(64, 256, device="cuda") + torch.zeros(256).cuda()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        step(x).sum().backward()
"""
CALLS_ITS_OWN = """\
import torch, triton, triton.language as tl

@triton.jit
def add_one(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    tl.store(x_ptr + offsets, tl.load(x_ptr + offsets, mask=inside) + 1, mask=inside)

@torch.compile(dynamic=False)
def both(x):
    y = x.sin()
    add_one[(8,)](y, 4096, BLOCK=512)
    return y.cos()

both(torch.empty(4096, device="cuda"))
"""
STEPS = """\
import torch

model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Dropout(0.1)).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=torch.tensor(1e-3, device="cuda"))
scaler, compiled = torch.amp.GradScaler("cuda"), torch.compile(model)
for rows in (32, 48, 56):
    loss = compiled(torch.randn(rows, 64, device=torch.accelerator.current_accelerator())).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()

@torch.compile(fullgraph=False)
def update():
    optimizer.step()

update()
"""
STREAMS = """\
import torch

side = torch.cuda.Stream()

@torch.compile
def aside(x):
    with torch.cuda.stream(side):
        return x.sin() * 2

aside(torch.randn(1000, device="cuda"))
"""
# Keep what Inductor made as it lays it out where TRITON_CACHE_DIR is not set.
KEEP = """
import os, shutil
shutil.copytree(os.environ["TORCHINDUCTOR_CACHE_DIR"], "{0}")
shutil.copytree(os.environ["TRITON_CACHE_DIR"], "{0}/triton/0")
"""


@pytest.fixture
def script(tmp_path):
    def write(text: str) -> str:
        (tmp_path / "script.py").write_text(text)
        return str(tmp_path / "script.py")

    return write


@dataclass(frozen=True)
class Run:
    """A script that was compiled: its kernels, its notes, and a copy of Inductor's cache."""

    compiled: list[Compiled]
    notes: list[str]
    cache: Path


@pytest.fixture(scope="module")
def forward(tmp_path_factory):
    """FORWARD, compiled once for the tests that look at it, in a worker that starts afresh."""
    folder, notes = tmp_path_factory.mktemp("forward"), list[str]()
    cache = folder / "torchinductor_user"
    (folder / "script.py").write_text(FORWARD + KEEP.format(cache))
    with pytest.MonkeyPatch.context() as patch:
        # Triton then has a cache of this program alone.
        patch.setenv("TRACEVIEW_CACHE_DIR", "")
        patch.setattr(client, "_start", fresh_start)
        options = CompileOptions(compile_torch=True)
        compiled = compile_python(str(folder / "script.py"), options, note=notes.append)
    return Run(compiled, notes, cache)


@pytest.mark.programs
@compiles
def test_generated_kernels_are_compiled_as_they_launch(forward):
    first, second = forward.compiled
    assert forward.notes == [
        "--compile is experimental (tested with PyTorch 2.11 and 2.13): where Inductor selects by "
        "timing, its first candidate is shown as launched",
        "script.py: 1 kernel in 2 variants compiled as launched",
    ]
    assert first.name == second.name == "triton_poi_fused_gelu_mul_0"
    assert (first.launches, second.launches) == (1, 0)
    values = {argument.name: argument.value for argument in first.arguments}
    assert first.grid == (1024 * 1000 // values["XBLOCK"], 1, 1)
    assert values["xnumel"] == 1024 * 1000
    assert "ld.global.v4.b32" in first.ptx
    assert first.cubin.startswith(b"\x7fELF")


@pytest.mark.programs
@compiles
def test_the_generated_source_outlives_its_folder(forward):
    compiled = forward.compiled[0]
    assert not Path(compiled.source_file).exists()
    definition = compiled.source_text.splitlines()[compiled.source_line - 1]
    assert definition.startswith("def triton_poi_fused_gelu_mul_0(")
    assert compiled.texts == {compiled.source_file: compiled.source_text}
    assert "its operations are at script.py:5" in compiled.notes
    assert "generated by torch.compile for aten.gelu, aten.mul" in compiled.notes


@pytest.mark.programs
@compiles
def test_options_that_do_not_reach_generated_kernels(script):
    notes = []
    compile_python(
        script(FORWARD), CompileOptions(compile_torch=True, num_warps=1), note=notes.append
    )
    assert notes[0].endswith(
        "; --num-warps, --num-stages and --constexpr do not affect its kernels"
    )


@pytest.mark.programs
@compiles
def test_a_training_step_forward_and_backward(script):
    compiled = compile_python(script(TRAINING), CompileOptions(compile_torch=True))
    launched = [each for each in compiled if each.launches]
    assert {each.launches for each in launched} == {2}
    said = " ".join(note for each in launched for note in each.notes)
    assert "aten.native_layer_norm" in said
    assert "aten.gelu_backward" in said
    assert "aten.native_layer_norm_backward" in said


@pytest.mark.programs
@compiles
def test_an_optimizer_a_scaler_and_shapes_that_change(script, capfd):
    compiled = compile_python(script(STEPS), CompileOptions(compile_torch=True))
    launched = [(each.name, each.launches) for each in compiled if each.launches]
    forward = [n for name, n in launched if name.startswith("triton_poi_fused_addmm")]
    # Once for 32 rows, then twice for any number of them.
    assert forward == [1, 2]
    assert any(name.startswith("triton_for_") for name, _ in launched)
    said = " ".join(note for each in compiled for note in each.notes)
    assert "aten.native_dropout_backward, aten.threshold_backward" in said
    assert "registered kernel" not in capfd.readouterr().err


@pytest.mark.programs
@compiles
@pytest.mark.usefixtures("fresh_workers")
def test_streams_in_a_compiled_function_are_refused_in_one_line(script):
    """Dynamo takes the classes of streams as it is imported."""
    with pytest.raises(InputError) as caught:
        compile_python(script(STREAMS), CompileOptions(compile_torch=True))
    assert "--compile cannot follow the CUDA streams of a compiled function" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.programs
@compiles
def test_a_kernel_of_the_users_among_generated_ones(script):
    compiled = compile_python(script(CALLS_ITS_OWN), CompileOptions(compile_torch=True))
    launched = {each.name: each.grid for each in compiled if each.launches}
    assert launched["add_one"] == (8, 1, 1)
    assert any("sin" in name for name in launched)
    assert any("cos" in name for name in launched)


@pytest.mark.programs
@compiles
def test_a_cache_of_inductors_is_a_target(forward, tmp_path):
    from traceview.kernels.inspect.python_targets import read_cache

    launched, cache = forward.compiled, tmp_path / "torchinductor_user"
    shutil.copytree(forward.cache, cache)
    found = read_cache(cache)
    assert {each.ptx for each in found} == {each.ptx for each in launched}
    assert {each.cubin for each in found} == {each.cubin for each in launched}
    for each in found:
        assert (each.how, each.name) == ("given", "triton_poi_fused_gelu_mul_0")
        assert each.source_text == launched[0].source_text
        assert each.notes == ("generated by torch.compile for aten.gelu, aten.mul",)
        assert [a.name for a in each.arguments] == ["in_ptr0", "in_ptr1", "out_ptr0", "xnumel"]
    shutil.rmtree(cache / "triton")
    with pytest.raises(InputError, match="holds no CUDA kernel compiled by Triton"):
        read_cache(cache)


@pytest.mark.programs
@compiles
def test_a_generated_graph_is_a_target_without_the_option(forward):
    """Its main part would time the graph a hundred times."""
    notes = []
    graphs = [f for f in forward.cache.rglob("*.py") if "def get_args" in f.read_text()]
    compiled = [c for c in compile_python(str(graphs[0]), note=notes.append) if c.launches]
    assert [(c.how, c.launches) for c in compiled] == [("launched", 1)]
    assert notes[0] == "called call(get_args()), as the harness of Inductor does"


@pytest.mark.programs
@compiles
def test_a_generated_kernel_is_compiled_as_its_decorator_declares(forward):
    notes = []
    files = [f for f in forward.cache.rglob("*.py") if "def get_args" not in f.read_text()]
    compiled = [c for f in files for c in compile_python(str(f), note=notes.append)]
    assert {c.how for c in compiled} == {"declared"}
    assert {c.name for c in compiled} == {c.name for c in forward.compiled}
    typed = [[(a.type, a.divisible_by_16) for a in c.arguments] for c in forward.compiled]
    assert all([(a.type, a.divisible_by_16) for a in c.arguments] in typed for c in compiled)
    assert "so the arguments are those that its decorator declares" in notes[0]


@compiles
def test_without_the_option_it_runs_as_written(script):
    own = CALLS_ITS_OWN + "torch.compile(torch.nn.Linear(2, 2).cuda())(torch.ones(1, 2).cuda())\n"
    notes = []
    (compiled,) = compile_python(script(own), note=notes.append)
    assert (compiled.name, compiled.grid) == ("add_one", (8, 1, 1))
    assert len(notes) == 2
    assert notes[0] == (
        "torch.compile was skipped and its functions ran eagerly: add --compile "
        "(experimental) to include the kernels that torch.compile generates"
    )


@compiles
def test_without_the_option_and_without_other_kernels(script):
    with pytest.raises(InputError) as caught:
        compile_python(script(FORWARD))
    assert str(caught.value) == (
        "script.py neither launches nor defines a Triton kernel; add --compile (experimental) "
        "to include the kernels that torch.compile generates"
    )


KERNEL = "c" + "a" * 51 + ".py"
GRAPH = f"""\
# kernel path: /somewhere/else/aa/{KERNEL}
# Topologically Sorted Source Nodes: [h, softmax], Original ATen: [aten.gelu, aten._softmax]
# Source node to ATen node mapping:
triton_0 = async_compile.triton('triton_0', '''
    # kernel path: /somewhere/else/aa/{KERNEL}
    # Source Nodes: [], Original ATen: [aten.mul, aten.gelu]
"""


def a_compiled(file: str) -> Compiled:
    return Compiled(name="k", arch="sm_90", how="given", ptx=None, source_file=file)


def test_operations_are_read_from_the_file_of_a_graph(tmp_path):
    (tmp_path / "aa").mkdir()
    (tmp_path / "aa" / KERNEL).write_text("def triton_0(): ...\n")
    (tmp_path / "aa" / f"{'b' * 52}.py").write_text(GRAPH)
    (tmp_path / "gelu.py").write_text("another file of that name\n")
    generated = Generated.in_folder(tmp_path)
    described = generated.described(a_compiled(f"/somewhere/else/aa/{KERNEL}"))
    assert described.source_text == "def triton_0(): ...\n"
    assert described.notes == ("generated by torch.compile for aten.gelu, aten._softmax, aten.mul",)
    assert generated.described(a_compiled("/home/user/gelu.py")).source_text is None


def test_many_operations_are_cut_short(tmp_path):
    names = ", ".join(f"aten.op{number}" for number in range(20))
    text = f"# kernel path: /x/{KERNEL}\n# Source Nodes: [], Original ATen: [{names}]\n"
    (tmp_path / f"{'b' * 52}.py").write_text(text)
    (tmp_path / KERNEL).write_text("")
    (note,) = Generated.in_folder(tmp_path).described(a_compiled(KERNEL)).notes
    assert note.endswith("aten.op6, aten.op7 and 12 more")


def test_the_innermost_line_that_is_the_users():
    stack = '  File "/home/me/step.py", line 3, in f\n  File "/site/torch/nn/x.py", line 9, in g\n'
    assert list(places_in([stack, "nothing"], ["/site/torch"])) == ["step.py:3"]
