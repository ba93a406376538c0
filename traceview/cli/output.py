"""Output of a verb: files, written whole or not at all, and the terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields
from functools import reduce, wraps
from pathlib import Path
from shutil import get_terminal_size
from typing import Any

import click

from traceview.base import outputs, stages
from traceview.base.display import show
from traceview.base.records import record
from traceview.base.version import __version__
from traceview.cli import Settings
from traceview.cli.options import option
from traceview.cli.process import show_in_pager

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


def output_file(metavar: str, text: str, *, required: bool = False) -> Callable[[Any], Any]:
    """The option `-o` of a verb that writes one file."""
    return option(f"-o, --output {metavar}", text, type=OutputFile(), required=required)


json_option = option(
    "--json [PATH|-]",
    "Write JSON. With no path or -, print only JSON to stdout.",
    "json_",
    is_flag=False,
    flag_value=STDOUT,
)
output_option = option(
    "-o, --output PATH",
    "Write to this file, in the format of its extension.",
    type=click.Path(path_type=Path),
)
document_option = option(
    "-o, --output PATH",
    "Write HTML, JSON or Markdown, by the extension of PATH: .html, .json or .md.",
    type=click.Path(path_type=Path),
)
force_option = option("--force", "Overwrite existing files.")
open_option = option("--open", "Open the HTML page in the browser.", "opens")
markdown_option = option(
    "--markdown [PATH|-]",
    "Write Markdown for an issue or a pull request. With no path or -, print only "
    "Markdown to stdout.",
    is_flag=False,
    flag_value=STDOUT,
)


def html_option(page: str) -> Callable[[Any], Any]:
    """The option `--html`; `page` completes its help."""
    return option(
        "--html [PATH]",
        f"Write a self-contained HTML page{page} in the current folder.",
        is_flag=False,
        flag_value="",
    )


_KINDS = ("html", "json", "markdown")


def documents(
    page: str = "", force: Callable[[Any], Any] = force_option, kinds: Sequence[str] = _KINDS
) -> Callable[[Any], Any]:
    """The options of a verb that writes documents of these kinds, which it takes as `asked`.

    `page` completes the help of --html.
    """
    all_kinds = "markdown" in kinds
    chosen = [document_option if all_kinds else output_option, json_option, force]
    chosen += [html_option(page)] if "html" in kinds else []
    chosen += [markdown_option, open_option] if all_kinds else []

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def gathered(*arguments: Any, **options: Any) -> Any:
            given = {each.name: options.pop(each.name, each.default) for each in fields(Asked)}
            return command(*arguments, asked=Asked(**{**given, "kinds": tuple(kinds)}), **options)

        return reduce(lambda command, option: option(command), chosen, gathered)

    return decorate


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


def write_file(path: Path, text: str | Iterable[str]) -> None:
    """Write text, whole or in pieces, to a file and print `Wrote PATH` to stderr.

    The file is replaced as a whole or not at all, and compressed if it is named .gz. Raises
    TraceviewError if it cannot be written.
    """
    pieces = (text,) if isinstance(text, str) else text
    outputs.write_pieces(path, (piece.encode() for piece in pieces))
    say_written(path)


def say_written(path: Path, more: str = "") -> None:
    """Print `Wrote PATH` to stderr."""
    click.echo(f"Wrote {click.format_filename(path)}{more}", err=True)


def print_text(draw: Callable[[int, bool], str], *, pager: bool = False) -> None:
    """Print the text that `draw(width, color)` returns for the width and colours of stdout.

    The width is that of $COLUMNS, else the terminal's, else 80. With `pager`, a terminal shows a
    text longer than one screen through $PAGER.
    """
    requested = os.environ.get("COLUMNS", "")
    width = int(requested) if requested.isdecimal() else 0
    if not width:
        with suppress(OSError, ValueError):
            width = os.get_terminal_size(sys.stdout.fileno()).columns
    text = draw(max(width or _PLAIN, _NARROWEST), is_colorful())
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


_SUFFIXES = {".html": "html", ".htm": "html", ".json": "json", ".md": "markdown"}


@record
class Outputs:
    """Destination of each output; None if it was not requested.

    `stdout` is what stdout gets in place of the screen: `json`, `markdown` or nothing.
    """

    html: Path | None = None
    json: Path | None = None
    markdown: Path | None = None
    csv: Path | None = None
    stdout: str = ""
    all_rows: bool = False
    opens: bool = False

    @property
    def files(self) -> list[Path]:
        return [path for path in (self.html, self.json, self.markdown) if path]

    def screen(self, draw: Callable[[int, bool], str], *, pager: bool = False) -> None:
        """Print the text of `draw`, as `print_text`, unless stdout gets a document instead."""
        if not self.stdout:
            print_text(draw, pager=pager)

    def put_answer(self, answer: object, *, pager: bool = False) -> None:
        """Print an answer, and write those of its documents that were requested."""
        self.screen(
            lambda width, color: show(answer, "screen", width=width, color=color), pager=pager
        )
        self.put_documents(answer)

    def put_documents(
        self,
        answer: object,
        only: Sequence[str] = (),
        page: Callable[[], Iterable[str]] | None = None,
    ) -> None:
        """Write those documents of an answer that were requested, and open its page if that was.

        `only` names the tables of a job that its JSON has; by default it has all. `page` returns
        the page in pieces, where it is being rendered already.
        """
        limits = {"most_rows": None} if self.all_rows else {}
        if self.html:
            with progress("Rendering the page"):
                text = page() if page else show(answer, "page", __version__, **limits)
            write_file(self.html, text)
        self.put("json", lambda: show(answer, "pieces", __version__, only=only, **limits))
        self.put("markdown", lambda: show(answer, "markdown"))
        if self.opens and self.html:
            import webbrowser

            if not webbrowser.open(self.html.resolve().as_uri()):
                click.echo(
                    f"no browser found; open {click.format_filename(self.html)} yourself", err=True
                )

    def put(self, kind: str, document: Callable[[], str | Iterable[str]]) -> None:
        """Write a document, whole or in pieces, to its file or to stdout if it was requested."""
        path: Path | None = getattr(self, kind)
        if path or self.stdout == kind:
            put_json(document(), path)


@record
class Asked:
    """The options of `documents` as given; `kinds` are the documents that the verb writes."""

    html: str | None = None
    json_: str | None = None
    markdown: str | None = None
    output: Path | None = None
    opens: bool = False
    force: bool = False
    kinds: tuple[str, ...] = _KINDS

    def outputs(
        self,
        stem: str,
        sources: Iterable[Path] = (),
        *,
        kind: str = "trace",
        csv: Path | None = None,
        all_rows: bool = False,
    ) -> Outputs:
        """The outputs; an empty `html` means `<stem>.html`. Misuse is a UsageError.

        Raises InputError or OutputExistsError if a file cannot be written, which must be none of
        the `sources`, each of that `kind`.
        """
        html, output = self.html, self.output
        if self.opens and html is None:
            html = ""
        page = f"{stem}.html" if html == "" else html
        if html == "" and output and output.suffix.lower().startswith(".htm"):
            # -o names the page that --html asks for.
            page = None
        paths = {"html": page, "json": self.json_, "markdown": self.markdown}
        if output is not None:
            ending = _SUFFIXES.get(output.suffix.lower(), "")
            if ending not in self.kinds:
                endings = ", ".join(end for end, kind in _SUFFIXES.items() if kind in self.kinds)
                what = f"-o {output}: its name does not end in one of {endings}"
                raise click.UsageError(what)
            if paths[ending] not in (None, STDOUT):
                what = f"-o {output} and --{ending} {paths[ending]} both name a file"
                raise click.UsageError(what)
            paths[ending] = str(output)
        to_stdout = [kind for kind in ("json", "markdown") if paths[kind] == STDOUT]
        if len(to_stdout) > 1:
            raise click.UsageError("--json and --markdown cannot both go to stdout")
        files = {k: Path(p) for k, p in paths.items() if p is not None and k not in to_stdout}
        if all_rows and not (files or to_stdout):
            raise click.UsageError("--all-rows needs --html or --json")
        for source in sources:
            check_writable(files.values(), source=source, force=self.force, kind=kind)
        stdout = "".join(to_stdout)
        return Outputs(**files, csv=csv, stdout=stdout, all_rows=all_rows, opens=self.opens)

    def no_input(self, name: str, remedy: str, instead: str = "") -> click.UsageError:
        """The error for a missing argument; an option such as `--html PATH` may have taken it.

        `remedy` may name the path that was taken as {path} and the option as {option}; `instead` is
        what else would do.
        """
        taken = {"html": self.html, "json": self.json_, "markdown": self.markdown}
        text = f"Missing argument '{name}'{f' ({instead})' if instead else ''}."
        for kind, path in taken.items():
            if path and path != STDOUT:
                text = (
                    f"--{kind} took {path!r} as its output file, so {name} is missing. "
                    f"{remedy.format(path=path, option=f'--{kind}')}"
                )
                break
        return click.UsageError(text, click.get_current_context())


def put_json(document: str | Iterable[str], path: Path | None) -> None:
    """Write a document, whole or in pieces, to the file or, if that is None, to stdout."""
    if path:
        write_file(path, document)
        return
    # Joined into larger blocks, since printing each is a system call.
    pieces, size = [], 0
    for piece in (document,) if isinstance(document, str) else document:
        pieces.append(piece)
        size += len(piece)
        if size >= BLOCK_CHARACTERS:
            click.echo("".join(pieces), nl=False)
            pieces, size = [], 0
    click.echo("".join(pieces), nl=False)


@contextmanager
def progress(first: str) -> Iterator[Callable[[str], None]]:
    """Show a stage and its percentage on stderr if it is a terminal.

    Yields a function that shows the next stage. Stages that the work itself reports through
    `traceview.base.stages` are shown too.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(first)) as status:

        def say(name: str, pct: float | None = None) -> None:
            status.update(Text(name if pct is None else f"{name}  {pct:.0f} %"))

        with stages.listening(say):
            yield say
