"""The notebook in docs: its cells run, and show what is saved in the file."""

import json

import pytest
from matplotlib.figure import Figure

from scripts.run_notebook import run, shown
from tests.places import REPOSITORY

NOTEBOOK = REPOSITORY / "docs" / "python.ipynb"
REFRESH = "run: python scripts/run_notebook.py docs/python.ipynb"


@pytest.fixture(scope="module")
def notebook():
    return json.loads(NOTEBOOK.read_text("utf-8"))


@pytest.fixture(scope="module")
def values(notebook):
    return run(notebook)


def code_cells(notebook):
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def test_every_cell_shows_what_is_saved(notebook, values):
    for cell, value in zip(code_cells(notebook), values, strict=True):
        assert cell["outputs"] == shown(value), REFRESH


def test_saved_outputs_are_small(notebook):
    assert NOTEBOOK.stat().st_size < 40_000
    for cell in code_cells(notebook):
        assert cell["execution_count"] is None
        assert sum(len(output["data"]["text/plain"]) for output in cell["outputs"]) <= 40


def test_the_chart_is_drawn(values):
    (figure,) = [value for value in values if isinstance(value, Figure)]
    assert "<svg" in figure._repr_svg_()


def test_it_is_a_notebook_of_version_4(notebook):
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 4)
    assert set(notebook) == {"cells", "metadata", "nbformat", "nbformat_minor"}
    for cell in notebook["cells"]:
        extra = {"execution_count", "outputs"} if cell["cell_type"] == "code" else set()
        assert set(cell) == {"cell_type", "metadata", "source"} | extra
