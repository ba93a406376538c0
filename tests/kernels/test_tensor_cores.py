"""What the kernels for tensor cores compile to for Hopper: no GPU is needed to see it."""

import json
import re
import subprocess
import sys

import pytest

import traceview
from tests.conftest import REPOSITORY

pytest.importorskip("torch")
pytest.importorskip("triton")
pytest.importorskip("elftools")

LAUNCH = "traceview/bench/launch_version.py"


def compiled(name: str, size: int, dtype: str, *versions: str) -> dict[str, dict]:
    """By kernel, what `traceview ptx` says of it."""
    target = [
        LAUNCH,
        "--arch",
        "sm_90",
        "--budget",
        "600",
        "--json",
        "-",
        "--",
        f"kernels/{name}.py",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "traceview", "ptx", *target, str(size), dtype, *versions],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return {kernel["name"]: kernel for kernel in json.loads(done.stdout)["kernels"]}


def is_clean(kernel: dict) -> bool:
    """Nothing is spilled, and no remark of ptxas that it makes the tensor cores wait."""
    return kernel["spill_bytes"] == 0 and not kernel["remarks"]


def tensor_instructions(kernel: dict) -> str:
    return json.dumps(kernel["tensor_ops"])


def async_copies(kernel: dict) -> list[dict]:
    return [each for each in kernel["accesses"] if each["kind"] == "async-copy"]


def copies(kernel: dict) -> set[int]:
    """Bits of each asynchronous copy."""
    return {each["width_bits"] for each in async_copies(kernel)}


@pytest.mark.slow
def test_attention_forward_and_backward():
    found = compiled("flash_attention_backward_causal", 512, "bfloat16", "triton")
    assert set(found) == {"forward_kernel", "prepare_kernel", "query_kernel", "key_kernel"}
    for kernel in found.values():
        assert is_clean(kernel), kernel["remarks"]
    del found["prepare_kernel"]
    for kernel in found.values():
        assert "wgmma" in tensor_instructions(kernel)
        moved = {each["opcode"] for each in async_copies(kernel) if each["level"] == "ptx"}
        assert moved
        assert all(opcode.startswith("cp.async.bulk.tensor") for opcode in moved)


def test_products_in_large_tiles():
    found = compiled("matmul", 4096, "float16", "triton-naive", "triton-grouped")
    grouped, naive = found["grouped_kernel"], found["naive_kernel"]
    assert is_clean(grouped)
    assert "wgmma" in tensor_instructions(grouped)
    assert copies(grouped) == {128}
    # 32 rows are too few for an instruction of Hopper: those of the GPUs before it are left.
    assert "wgmma" not in tensor_instructions(naive)


def test_products_of_8_bits():
    (kernel,) = compiled("low_precision_matmul", 4096, "int8", "triton").values()
    assert is_clean(kernel)
    assert "wgmma" in tensor_instructions(kernel)
    assert copies(kernel) == {128}


def test_relu_lets_nan_through():
    """On a GPU max.f32 makes 0 of it; the interpreter does not, and cannot tell."""
    file = REPOSITORY / "kernels" / "linear_relu.py"
    for name, constexprs in (("relu_kernel", {}), ("linear_kernel", {"RELU": True})):
        report = traceview.inspect_ptx(file, kernel=name, arch="sm_90", constexprs=constexprs)
        (kernel,) = report.kernels
        assert set(re.findall(r"\bmax[.\w]*", kernel.compiled.ptx)) == {"max.NaN.f32"}, name
