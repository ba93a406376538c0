"""The registry: what is in it, how it is asked, and what it refuses."""

import subprocess
import sys

import pytest

import kernels
from tests.conftest import REPOSITORY
from tests.kernels.asked import python
from traceview.errors import InputError

pytest.importorskip("torch")
pytest.importorskip("triton")

# Bytes and FLOP of the second of the small sizes, in the first data type, worked out by hand.
WORK = {
    "add": (3 * 97 * 4, 97),
    "gelu": (2 * 97 * 4, 8 * 97),
    "softmax": (2 * 37 * 97 * 4, 5 * 37 * 97),
    "layer_norm": ((2 * 37 * 97 + 2 * 97) * 4, 8 * 37 * 97),
    "sum": (97 * 4, 96),
    "row_sum": ((37 * 97 + 37) * 4, 37 * 96),
    "column_sum": ((137 * 33 + 33) * 4, 136 * 33),
    "transpose": (2 * 33 * 36 * 4, 0),
    "copy": (2 * 97 * 4, 0),
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
    return {each["name"]: each for each in python("-m", "tests.kernels.facts")}


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


def test_asking_for_names_imports_neither_torch_nor_triton():
    program = (
        "import sys, kernels; kernels.operations(); print({'torch', 'triton'} & {*sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("set()\n", "")
