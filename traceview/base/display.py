"""Display of the public types: `repr`, HTML for notebooks, charts, whole documents.

These types stand below `render` in the order of imports, and `render` draws them: `show` looks up
the renderer of a type and a form in its registry.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, overload

from traceview.base.outputs import check_output
from traceview.base.version import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Figure

_FORMS = "traceview.render.forms"
"""The registry of what renders a type in a form."""


def show(value: object, form: str, *options: Any, **limits: Any) -> Any:
    """The value in a form: a text, or a figure. Raises TypeError if it has no such form."""
    return import_module(_FORMS).renderer(type(value), form)(value, *options, **limits)


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


class Written(Drawn):
    """Base of answers: HTML page, JSON and Markdown documents, one-screen `repr`, notebook cell.

    Each method returns the text; with a path it writes it there and returns the path, and raises
    OutputExistsError if the file exists and not `force`.
    """

    __slots__ = ()
    shows_first_rows: ClassVar[bool] = False
    """Whether its documents have only the first rows of long tables."""

    @overload
    def to_html(self, path: None = None, *, force: bool = False, all_rows: bool = False) -> str: ...
    @overload
    def to_html(self, path: str | Path, *, force: bool = False, all_rows: bool = False) -> Path: ...
    def to_html(
        self, path: str | Path | None = None, *, force: bool = False, all_rows: bool = False
    ) -> str | Path:
        """The answer as one page, with the first 400 rows of each table unless `all_rows`."""
        return output(lambda: self._shown("page", all_rows), path, force)

    @overload
    def to_json(self, path: None = None, *, force: bool = False, all_rows: bool = False) -> str: ...
    @overload
    def to_json(self, path: str | Path, *, force: bool = False, all_rows: bool = False) -> Path: ...
    def to_json(
        self, path: str | Path | None = None, *, force: bool = False, all_rows: bool = False
    ) -> str | Path:
        """The answer as its command prints it with `--json`.

        A table of a report has at most 10,000 rows unless `all_rows`.
        """
        return output(lambda: self._shown("json", all_rows), path, force)

    @overload
    def to_markdown(self, path: None = None, *, force: bool = False) -> str: ...
    @overload
    def to_markdown(self, path: str | Path, *, force: bool = False) -> Path: ...
    def to_markdown(self, path: str | Path | None = None, *, force: bool = False) -> str | Path:
        """The answer as Markdown, for an issue or a pull request."""
        return output(lambda: show(self, "markdown"), path, force)

    def _shown(self, form: str, all_rows: bool) -> str:
        limits = {"most_rows": None} if all_rows and self.shows_first_rows else {}
        text: str = show(self, form, __version__, **limits)
        return text


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
