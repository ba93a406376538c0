"""traceview report --ncu."""

import json
import lzma

import pytest

from tests.places import DATA
from traceview.cli import run


@pytest.fixture
def counters(tmp_path):
    path = tmp_path / "rates.csv"
    path.write_bytes(lzma.decompress((DATA / "rates.ncu.csv.xz").read_bytes()))
    return path


def report(unpack, *options):
    return run(["report", str(unpack("metrics")), *map(str, options)])


def test_counters_are_the_basis(unpack, counters, capsys):
    assert report(unpack, "--only", "roofline", "--ncu", counters, "--json") == 0
    rows = json.loads(capsys.readouterr().out)["analyses"]["roofline"]["tables"]["kernels"]
    assert {row["basis"] for row in rows} == {"counters (ncu)"}


def test_a_file_that_is_none(unpack, tmp_path, capsys):
    other = tmp_path / "other.csv"
    other.write_text("a,b\n1,2\n")

    assert report(unpack, "--ncu", other) == 1
    said = capsys.readouterr().err
    assert "is not a CSV file of Nsight Compute (it starts with 'a,b')" in said
    assert "ncu --csv --page raw" in said


def test_the_page_has_the_figure(unpack, counters, tmp_path):
    page = tmp_path / "page.html"

    assert report(unpack, "--ncu", counters, "--html", page) == 0
    assert "memory 4,814 GB/s" in page.read_text()
    assert "bf16 989 TFLOP/s" in page.read_text()
