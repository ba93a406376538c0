"""The registry: what is in it, how it is asked, and what it refuses."""

import json
import subprocess
import sys

import pytest

import kernels
from tests.conftest import REPOSITORY
from tests.kernels.requests import python
from traceview.base.errors import InputError

pytest.importorskip("torch")
pytest.importorskip("triton")

# Bytes and FLOP of the second of the small sizes, in the first data type, worked out by hand.
WORK = {
    "add": (3 * 97 * 4, 97),
    "gelu": (2 * 97 * 4, 9 * 97),
    "softmax": (2 * 37 * 97 * 4, 5 * 37 * 97),
    "layer_norm": ((2 * 37 * 97 + 2 * 97) * 4, 7 * 37 * 97),
    "sum": (97 * 4, 96),
    "row_sum": ((37 * 97 + 37) * 4, 37 * 96),
    "column_sum": ((137 * 33 + 33) * 4, 136 * 33),
    "transpose": (2 * 33 * 36 * 4, 0),
    "strided_copy": (2 * 97 * 4, 0),
    "alignment": (2 * 16 * 33 * 4, 16 * 33),
    "divergence": (2 * 97 * 4, 512 * 97),
    "linear_relu": ((2 * 33 * 37 + 33 + 33 * 33) * 2, 2 * 33 * 33 * 38),
    "matmul": (3 * 33 * 33 * 2, 2 * 33**3),
    "matmul_tf32": (3 * 64 * 64 * 4, 2 * 64**3),
    "low_precision_matmul": (4 * 33 * 33 + 4, 2 * 33**3),
    "flash_attention": (4 * 66 * 64 * 2 + 4 * 66, 4 * 2 * 33**2 * 64),
    "flash_attention_causal": (4 * 66 * 128 * 2 + 4 * 66, 2 * 2 * 33**2 * 128),
    "flash_attention_backward": (8 * 66 * 64 * 2 + 4 * 66, 10 * 2 * 33**2 * 64),
    "flash_attention_backward_causal": (8 * 66 * 128 * 2 + 4 * 66, 5 * 2 * 33**2 * 128),
}


@pytest.fixture(scope="module")
def facts():
    return {each["name"]: each for each in python("-m", "tests.kernels.measured_figures")}


def test_a_file_is_an_entry_under_its_name(facts):
    assert tuple(sorted(facts)) == kernels.operations()
    assert set(WORK) <= set(facts)


def test_an_entry_has_versions_and_says_what_they_do(facts):
    for name, entry in facts.items():
        names = [version["name"] for version in entry["versions"]]
        assert len(set(names)) == len(names) >= 2, name
        assert all(version["says_what_it_does"] for version in entry["versions"]), name
        assert all(entry["documented"]), name
        assert entry["same"], f"{name}: inputs differ from call to call"


def test_kernels_of_ours_show_their_code(facts):
    for entry in facts.values():
        for version in entry["versions"]:
            is_ours = version["name"].startswith(("triton", "cuda"))
            assert version["shows_its_code"] or not is_ours, (entry["name"], version)


@pytest.mark.parametrize("name", WORK)
def test_bytes_and_flop_by_hand(facts, name):
    assert (facts[name]["bytes"], facts[name]["flop"]) == WORK[name]


def test_small_sizes_include_odd_ones(facts):
    for entry in facts.values():
        assert any(size % 2 for size in entry["sizes"][1]), entry["name"]


def test_what_cannot_be_computed_is_refused_in_one_line(facts):
    for name, entry in facts.items():
        for said in entry["refused"]:
            assert not said.startswith("not refused"), (name, said)
            assert name in said.split(":")[0].split()[0], said
            assert "\n" not in said
    assert sum(len(entry["refused"]) for entry in facts.values()) > 30


def test_an_operation_that_is_not_there():
    with pytest.raises(InputError, match="there is no operation 'sotfmax'") as raised:
        kernels.operation("sotfmax")
    assert "softmax" in str(raised.value)


@pytest.mark.parametrize("name", ["checks", "__init__", "cuda_cpp", "../setup", ""])
def test_what_is_no_operation(name):
    with pytest.raises(InputError, match="there is no operation"):
        kernels.operation(name)


def test_a_version_that_is_not_there():
    program = """
import json, kernels
try:
    kernels.dispatch("gelu", "cutlass")
except Exception as error:
    print(json.dumps([type(error).__name__, str(error)]))
"""
    ((kind, said),) = python("-c", program)
    assert kind == "InputError"
    assert "gelu has no version 'cutlass'" in said
    assert "triton" in said


HEADS = "ones(1, 1, 8, 64).half()"
SLICE = "ones(513).half()[1:].view(1, 1, 8, 64)"
REFUSED = {
    # A float4 takes four elements: three results would stay unwritten.
    ("gelu", "cuda-vector", "randn(1003)"): "gelu: cuda-vector does not take such inputs; these do",
    ("gelu", "cuda-scalar", "randn(8).half()"): "cuda-scalar does not take such inputs",
    ("transpose", "cuda-tile", "ones(4, 4).int()"): "cuda-tile does not take such inputs",
    ("matmul", "triton-persistent", "ones(33, 33)", "ones(33, 33)"): (
        "these do: triton-naive, triton-grouped, triton-autotuned, torch"
    ),
    ("gelu", "cuda-scalar", "randn(8)"): "cuda-scalar needs tensors on a GPU",
    ("low_precision_matmul", "torch", *["ones(32, 32).char()"] * 2, "ones(())"): "call .cuda()",
    # These ran, and were off by 7, wrong in half of the elements, or right to float32 alone.
    ("add", "triton", "ones(8).double()", "ones(8).double()"): (
        "add does not take float64; it takes float32, float16, bfloat16, int32, int64"
    ),
    ("divergence", "triton-program", "ones(8).half()"): "does not take float16; it takes float32",
    ("gelu", "triton", "ones(8).double()"): "gelu does not take float64",
    ("linear_relu", "triton-fused", *["ones(8, 8).double()"] * 2, "ones(8).double()"): (
        "linear_relu does not take float64"
    ),
    ("sum", "triton-atomic", "ones(8).cfloat()"): "sum does not take complex64",
    ("strided_copy", "triton", "ones(8).cfloat()"): "strided_copy does not take complex64",
    # Of 140,000 products of 127 · 127 the sum was −2.0 · 10⁹.
    ("low_precision_matmul", "triton", *["ones(1, 131_072).char()"] * 2, "ones(())"): (
        "int32 cannot hold a sum of 131,072 products of int8; give at most 131,071"
    ),
    # The result was a constant to autograd, and the gradient lacked its share.
    ("gelu", "triton", "ones(8, requires_grad=True)"): (
        "triton has no gradient, and an input asks for one; call it under torch.no_grad(), or take "
        "one that has: manual, torch, torch.compile"
    ),
    ("divergence", "triton-program", "ones(8, requires_grad=True)"): "under torch.no_grad()",
    # These failed in the launch or in Triton, in words that name no input.
    ("transpose", "triton-tile", "zeros(1, 5_000_000)"): (
        "these do: triton-strided, torch, cuda-tile"
    ),
    ("transpose", "triton-strided", "zeros(1, 17_000_000).half()"): "these do: torch",
    ("matmul", "triton-persistent", "ones(16, 1).half().t()", "ones(16, 16).half()"): (
        "these do: triton-naive, triton-grouped, triton-autotuned, torch"
    ),
    ("flash_attention_backward", "triton", *[HEADS] * 4, "ones(1, 1, 8)", SLICE): (
        "g does not begin at a multiple of 16 bytes; call .clone()"
    ),
}
TAKEN = (
    # The types of scale and of lse are not those of the operation.
    ("low_precision_matmul", "bfloat16", *["ones(32, 32).char()"] * 2, "ones(())"),
    ("flash_attention_backward", "naive", *[HEADS] * 4, "ones(1, 1, 8)", HEADS),
    ("gelu", "triton", "ones(8)"),
    ("gelu", "manual", "ones(8, requires_grad=True)"),
    ("sum", "triton-two-pass", "ones(8).int()"),
)
ASK = """
import json, sys, torch
from kernels import dispatch
for name, version, *inputs in json.loads(sys.argv[1]):
    try:
        dispatch(name, version)(*(eval("torch." + each) for each in inputs))
        print(json.dumps("taken"))
    except Exception as error:
        print(json.dumps(f"{type(error).__name__}: {error}"))
"""


def test_dispatch_refuses_what_a_version_would_compute_wrongly():
    answers = python("-c", ASK, json.dumps([*REFUSED, *TAKEN]))
    assert answers[len(REFUSED) :] == ["taken"] * len(TAKEN)
    for (asked, said), answer in zip(REFUSED.items(), answers, strict=False):
        assert answer.startswith("InputError: "), (asked, answer)
        assert said in answer, asked


ON_THE_CPU = """
import json, torch
from kernels.flash_attention_backward import attention
try:
    attention(*[torch.ones(1, 1, 8, 64).half()] * 3)
except Exception as error:
    print(json.dumps(str(error)))
"""


@pytest.mark.programs
def test_without_a_gpu_triton_is_for_the_interpreter():
    """Attention for autograd says so in the same words."""
    asked = json.dumps([["gelu", "triton", "ones(8)"]])
    said, attention = python("-c", ASK + ON_THE_CPU, asked, interpret=False)
    assert said.startswith("InputError: gelu: triton needs tensors on a GPU, and these are on the")
    assert "TRITON_INTERPRET=1" in said
    assert attention.startswith("flash_attention: triton needs tensors on a GPU")


CURRENT = """
import json, torch
from contextlib import contextmanager
from kernels import dispatch
asked = []
@contextmanager
def device_of(tensor):
    asked.append(tensor)
    yield
torch.cuda.device_of = device_of
x = torch.ones(8)
dispatch("gelu", "triton")(x)
print(json.dumps([each is x for each in asked]))
"""


def test_a_kernel_is_launched_on_the_gpu_of_its_tensors():
    assert python("-c", CURRENT) == [[True]]


@pytest.mark.parametrize("folder", ["kernels", "workloads"])
def test_no_file_hides_a_module_of_python_from_those_that_run_beside_it(folder):
    """Python looks in the folder of the script first: for `import copy`, say."""
    names = {file.stem for file in (REPOSITORY / folder).glob("*.py")}
    assert names
    assert not names & sys.stdlib_module_names


def test_asking_for_names_imports_neither_torch_nor_triton():
    program = (
        "import sys, kernels; kernels.operations(); print({'torch', 'triton'} & {*sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("set()\n", "")
