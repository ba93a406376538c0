"""What is compiled without a GPU is what a GPU runs."""

import subprocess
import sys
from collections import Counter

import pytest

from tests.gpu import launched_ptx
from tests.gpu.launched_ptx import has_gpu, rows


@pytest.mark.gpu
def test_ptx_is_that_of_a_launch():
    """At least ten kernels, of which one is autotuned and one takes tensor descriptors."""
    if not has_gpu():
        pytest.skip("launches kernels: no NVIDIA GPU here")
    done = subprocess.run(
        [sys.executable, launched_ptx.__file__], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" PTX same") >= 10


def test_a_difference_is_seen():
    launched = {"a": Counter([b"one\nx", b"two"]), "b": Counter([b"b"])}
    same, other = rows(launched, {"a": Counter([b"two", b"one\ny"]), "b": Counter([b"b"])})[::-1]
    assert (same.kernel, same.same, same.agrees) == ("b", 1, True)
    assert (other.same, other.launched_only, other.agrees) == (1, (b"one\nx",), False)
    assert list(other.differences())[-2:] == ["-x", "+y"]


def test_a_variant_that_one_side_lacks_is_seen():
    (row,) = rows({"a": Counter([b"x", b"x"])}, {"a": Counter([b"x"])})
    assert (row.same, row.launched_only, row.unlaunched_only) == (1, (b"x",), ())
    assert not rows({}, {"a": Counter([b"x"])})[0].agrees


@pytest.mark.skipif(has_gpu(), reason="there is a GPU here")
def test_without_a_gpu_it_says_so():
    done = subprocess.run([sys.executable, launched_ptx.__file__], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "no NVIDIA GPU here: there is nothing to compare with\n"
