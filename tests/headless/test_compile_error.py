"""Errors of Triton's compiler: the line of the file, the source, and whose fault it is."""

from importlib.metadata import version
from importlib.util import find_spec

import pytest

import traceview
from traceview.base.errors import InputError

pytestmark = [
    pytest.mark.skipif(
        find_spec("triton") is None or find_spec("torch") is None, reason="compiles with Triton"
    ),
    pytest.mark.programs,
]
GELU = """import torch
import triton
import triton.language as tl


@triton.jit
def helper(x):
    return x * 2


@triton.jit
def gelu(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(x_ptr + at, helper(x), mask=at < n)
"""
# The ptxas of Triton 3.9 does; those of 3.6 and 3.7 refuse other characters than ASCII.
PTXAS_READS_UTF_8 = find_spec("triton") and tuple(map(int, version("triton").split(".")[:2])) >= (
    3,
    9,
)
LAUNCH = "\ngelu[(4,)](torch.empty(4096, device='cuda'), 4096, BLOCK=1024)\n"


@pytest.mark.parametrize(
    ("wrong", "right", "place"),
    [
        ("x_ptr + att", "x_ptr + at", "at script.py:14, `x = tl.load(x_ptr + att, mask=at < n)`"),
        ("x * scal", "x * 2", "at script.py:8, `return x * scal`: NameError: scal is not defined"),
        ("tl.lod(", "tl.load(", "no attribute 'lod'"),
        ("helper(x, x), mask", "helper(x), mask", "positional argument"),
        ("helper(), mask", "helper(x), mask", "argument: 'x'"),
        ("{x}, mask", "helper(x), mask", "unsupported AST node type: Set"),
        ("mask=at < n, msk=1)", "mask=at < n)", "unexpected keyword argument 'msk'"),
    ],
)
@pytest.mark.parametrize("launch", ["", LAUNCH], ids=["guessed", "launched"])
def test_a_mistake_in_a_kernel_is_shown_with_its_line(tmp_path, wrong, right, place, launch):
    path = tmp_path / "script.py"
    path.write_text(GELU.replace(right, wrong, 1) + launch)
    with pytest.raises(InputError) as caught:
        traceview.inspect_ptx(path)
    assert place in caught.value.what
    assert caught.value.remedy == "correct the kernel"
    assert "signature" not in str(caught.value)
    assert ("launched at line 17" in caught.value.what) is bool(launch)
    assert caught.value.what.startswith("before it launched a kernel, script.py raised") is bool(
        launch
    )


@pytest.mark.parametrize("launch", ["", LAUNCH], ids=["guessed", "launched"])
def test_a_name_beyond_ascii_is_read_or_told_in_a_line(tmp_path, launch):
    path = tmp_path / "größe.py"
    path.write_text(GELU + launch)
    if PTXAS_READS_UTF_8:
        assert [each.compiled.name for each in traceview.inspect_ptx(path).kernels] == ["gelu"]
        return
    with pytest.raises(InputError, match="ptxas: Unexpected non-ASCII character") as caught:
        traceview.inspect_ptx(path)
    assert "Repro command" not in caught.value.what
    assert caught.value.remedy == "ptxas reads ASCII alone: name the file and its kernels in ASCII"


@pytest.mark.parametrize("package", [False, True])
def test_keywords_of_triton_1_are_told_at_once(tmp_path, package):
    path = tmp_path / "script.py"
    if package:
        (tmp_path / "__init__.py").write_text("")
    text = GELU.replace("n, BLOCK: tl.constexpr)", "n, **meta)")
    path.write_text(text.replace("    at =", "    BLOCK = meta['BLOCK']\n    at ="))
    with pytest.raises(InputError) as caught:
        traceview.inspect_ptx(path)
    # From 3.9 on, Triton refuses them where the kernel is defined.
    assert caught.value.what in (
        "gelu does not compile: it takes **meta, which only Triton 1 knew, at script.py:13, "
        "`BLOCK = meta['BLOCK']`",
        "before it launched a kernel, script.py raised TypeError at line 11: JIT functions do not "
        "support **meta parameters",
        "script.py raised TypeError at line 11: JIT functions do not support **meta parameters",
    )
    assert caught.value.remedy.startswith("declare each constant as a parameter instead")


def test_what_other_arguments_would_mend_is_no_mistake_in_the_kernel(tmp_path):
    path = tmp_path / "script.py"
    text = GELU.replace("    at =", "    if BLOCK == 3:\n        odd = 1\n    at = odd * ")
    path.write_text(text)
    with pytest.raises(InputError, match="odd is not defined") as caught:
        traceview.inspect_ptx(path)
    assert "--signature" in caught.value.remedy


@pytest.mark.parametrize("signature", [None, "*fp32:16, i32:16, 1024"])
@pytest.mark.parametrize(
    ("defined", "name"),
    [("FACTOR = 2.5", "FACTOR"), ("from constants import FACTOR as SCALE", "SCALE")],
)
def test_a_global_that_is_no_constant_is_the_first_finding(tmp_path, defined, name, signature):
    path = tmp_path / "script.py"
    (tmp_path / "constants.py").write_text("FACTOR = 2.5\n")
    other = GELU.partition("@triton.jit\ndef gelu")[2]
    # A kernel after it that reads none.
    kernels = GELU.replace("x * 2", f"x * {name}") + (
        "" if signature else f"\n\n@triton.jit\ndef plain{other.replace('helper(x)', 'x')}"
    )
    path.write_text(f"{defined}\n{kernels}")
    # The code that it gives all the same is in no cache that the next run takes it from.
    for _ in range(2):
        kernel, *others = traceview.inspect_ptx(path, signature=signature).kernels
        assert "0f40200000" in (kernel.compiled.ptx or "").lower()
        first = kernel.findings[0]
        assert first.severity == "high"
        assert f"at script.py:9 it reads the global {name}, which is no" in first.message
        assert first.action.startswith(f"Define it as {name} = tl.constexpr(…)")
        assert not any("Triton refuses" in f.message for each in others for f in each.findings)


def test_a_launch_that_fails_by_a_global_says_what_to_do(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(GELU.replace("x * 2", "x * FACTOR") + "\nFACTOR = 2.5" + LAUNCH)
    with pytest.raises(InputError) as caught:
        traceview.inspect_ptx(path)
    assert caught.value.what.endswith(
        "launched at line 18: it reads the global FACTOR at script.py:8, `return x * FACTOR`, "
        "which is no tl.constexpr"
    )
    assert caught.value.remedy.startswith("define it as a constant, such as NAME = tl.constexpr(4)")


def test_kernels_that_a_function_defines_are_found(tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    body = GELU.partition("\n\n\n")[2].replace("\n", "\n    ")
    head = "import triton\nimport triton.language as tl\n\ndef _build():\n    if not READY:\n"
    text = head.replace("    if not READY:\n", "") + "    " + body.rstrip() + "\n    return gelu\n"
    (package / "late.py").write_text(text + "\nassert missing_device(), 'needs a GPU'\n")
    (kernel,) = traceview.inspect_ptx(f"{package / 'late.py'}:gelu").kernels
    assert kernel.name == "gelu"


def test_a_function_of_a_package_that_is_not_installed_is_named(tmp_path):
    path = tmp_path / "script.py"
    text = GELU.replace("helper(x), mask", "doubled(x), mask")
    path.write_text(f"from no_such_package.ops import doubled\n{text}")
    with pytest.raises(InputError) as caught:
        traceview.inspect_ptx(path)
    assert caught.value.what == (
        "gelu does not compile: it calls no_such_package.ops.doubled, which could not be imported"
    )
    assert caught.value.remedy.startswith("install it and what it imports, or run this where")


def test_an_assertion_of_the_kernel_is_its_line_alone(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(GELU.replace("    at =", "    tl.static_assert(BLOCK == 3)\n    at ="))
    with pytest.raises(InputError) as caught:
        traceview.inspect_ptx(path, signature="*fp32:16, i32:16, 1024")
    assert caught.value.what.endswith("script.py:13, `tl.static_assert(BLOCK == 3)`")


@pytest.mark.parametrize("name", ["doubled", "width_of"])
def test_a_plain_function_that_a_kernel_calls_is_named_with_the_line(tmp_path, name):
    path = tmp_path / "script.py"
    plain = f"def {name}(x):\n    return x * 2\n\n\n"
    text = GELU.replace("@triton.jit\ndef gelu", f"{plain}@triton.jit\ndef gelu")
    path.write_text(text.replace("helper(x), mask", f"{name}(x), mask"))
    with pytest.raises(InputError) as caught:
        traceview.inspect_ptx(path, signature="*fp32:16, i32:16, 1024")
    line = f"tl.store(x_ptr + at, {name}(x), mask=at < n)"
    assert caught.value.what.endswith(
        f"it calls {name} at script.py:19, `{line}`, which is no function of @triton.jit"
    )
