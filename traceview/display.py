"""Display of the public types: `repr`, HTML for notebooks, charts, whole documents.

These types stand below `render` in the order of imports, and `render` draws them. `show` looks up
the renderer of a type and a form in a registry, which `render` fills when the first value is shown.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from traceview.outputs import check_output

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Figure

Form = Literal["text", "html", "figure", "page", "json", "markdown"]
"""Lines of a `repr`, an element of a notebook, a chart, and whole documents."""
Renderer = Callable[..., Any]

_RENDERERS: dict[tuple[str, Form], Renderer] = {}
_FILLED_BY = "traceview.render.forms"


def shows(form: Form, *types: str) -> Callable[[Renderer], Renderer]:
    """Register the renderer of a form for types, by the names of their classes.

    A name spares the registry the import of types that nobody shows; class names are unique.
    """

    def register(renderer: Renderer) -> Renderer:
        _RENDERERS.update(((name, form), renderer) for name in types)
        return renderer

    return register


def show(value: object, form: Form, *options: Any) -> Any:
    """The value in a form: a text, or a figure. Raises TypeError if it has no such form."""
    import_module(_FILLED_BY)
    for kind in type(value).__mro__:
        if renderer := _RENDERERS.get((kind.__name__, form)):
            return renderer(value, *options)
    raise TypeError(f"{type(value).__name__} has no {form}")


class Described:
    """Base of values with a `repr` of at most one screen of plain lines."""

    __slots__ = ()

    def __repr__(self) -> str:
        text: str = show(self, "text")
        return text


class Drawn(Described):
    """Base of values that a notebook shows as HTML: self-contained, without scripts."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        html: str = show(self, "html")
        return html


class WrittenReport(Drawn):
    """Base of reports: HTML page, JSON document, one-screen `repr`, HTML in a notebook."""

    @overload
    def to_html(self, path: None = None, *, force: bool = False, all_rows: bool = False) -> str: ...
    @overload
    def to_html(self, path: str | Path, *, force: bool = False, all_rows: bool = False) -> Path: ...
    def to_html(
        self, path: str | Path | None = None, *, force: bool = False, all_rows: bool = False
    ) -> str | Path:
        """The report as one HTML page; with a path, write it there and return the path.

        The page has the first 1,000 rows of each table unless `all_rows`. Raises
        OutputExistsError if the file exists and not `force`.
        """
        return output(lambda: show(self, "page", all_rows), path, force)

    @overload
    def to_json(self, path: None = None, *, force: bool = False, all_rows: bool = False) -> str: ...
    @overload
    def to_json(self, path: str | Path, *, force: bool = False, all_rows: bool = False) -> Path: ...
    def to_json(
        self, path: str | Path | None = None, *, force: bool = False, all_rows: bool = False
    ) -> str | Path:
        """The report as JSON, as `traceview report --json` prints it; with a path, write it there.

        A table has at most 10,000 rows unless `all_rows`. Raises OutputExistsError if the file
        exists and not `force`.
        """
        return output(lambda: show(self, "json", all_rows), path, force)


def output(make: Callable[[], str], path: str | Path | None, force: bool) -> str | Path:
    """Return the text that `make` builds, or write it to `path` and return the path.

    Raises InputError or OutputExistsError, before calling `make`, if `path` cannot be written.
    """
    if path is None:
        return make()
    target = Path(path)
    check_output(target, force=force)
    target.write_text(make(), "utf-8")
    return target
