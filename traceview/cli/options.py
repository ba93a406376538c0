"""Options that several verbs have: their values, their help, and how a shell completes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from traceview.errors import InputError
from traceview.records import record

# A command whose help groups its options under headings and ends with examples.


class Verb(click.Command):
    """One verb of the command line.

    `sections` maps a heading to the options below it, by their first name (`--html`); options in
    no section come last, under "Other options". `examples` are command lines.
    """

    def __init__(
        self,
        *arguments: Any,
        sections: Mapping[str, Sequence[str]] | None = None,
        examples: Sequence[str] = (),
        **named: Any,
    ) -> None:
        super().__init__(*arguments, **named)
        self.sections = dict(sections or {})
        self.examples = tuple(examples)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of each section."""
        options = [each for each in self.get_params(ctx) if isinstance(each, click.Option)]
        records = {
            option.opts[0]: record
            for option in options
            if (record := option.get_help_record(ctx)) is not None
        }
        for heading, names in self.sections.items():
            with formatter.section(heading):
                formatter.write_dl([records.pop(name) for name in names])
        with formatter.section("Other options" if self.sections else "Options"):
            formatter.write_dl(list(records.values()))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, each on a line of its own."""
        super().format_epilog(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples:
                    formatter.write(f"{'':>{formatter.current_indent}}{example}\n")


# Values of options that are checked while the command line is read, so that a bad one exits 2.


@contextmanager
def misuse(parameter: click.Parameter) -> Iterator[None]:
    """Turn an InputError about the value of an option into a usage error."""
    try:
        yield
    except InputError as error:
        raise click.BadParameter(str(error), param=parameter) from None


def peaks(
    _: click.Context, parameter: click.Parameter, figures: tuple[str, ...]
) -> tuple[str, ...]:
    """Check the values of `--peak`, such as bandwidth=4.8e12."""
    from traceview.hardware import overrides

    with misuse(parameter):
        overrides.parse_figures(figures)
    return figures


def check_archs(parameter: click.Parameter, archs: Sequence[str]) -> None:
    """Raise BadParameter for a value that is not a GPU architecture."""
    from traceview.inspect.targets.target import check_arch

    with misuse(parameter):
        for arch in archs:
            check_arch(arch)


def arch(_: click.Context, parameter: click.Parameter, name: str | None) -> str | None:
    """Check the value of an `--arch` that takes a single one."""
    check_archs(parameter, [name] if name else [])
    return name


# Options that take several values: `--num-warps 4 8`.
#
# Click options take a fixed number of values. So the arguments are rewritten before click parses
# them, repeating the option for each value: `--num-warps 4 --num-warps 8`.

_SUFFIXES = (".py", ".ptx", ".cubin", ".cu", ".sqlite")
_NAMED = re.compile(r"[^\W\d]\w*=.*", re.DOTALL)
_TYPED = re.compile(r"\s*\*|[^,]+,")


def _is_number(value: str) -> bool:
    return value.isascii() and value.isdigit()


def _is_arch(value: str) -> bool:
    return re.fullmatch(r"sm_\d+[af]?", value) is not None


def _is_named(value: str) -> bool:
    return _NAMED.fullmatch(value) is not None and not _is_file(value)


def _is_signature(value: str) -> bool:
    return _TYPED.match(value) is not None and not _is_file(value)


def _is_file(value: str) -> bool:
    return value.endswith(_SUFFIXES) or Path(value).exists()


FORMS: Mapping[str, Callable[[str], bool]] = {
    "--num-warps": _is_number,
    "--num-stages": _is_number,
    "--arch": _is_arch,
    "--constexpr": _is_named,
    "--signature": _is_signature,
}
"""Multi-value options, each with a test for what may be one of its further values."""


def one_option_per_value(arguments: Sequence[str]) -> list[str]:
    """Repeat each option before each further value of it.

    Only words of the option's form count as values: in `--num-warps 4 gelu.py` the target follows.
    """
    return list(_spread(arguments))


def split_at_double_dash(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split the arguments at `--`, which is in neither part."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return list(arguments[:end]), list(arguments[end + 1 :])


def _spread(arguments: Sequence[str]) -> Iterator[str]:
    option, values = "", 0
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        if name in FORMS:
            option, values = name, 1 if equals else 0
        elif values and FORMS[option](argument):
            yield option
        elif option and not values:
            values = 1
        else:
            option, values = "", 0
        yield argument


def one_or_list(values: Sequence[Any]) -> Any:
    """None for no value, a single value as it is, several distinct ones as a list."""
    different = list(dict.fromkeys(values))
    if len(different) > 1:
        return different
    return different[0] if different else None


# Values that the shell completes: names of analyses, and ranges of the trace on the line.

_MOST = 200
_ACTIVE = frozenset("$`\\!;&|<>()'\"")
OURS = "traceview:"
"""Name prefix of the ranges that `traceview record` adds around calls; not worth selecting."""


def complete_analyses(
    _: click.Context, parameter: click.Parameter, typed: str
) -> list[CompletionItem]:
    """Names of analyses, each with its question; after a comma, the next one."""
    from traceview.analyses import ALL
    from traceview.explanation import explanations

    before, comma, last = typed.rpartition(",")
    known = explanations() if parameter.name == "explain" else ALL
    items = [(each.name, each.question) for each in known]
    return [
        CompletionItem(f"{before}{comma}{name}", help=question)
        for name, question in items
        if name.startswith(last)
    ]


def complete_ranges(ctx: click.Context, _: click.Parameter, typed: str) -> list[CompletionItem]:
    """Names of the ranges in TRACE, with * for numbers; none if that cannot be read."""
    # While the option's value is missing, click leaves the whole line unparsed.
    words = [*(ctx.params.get("traces") or ()), *ctx.args]
    trace = next((Path(word) for word in words if word and Path(word).is_file()), None)
    names = _range_names(trace) if trace else []
    return [CompletionItem(name) for name in names if name.startswith(typed)][:_MOST]


def _range_names(trace: Path) -> list[str]:
    from traceview.facts.ranges.ranges import range_tree
    from traceview.trace.load import load

    try:
        # Not traceview.load, which runs nsys for a .nsys-rep: a key press must start no program.
        names = range_tree(load(trace)).patterns.names
    except Exception:  # A shell has no place for an error message.
        return []
    globs = {str(name).replace("#", "*") for name in names if not str(name).startswith(OURS)}
    return sorted(name for name in globs if name and len(name) <= _MOST and _is_inert(name))


def _is_inert(name: str) -> bool:
    """Whether a name stands for itself on a command line: bash inserts it without quotes."""
    return name.isprintable() and not _ACTIVE & set(name)


# Options that decide what a report analyzes, as `traceview.analyze` takes them.


@record
class AnalysisOptions:
    """What to analyze of a recording: analyses, ranges, and input from elsewhere."""

    only: tuple[str, ...] = ()
    ranges: tuple[str, ...] = ()
    exclude_ranges: tuple[str, ...] = ()
    strict: bool = False
    peaks: tuple[str, ...] = ()
    ncu: Path | None = None
    cubins: tuple[Path, ...] = ()

    @property
    def of_one_recording(self) -> Mapping[str, object]:
        """The options that only the report of one recording has, with their values."""
        return {
            "--range": self.ranges,
            "--exclude-range": self.exclude_ranges,
            "--strict": self.strict,
            "--peak": self.peaks,
            "--ncu": self.ncu,
            "--cubin": self.cubins,
        }
