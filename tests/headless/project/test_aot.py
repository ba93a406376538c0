"""Kernels that a project compiles ahead of time, with the arguments that it declares for that."""

from importlib.util import find_spec

import pytest

import traceview
from traceview.kernels.headless.project.aot import aot_signatures
from traceview.kernels.headless.signatures import Parameter, notation

PARAMETERS = (*map(Parameter, ("x_ptr", "n")), Parameter("BLOCK", is_constexpr=True))
TOOL = "triton.tools.compile ops.py --kernel-name fill --signature"
SOURCE = 'signature={"x_ptr": "*fp64", "n": "i32", "BLOCK": "constexpr"}, constexprs={"BLOCK": 64}'
WIDE = "*fp64:16, i32, 64"
FILES = {
    "script": ("build.sh", f'python -m {TOOL} "{WIDE}" --grid "n,1,1" -w 2\n', WIDE, 2),
    "two lines": ("build.sh", f'# for\npython -m \\\n  {TOOL}="{WIDE}"\n', WIDE, 1),
    "path": (
        "Makefile",
        'all:\n\tpython triton/tools/compile.py -n fill -s "*fp16, i32:16, 8" src/ops.py -w 8\n',
        "*fp16, i32:16, 8",
        8,
    ),
    "list": (
        "build.py",
        "import sys\nrun([sys.executable, '-m', 'triton.tools.compile', '--kernel-name', 'fill',\n"
        f"     '--signature', '{WIDE}', 'ops.py'])\n",
        WIDE,
        1,
    ),
    "source": ("build.py", f"s = ASTSource(fn=ops.fill, {SOURCE})\n", "*fp64, i32, 64", None),
    "aligned": (
        "build.py",
        f"s = tc.ASTSource(fill, {SOURCE}, attrs={{(0,): [['tt.divisibility', 16]]}})\n",
        WIDE,
        None,
    ),
    "by position": (
        "build.py",
        "s = ASTSource(fill, {0: '*bf16', 1: 'i32', 2: 'constexpr'}, {(2,): 32})\n",
        "*bf16, i32, 32",
        None,
    ),
}


@pytest.mark.parametrize(("name", "text", "declared", "warps"), FILES.values(), ids=FILES)
def test_what_is_declared_is_found(tmp_path, name, text, declared, warps):
    (tmp_path / name).write_text(text)
    (found,) = aot_signatures("fill", tmp_path / "ops.py", None, PARAMETERS)
    assert notation(found.arguments) == declared
    assert found.options.get("num_warps") == warps
    assert found.place.partition(":")[0] == name


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("build.sh", f'python -m {TOOL} "$SIGNATURE"\n'),
        ("build.sh", f'python -m {TOOL} "*fp64:16, i32"\n'),
        ("build.sh", f'python -m {TOOL.replace("fill", "clear")} "{WIDE}" # not fill\n'),
        ("build.sh", f'python -m {TOOL.replace("ops.py", "others.py")} "{WIDE}"\n'),
        ("build.sh", f'python -m {TOOL} "{WIDE}\n'),
        ("build.py", "s = ASTSource(fill, types(), {})\n"),
        ("build.py", f"def fill(): ...\ns = ASTSource(fill, {SOURCE})\n"),
        ("build.py", f"def (: ASTSource(fill, {SOURCE})\n"),
    ],
)
def test_what_is_of_another_kernel_or_computed_is_not(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    assert not list(aot_signatures("fill", tmp_path / "ops.py", None, PARAMETERS))


@pytest.mark.programs
@pytest.mark.skipif(find_spec("triton") is None, reason="compiles with Triton")
@pytest.mark.parametrize("asked", ["ops.py", "ops.py:fill"])
def test_a_kernel_is_compiled_as_its_project_declares(tmp_path, asked):
    (tmp_path / "ops.py").write_text(
        "import triton\nimport triton.language as tl\n\n\n@triton.jit\n"
        "def fill(x_ptr, n, BLOCK: tl.constexpr):\n"
        "    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    tl.store(x_ptr + at, 1.0, mask=at < n)\n"
    )
    (tmp_path / "build.sh").write_text(f'python -m {TOOL} "{WIDE}" -w 2\n')
    notes = list[str]()
    (kernel,) = traceview.inspect_ptx(tmp_path / asked, note=notes.append).kernels
    assert notation(kernel.compiled.arguments) == WIDE
    assert (kernel.compiled.how, kernel.compiled.num_warps) == ("declared", 2)
    assert notes[0].endswith("so the arguments are those declared at build.sh:1")
