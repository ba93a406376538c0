"""One label per kernel, whichever demangler wrote its name."""

import csv

import pytest

from tests.places import DATA
from traceview.base.vocabulary.libraries import readable
from traceview.traces.facts.kernel_classes import as_edg, labels


def recorded() -> list[tuple[str, str]]:
    with (DATA / "kernel_name_dialects.tsv").open(encoding="utf-8", newline="") as file:
        return [
            (row["nsys"], row["torch.profiler"])
            for row in csv.DictReader(file, dialect="excel-tab")
        ]


def test_the_same_kernels_get_the_same_labels():
    of_nsys, of_torch = zip(*recorded(), strict=True)
    shorts = [name.partition("<")[0].rpartition("::")[2] for name in of_nsys]
    assert labels(of_torch, shorts) == labels(of_nsys, shorts)


def test_no_label_says_anonymous():
    assert not [name for _, name in recorded() if "anonymous" in readable(as_edg(name))]


@pytest.mark.parametrize(
    ("gnu", "edg"),
    [
        ("f<4, true>(int)", "f<(int)4, (bool)1>(int)"),
        ("f<-1, 2ul, 3u>", "f<(int)-1, (unsigned long)2, (unsigned int)3>"),
        ("(anonymous namespace)::f<int>", "<unnamed>::f<int>"),
        ("f<g(T&)::{lambda(float, int)#12}>", "f<g(T&)::[lambda(float, int) (instance 12)]>"),
        ("f<{lambda()#1}::operator()() const>", "f<[lambda() (instance 1)]::operator()() const>"),
        ("triton_poi_fused_4", "triton_poi_fused_4"),
        ("{lambda(", "{lambda("),
        ("", ""),
    ],
)
def test_forms(gnu, edg):
    assert as_edg(gnu) == edg
    assert as_edg(edg) == edg
