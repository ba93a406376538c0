"""Classes of kernels, against names of real recordings and libraries judged by reading them."""

from pathlib import Path

import numpy as np
import pytest

from tests.build import Export
from traceview.base.tables import Texts
from traceview.base.vocabulary.kernel_words import base_name
from traceview.traces.facts.kernel_classes import (
    KernelClass,
    classes_of,
    classify,
    communication_operations,
    kernel_classes,
)
from traceview.traces.facts.operations import Kind, operations

NAMES = [
    line.split("\t")
    for line in (Path(__file__).parent / "kernel_names.txt").read_text().splitlines()
]


def test_names_of_real_kernels():
    judged = [(kind, classify(name).label, name) for kind, name in NAMES]
    assert not [each for each in judged if each[0] != each[1]]


def test_the_table_is_long_and_has_every_class():
    assert len(NAMES) >= 150
    assert {kind for kind, _ in NAMES} == {kind.label for kind in KernelClass}


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("gelu", "gelu"),
        ("void at::native::reduce_kernel<512, 1>(T3)", "at::native::reduce_kernel"),
        ("void at::native::<unnamed>::multi<int>(T1)", "at::native::unnamed::multi"),
        ("void (anonymous namespace)::k(int)", "unnamed::k"),
        ("saxpy(int, float const*)", "saxpy"),
        ("", ""),
        ("<", "<"),
    ],
)
def test_base_name(name, base):
    assert base_name(name) == base


def test_classes_of_a_column_with_absent_names_and_unused_values():
    names = Texts(
        np.array([2, -1, 0, 2], np.int32), np.array(["gelu", "softmax", "matmul"], object)
    )
    assert classes_of(names).tolist() == [0, KernelClass.OTHER, KernelClass.ELEMENTWISE, 0]


def test_communication_is_kernels_of_libraries_and_copies_between_gpus(tmp_path):
    export = (
        Export()
        .launch((0, 1), (10, 20), name="ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)")
        .launch((1, 2), (20, 30), name="gelu")
        .copy((2, 3), (30, 40), kind="P2P", source="device", destination="device")
        .copy((3, 4), (40, 50), kind="H2D")
    )
    trace = export.load(tmp_path)

    assert communication_operations(trace).tolist() == [True, False, True, False]
    assert kernel_classes(trace).tolist() == [KernelClass.COMMUNICATION, KernelClass.ELEMENTWISE]
    assert operations(trace).kind.tolist() == [Kind.KERNEL, Kind.KERNEL, Kind.COPY, Kind.COPY]


@pytest.mark.parametrize("what", ["play", "walk", "playout", "forest", "search", "agents"])
@pytest.mark.parametrize(
    "form", ["simulate_random_{}_kernel", "random_{}", "doRandom{}", "k::random_{}<int>"]
)
def test_work_that_uses_random_numbers_is_not_random_numbers(form, what):
    assert classify(f"{form.format(what)}(int*, curandStateXORWOW*)") != KernelClass.RANDOM


@pytest.mark.parametrize(
    "name",
    [
        "generateRandomNumbers",
        "fill_random",
        "random_uniform_kernel",
        "initRandom",
        "init_random_state",
        "randomMatrix",
        "generate_random",
        "random_kernel",
        "makeRandomFloats",
    ],
)
def test_names_of_random_numbers(name):
    assert classify(f"{name}(float*, int)") == KernelClass.RANDOM
