"""Python targets run in a process of their own, with a driver that launches nothing."""

import importlib.metadata
import importlib.util
import re
import shutil
from collections import Counter

import pytest

from tests.inspect.targets.python_scripts import (
    HEADER,
    KERNEL,
    LAUNCH,
    TENSOR,
    error_of,
    needs_torch,
    needs_triton,
)
from tests.places import TRITON_KERNELS
from traceview.kernels.headless.compile_options import CompileOptions
from traceview.kernels.inspect.python_targets import compile_python

pytestmark = pytest.mark.programs


def accesses(ptx: str) -> Counter:
    return Counter(re.findall(r"\b(?:ld|st)\.global[\w.:]*", ptx))


@needs_triton
@needs_torch
@pytest.mark.usefixtures("fresh_workers")
def test_a_script_compiles_as_it_launches():
    even, odd = compile_python(str(TRITON_KERNELS / "gelu.py"))
    assert (even.name, even.how, even.arch) == ("gelu_kernel", "launched", "sm_90")
    assert accesses(even.ptx) == {"ld.global.v4.b32": 2, "st.global.v4.b32": 2}
    assert accesses(odd.ptx) == {"ld.global.b32": 8, "st.global.b32": 8}
    assert [(c.grid, c.launches) for c in (even, odd)] == [((4, 1, 1), 2), ((5, 1, 1), 1)]
    assert [(a.name, a.type, a.divisible_by_16, a.value) for a in odd.arguments] == [
        ("x_ptr", "*fp32", True, None),
        ("y_ptr", "*fp32", True, None),
        ("n_elements", "i32", False, 4097),
        ("BLOCK_SIZE", "constexpr", False, 1024),
    ]
    assert even.cubin.startswith(b"\x7fELF")
    assert (even.num_warps, even.dynamic_shared_bytes) == (4, 0)
    assert (even.source_file, even.source_line) == (str(TRITON_KERNELS / "gelu.py"), 9)


@needs_triton
@needs_torch
def test_a_script_written_for_a_gpu_runs_unchanged(capfd):
    notes = []
    (compiled,) = compile_python(str(TRITON_KERNELS / "softmax.py"), note=notes.append)
    # do_bench launches too, and is not the program.
    assert (compiled.num_warps, compiled.grid, compiled.launches) == (8, (64, 1, 1), 1)
    out, err = capfd.readouterr()
    assert out == ""
    assert "1.0 ms; 1.0 ms" in err
    assert any("torch.testing.assert_close passed unchecked" in note for note in notes)
    assert notes[-1] == "softmax.py: 1 kernel compiled as launched"


@needs_triton
@needs_torch
def test_the_breadth_of_what_scripts_do():
    compiled = compile_python(str(TRITON_KERNELS / "breadth.py"))
    said = [
        (c.name, c.launches, [a.value for a in c.arguments if a.type == "constexpr"])
        for c in compiled
    ]
    assert said == [
        ("tma_copy", 1, [64]),
        ("cast", 1, ["tl.float16", 128, True]),
        ("cast", 0, ["tl.float16", 256, True]),
        ("of_tuple", 1, [128]),
        ("of_tuple", 0, [64]),
    ]
    assert compiled[0].arguments[0].type == "tensordesc<fp32[64, 64]>"
    assert compiled[4].notes == ("compiled by warmup() and never launched",)
    # The second tuple holds a view that begins one element into its tensor.
    tuples = [c.arguments[:2] for c in compiled[3:]]
    assert {a.type for each in tuples for a in each} == {"*fp32"}
    assert [[(a.name, a.divisible_by_16) for a in each] for each in tuples] == [
        [("pointers[0]", True), ("pointers[1]", True)],
        [("pointers[0]", False), ("pointers[1]", True)],
    ]


@needs_triton
@needs_torch
def test_heuristics_and_configurations_in_a_guess(tmp_path):
    """The kernels of breadth.py without the part that launches them."""
    text = (TRITON_KERNELS / "breadth.py").read_text().partition("if __name__")[0]
    (tmp_path / "script.py").write_text(text)
    small, large = compile_python(str(tmp_path / "script.py") + ":cast")
    assert [a.value for a in small.arguments[3:]] == ["tl.float32", 128, True]
    assert [a.value for a in large.arguments[3:]] == ["tl.float32", 256, True]


@needs_triton
@needs_torch
def test_every_configuration_of_an_autotuned_kernel():
    won, tried = compile_python(str(TRITON_KERNELS / "matmul.py"))
    assert [(c.num_warps, c.num_stages, c.grid) for c in (won, tried)] == [
        (4, 2, (4, 4, 1)),
        (8, 3, (2, 4, 1)),
    ]
    assert (won.launches, won.notes) == (3, ())
    assert tried.launches == 0
    assert "nothing is timed without a GPU" in tried.notes[0]
    values = {a.name: a.value for a in won.arguments}
    assert (values["ACTIVATION"], values["stride_ak"], values["K"]) == ("leaky_relu", 1, 128)


@needs_triton
@needs_torch
def test_the_first_configuration_alone():
    (compiled,) = compile_python(
        str(TRITON_KERNELS / "matmul.py"), CompileOptions(first_config=True)
    )
    assert (compiled.num_warps, compiled.launches) == (4, 3)


@needs_triton
@needs_torch
def test_options_replace_what_the_script_passes():
    options = {"num_warps": 8, "constexprs": {"BLOCK_SIZE": "256"}, "arch": "sm_80"}
    compiled = compile_python(str(TRITON_KERNELS / "gelu.py"), CompileOptions(**options))[0]
    assert (compiled.num_warps, compiled.arguments[3].value) == (8, 256)
    assert accesses(compiled.ptx) == {"ld.global.b32": 1, "st.global.b32": 1}
    assert ".target sm_80" in compiled.ptx


@needs_triton
@needs_torch
def test_a_replaced_constexpr_that_no_kernel_has():
    said = error_of(str(TRITON_KERNELS / "gelu.py"), constexprs={"BLOK": "1"})
    assert said == "no launched kernel has a parameter 'BLOK'; check --constexpr"


def loops_break_the_interpreter() -> bool:
    """Whether this is Triton 3.6, whose interpreter turns a bound of a loop into a Python number
    in a way that numpy 2.4 no longer allows."""
    versions = [importlib.metadata.version(name).split(".")[:2] for name in ("triton", "numpy")]
    triton, numpy = ([int(part) for part in version] for version in versions)
    return triton < [3, 7] and numpy >= [2, 4]


@needs_triton
@needs_torch
@pytest.mark.parametrize("name", ["gelu", "softmax", "matmul"])
def test_emulation_gives_values(name, capfd):
    if name == "matmul" and loops_break_the_interpreter():
        pytest.skip("Triton 3.6 emulates no loops with numpy 2.4")
    notes = []
    compile_python(
        str(TRITON_KERNELS / f"{name}.py"), CompileOptions(emulate=True), note=notes.append
    )
    assert len(notes) == 1
    assert "GELU agrees: False" not in capfd.readouterr().err


@needs_triton
@needs_torch
def test_emulated_values_are_compared(script):
    said = error_of(
        script(TENSOR + "fill[(2,)](x, 4096, BLOCK=1024)\nassert x.sum() == 4096\n"),
        emulate=True,
        kernel="none",
    )
    assert said == (
        "script.py has no Triton kernel 'none' (it raised AssertionError at line 12); it has: fill"
    )


@needs_triton
@needs_torch
def test_arguments_of_the_script(script):
    rest = "import sys\n" + TENSOR + "fill[(int(sys.argv[1]),)](x, 7, BLOCK=64)\n"
    (compiled,) = compile_python(script(rest), CompileOptions(arguments=["3"]))
    assert compiled.grid == (3, 1, 1)


@needs_triton
def test_as_declared():
    (compiled,) = compile_python(
        f"{TRITON_KERNELS / 'copies.py'}:strided_copy",
        CompileOptions(
            signature="*fp16:16, *fp16:16, i32:16, i32:1, 1024", num_warps=4, num_stages=2
        ),
    )
    assert (compiled.how, compiled.grid, compiled.launches) == ("declared", None, 0)
    assert (compiled.num_warps, compiled.num_stages) == (4, 2)
    assert accesses(compiled.ptx) == {"ld.global.v4.b32": 1, "st.global.v4.b32": 1}


@needs_triton
@needs_torch
def test_declaring_does_not_run_the_script():
    """Neither does the part under `if __name__ == "__main__"` run, nor is a launch reported."""
    (compiled,) = compile_python(
        str(TRITON_KERNELS / "gelu.py"),
        CompileOptions(signature="*fp32, *fp32, i32", constexprs={"BLOCK_SIZE": "128"}),
    )
    assert (compiled.how, compiled.arguments[3].value) == ("declared", 128)


@needs_triton
@needs_torch
def test_declaring_what_an_autotuner_chooses_the_rest_of():
    sizes = "*fp16:16, *fp16:16, *fp16:16, i32, i32, i32, i32, i32:1, i32, i32:1, i32, i32:1"
    compiled = compile_python(
        str(TRITON_KERNELS / "matmul.py") + ":matmul_kernel",
        CompileOptions(signature=sizes, constexprs={"ACTIVATION": ""}),
    )
    assert [c.num_warps for c in compiled] == [4, 8]
    assert "BLOCK_M: 64" in compiled[0].notes[0]


@needs_triton
def test_kernels_that_nobody_launches_are_guessed(tmp_path):
    """In a folder of its own, as launches are looked for in all files of a project."""
    notes = []
    shutil.copy(TRITON_KERNELS / "copies.py", tmp_path)
    compiled = compile_python(str(tmp_path / "copies.py"), note=notes.append)
    assert [c.name for c in compiled] == ["strided_copy", "gather", "row_sum", "histogram"]
    assert {c.how for c in compiled} == {"guessed"}
    assert all("arguments are guessed: " in c.notes[0] for c in compiled)
    assert notes[0].endswith(
        "not launched by the script, so the arguments are inferred from the source"
    )


MODEL = """\
import torch

class ModelNew(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.n = n

    def forward(self, x):
        assert x.is_cuda
        fill[(4,)](x, {size}, BLOCK=256)

def get_inputs():
    return [torch.rand(4096)]

def get_init_inputs():
    return {settings}
"""


@needs_triton
@needs_torch
@pytest.mark.parametrize("settings", ["[1000]", '{"n": 1000}'])
def test_the_model_of_a_benchmark_is_called_as_its_harness_does(script, settings):
    notes = []
    file = script(MODEL.replace("{size}", "self.n").replace("{settings}", settings))
    (compiled,) = compile_python(file, CompileOptions(), note=notes.append)
    assert (compiled.how, compiled.grid) == ("launched", (4, 1, 1))
    assert [(a.name, a.value) for a in compiled.arguments][1] == ("n", 1000)
    assert any("called ModelNew(*get_init_inputs())(*get_inputs())" in text for text in notes)


@needs_triton
@needs_torch
def test_a_model_that_fails_leaves_its_kernels_to_a_guess(script):
    notes = []
    file = script(MODEL.replace("{size}", "self.no").replace("{settings}", "[1]"))
    (compiled,) = compile_python(file, CompileOptions(), note=notes.append)
    assert compiled.how == "called"
    assert any("raised AttributeError" in text for text in notes)


PART = (
    HEADER
    + """\
class Pointwise:
    \"\"\"As of a library that writes the kernel around a function when it is called.\"\"\"

    def __init__(self, function):
        self.scalar = function

@Pointwise
@triton.jit
def doubled(x):
    return 2 * x
"""
)


@needs_triton
def test_a_function_that_a_library_makes_kernels_of_has_to_be_called(tmp_path):
    (tmp_path / "ops.py").write_text(PART)
    said = error_of(str(tmp_path / "ops.py"))
    assert "ops.py launches no Triton kernel, and its jitted functions are parts of" in said
    assert said.endswith("pass a script that calls its operations")


BROKEN = """\
def other(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), no_such_name)

other = triton.autotune([triton.Config({"BLOCK": n}) for n in (64, 128)], key=[])(triton.jit(other))
"""


@needs_triton
def test_configurations_that_fail_for_one_reason_are_one_note(script):
    notes = []
    compile_python(script(BROKEN), note=notes.append)
    (note,) = (text for text in notes if "does not compile" in text)
    assert "no_such_name is not defined" in note


@needs_triton
@needs_torch
def test_what_is_launched_leaves_the_rest_unguessed(script):
    other = KERNEL.replace("fill", "other")
    notes = []
    (compiled,) = compile_python(script(other + LAUNCH), note=notes.append)
    assert compiled.name == "fill"
    assert "never launched and not shown: other" in notes[0]


@needs_triton
@needs_torch
def test_a_named_kernel_is_guessed_where_another_is_launched(script):
    other = KERNEL.replace("fill", "other")
    (compiled,) = compile_python(script(other + LAUNCH) + ":other")
    assert (compiled.name, compiled.how) == ("other", "guessed")


@needs_triton
def test_a_module_in_the_current_folder(script, tmp_path, monkeypatch):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "sizes.py").write_text("SIZE = 128\n")
    script("from .sizes import SIZE\n", name="package/ops.py")
    monkeypatch.chdir(tmp_path)
    (compiled,) = compile_python("package.ops:fill", CompileOptions(constexprs={"BLOCK": "128"}))
    assert (compiled.name, compiled.arguments[2].value) == ("fill", 128)


@needs_triton
@needs_torch
def test_the_users_cache_and_files_are_left_alone(script, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert compile_python(script(LAUNCH))[0].ptx
    assert [path.name for path in tmp_path.iterdir()] == ["script.py"]
