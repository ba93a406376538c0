"""Output of a verb: files, written whole or not at all, and the terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shutil import get_terminal_size
from typing import Any

import click

from traceview import outputs, stages
from traceview.cli import Settings
from traceview.cli.process import show_in_pager
from traceview.records import record

STDOUT = "-"
_NO_STDOUT = "this output does not go to stdout: name a file"


class OutputFile(click.Path):
    """The click type of an output file; rejects `-`, which stands for stdout."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == STDOUT:
            self.fail(_NO_STDOUT, param, ctx)
        return super().convert(value, param, ctx)


json_option = click.option(
    "--json",
    "json_",
    is_flag=False,
    flag_value=STDOUT,
    metavar="[PATH|-]",
    help="Write JSON. With no path or -, print only JSON to stdout.",
)
output_option = click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Write to this file, in the format of its extension.",
)
document_option = click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Write HTML, JSON or Markdown, by the extension of PATH: .html, .json or .md.",
)
open_option = click.option(
    "--open", "opens", is_flag=True, help="Open the HTML page in the browser."
)
markdown_option = click.option(
    "--markdown",
    is_flag=False,
    flag_value=STDOUT,
    metavar="[PATH|-]",
    help="Write Markdown for an issue or a pull request. With no path or -, print only "
    "Markdown to stdout.",
)
_NARROWEST, _PLAIN = 40, 80
BLOCK_CHARACTERS = 1 << 16


def check_writable(
    paths: Iterable[Path], *, source: Path, force: bool, kind: str = "trace"
) -> None:
    """Raise InputError or OutputExistsError if one of the files cannot be written.

    Raises UsageError if two of them have the same path: the second would replace the first.
    """
    seen: set[Path] = set()
    for path in paths:
        if path.name == STDOUT:
            raise click.UsageError(_NO_STDOUT)
        if path.resolve() in seen:
            raise click.UsageError(f"two outputs have the name {path}")
        if path.is_file() or not path.exists():
            seen.add(path.resolve())
        outputs.check_report_output(path, force=force, source=source, source_kind=kind)


def write_file(path: Path, text: str | Iterable[str], *, quiet: bool = False) -> None:
    """Write text, whole or in pieces, to a file and print `Wrote PATH` to stderr, unless `quiet`.

    The file is replaced as a whole or not at all, and compressed if it is named .gz. Raises
    TraceviewError if it cannot be written.
    """
    pieces = (text,) if isinstance(text, str) else text
    outputs.write_pieces(path, (piece.encode() for piece in pieces))
    if not quiet:
        click.echo(f"Wrote {click.format_filename(path)}", err=True)


def print_text(draw: Callable[[int, bool], str], *, pager: bool = False) -> None:
    """Print the text that `draw(width, color)` returns for the width and colours of stdout.

    With `pager`, a terminal shows a text longer than one screen through $PAGER.
    """
    color = is_colorful()
    text = draw(max(_width(), _NARROWEST), color)
    encoding = sys.stdout.encoding or "utf-8"
    # A terminal that cannot show a sign gets a question mark, not a traceback.
    shown = text.encode(encoding, "replace").decode(encoding)
    is_long = pager and sys.stdout.isatty() and text.count("\n") >= get_terminal_size().lines
    if not (is_long and show_in_pager(shown.encode(encoding))):
        click.echo(shown, nl=False, color=True)


def is_colorful() -> bool:
    """Whether stdout gets colours: as `--color` says, else on a terminal without NO_COLOR."""
    context = click.get_current_context(silent=True)
    settings = context.find_object(Settings) if context else None
    if settings and settings.color != "auto":
        return settings.color == "always"
    has_colors = "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    return has_colors and sys.stdout.isatty()


def shows_links() -> bool:
    """Whether stdout is a terminal that has links (OSC 8) or ignores them."""
    return is_colorful() and sys.stdout.isatty() and os.environ.get("TERM") != "linux"


def _width() -> int:
    """Columns: $COLUMNS, else the terminal's, else 80."""
    requested = os.environ.get("COLUMNS", "")
    if requested.isdecimal() and int(requested):
        return int(requested)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or _PLAIN
    except (OSError, ValueError):
        return _PLAIN


def open_in_browser(page: Path) -> None:
    """Open a written page in this machine's browser; without one, print a note to stderr."""
    import webbrowser

    if not webbrowser.open(page.resolve().as_uri()):
        click.echo(f"no browser found; open {click.format_filename(page)} yourself", err=True)


@record
class Outputs:
    """Destination of each output; None if it was not requested."""

    html: Path | None
    json: Path | None
    json_to_stdout: bool

    @classmethod
    def of(cls, stem: str, html: str | None, json_: str | None) -> Outputs:
        """Create from the values of --html and --json; an empty `html` means `<stem>.html`."""
        page = Path(html or f"{stem}.html") if html is not None else None
        to_stdout = json_ == STDOUT
        return cls(page, Path(json_) if json_ and not to_stdout else None, to_stdout)

    def with_output(self, output: Path | None, *, pages: bool = True) -> Outputs:
        """Add the file of -o, HTML or JSON by its extension. Raises UsageError on misuse."""
        if output is None:
            return self
        suffix = output.suffix.lower()
        if pages and suffix in (".html", ".htm") and self.html is None:
            return replace(self, html=output)
        if suffix == ".json" and self.json is None:
            return replace(self, json=output, json_to_stdout=False)
        known = ".html or .json" if pages else ".json"
        raise click.UsageError(f"-o {output}: its name must end in {known}, and be given once")

    @property
    def files(self) -> list[Path]:
        return [path for path in (self.html, self.json) if path]


def put_json(document: str | Iterable[str], path: Path | None) -> None:
    """Write a document, whole or in pieces, to the file or, if that is None, to stdout."""
    if path:
        write_file(path, document)
        return
    for block in _blocks((document,) if isinstance(document, str) else document):
        click.echo(block, nl=False)


def _blocks(pieces: Iterable[str]) -> Iterator[str]:
    """Join pieces into larger blocks, since printing each block is a system call."""
    held, size = [], 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size >= BLOCK_CHARACTERS:
            yield "".join(held)
            held, size = [], 0
    yield "".join(held)


@contextmanager
def progress(first: str) -> Iterator[Callable[[str], None]]:
    """Show a stage and its percentage on stderr if it is a terminal.

    Yields a function that shows the next stage. Stages that the work itself reports through
    `traceview.stages` are shown too.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(first)) as status:

        def show(name: str, pct: float | None = None) -> None:
            status.update(Text(name if pct is None else f"{name}  {pct:.0f} %"))

        with stages.listening(show):
            yield show
