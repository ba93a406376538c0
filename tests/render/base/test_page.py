"""Templates of pages: compiled once, where Python's own modules are."""

import sys
from pathlib import Path

import jinja2
import pytest

from traceview.render.base import page


@pytest.fixture
def compiled(monkeypatch, tmp_path):
    """Compiled templates in an empty folder; the result counts the compiled ones."""
    counted: list[str] = []
    compile_ = jinja2.Environment.compile

    def counting(self, source, name=None, *given, **options):
        counted.append(name)
        return compile_(self, source, name, *given, **options)

    monkeypatch.setattr(jinja2.Environment, "compile", counting)
    monkeypatch.setattr(page, "_COMPILED", tmp_path / "__pycache__")
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    yield counted
    page._environment.cache_clear()


def loaded(*templates):
    page._environment.cache_clear()
    page.compile_templates(*templates)


def test_a_template_is_compiled_once(compiled):
    for _ in range(2):
        loaded("page.html", "tables.html")
    assert compiled == ["page.html", "tables.html"]


def test_a_folder_that_cannot_be_written_is_no_obstacle(compiled, tmp_path):
    Path(tmp_path / "__pycache__").write_text("in the way")
    for _ in range(2):
        loaded("page.html")
    assert compiled == ["page.html", "page.html"]


def test_python_that_writes_no_compiled_modules_writes_no_templates(
    compiled, monkeypatch, tmp_path
):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loaded("page.html")
    assert [*tmp_path.iterdir()] == []
