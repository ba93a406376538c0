"""What `traceview compare` shows of real pairs and of hostile names, in all its outputs."""

import json
from fractions import Fraction

import pytest
from rich.cells import cell_len

import traceview
from tests.build import Export
from tests.comparison.test_known_changes import KEYS
from tests.contracts.test_hostile_traces import NAMES
from tests.places import REPOSITORY
from tests.render.schemas.strictness import validator
from traceview.cli import run
from traceview.render.comparison.text import render_text
from traceview.traces.comparison.changes import changes

MOST_LINES = 60
CONTROLS = {"\x1b", "\x9b", "\u202e", "\u2066", "\x00"}


@pytest.fixture(scope="module", params=KEYS)
def comparison(request):
    key = KEYS[request.param]
    return traceview.compare(
        *(REPOSITORY / f"{key[side]}.sqlite.xz" for side in ("before", "after"))
    )


def test_the_json_of_a_real_pair_fits_its_schema_and_sums(comparison):
    document = json.loads(comparison.to_json())
    validator("compare").validate(document)
    moved = sum(part["difference_ns"] for part in document["parts"])
    assert moved == pytest.approx(float(comparison.delta_ns), abs=1)


@pytest.mark.parametrize("width", [80, 160])
def test_the_text_of_a_real_pair_fits_the_terminal(comparison, width):
    lines = render_text(comparison, width=width).splitlines()
    assert len(lines) <= MOST_LINES
    assert max(map(cell_len, lines)) <= width


def test_no_part_of_a_real_pair_is_in_two_sentences(comparison):
    parts = [part for change in changes(comparison) for part in change.parts]
    assert len({id(part) for part in parts}) == len(parts)
    told = sum((change.delta_ns for change in changes(comparison)), Fraction(0))
    rest = sum(abs(part.delta_ns) for part in comparison.parts if part not in parts)
    assert abs(comparison.delta_ns - told) <= rest


@pytest.fixture(scope="module", params=NAMES.values(), ids=NAMES)
def hostile(request, tmp_path_factory):
    """Two recordings whose kernels and ranges have this name; the second has more of them."""
    folder, paths = tmp_path_factory.mktemp("hostile"), []
    for calls in (1, 3):
        export = Export()
        for step in range(4):
            at = 1000 * step
            export.range(f"step_{step}", at, at + 1000).range(request.param, at + 1, at + 900)
            for call in range(calls):
                start = at + 100 * call
                export.launch((start + 2, start + 4), (start + 10, start + 90), name=request.param)
        paths.append(export.write(folder / f"{calls}.sqlite"))
    return paths


def compared(paths, capsys, *options):
    """What `traceview compare` prints, and nothing in it is a control character."""
    status = run(["compare", *map(str, paths), *map(str, options)])
    out, err = capsys.readouterr()
    assert status == 0, err
    assert "Traceback" not in out + err
    assert not CONTROLS & set(out)
    return out


def test_a_hostile_name_is_text_in_the_terminal(hostile, capsys):
    compared(hostile, capsys)


def test_a_hostile_name_is_text_in_every_document(hostile, tmp_path, capsys):
    """In one run: JSON on stdout, and both files."""
    page, markdown = tmp_path / "page.html", tmp_path / "comparison.md"
    json.loads(compared(hostile, capsys, "--json", "--html", page, "--markdown", markdown))
    for document in (page.read_text("utf-8"), markdown.read_text("utf-8")):
        assert not CONTROLS & set(document)
        assert "<script>alert" not in document
        assert "<img src=x" not in document
