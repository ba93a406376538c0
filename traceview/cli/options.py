"""Options that several verbs have: their values, their help, and how a shell completes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from traceview.base.errors import InputError
from traceview.cli import debug_option

# A command whose help groups its options under headings and ends with examples.


class Verb(click.Command):
    """One verb of the command line, with `--debug` as its last option.

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
        debug_option(self)
        self.sections = dict(sections or {})
        self.examples = tuple(examples)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of each section."""
        records = {
            option.opts[0]: record
            for option in self.get_params(ctx)
            if isinstance(option, click.Option) and (record := option.get_help_record(ctx))
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


def option(shown: str, text: str, name: str | None = None, **settings: Any) -> Callable[[Any], Any]:
    """An option as its help shows it: `-o, --output PATH`, or `--force`, a flag.

    `name` is that of the command's parameter, where it is not the option's; `settings` are click's.
    """
    *others, last = shown.split(", ")
    last, _, metavar = last.partition(" ")
    if not (metavar or {"type", "default"} & settings.keys()):
        settings.setdefault("is_flag", True)
    declared = (*others, last, *([name] if name else []))
    return click.option(*declared, metavar=metavar or None, help=text, **settings)


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
    from traceview.base.hardware import rates

    with misuse(parameter):
        rates.parse_figures(figures)
    return figures


def peak(text: str) -> Callable[[Any], Any]:
    """`--peak`, and what it overrides."""
    shown, text = "--peak NAME=VALUE", f"{text} (repeatable)."
    return option(shown, text, "peaks", multiple=True, callback=peaks)


def named(_: click.Context, parameter: click.Parameter, name: str | None) -> str | None:
    """Refuse an empty value, as of a shell variable that is not set: it would mean nothing."""
    if name is not None and not name.strip():
        raise click.BadParameter("it is empty", param=parameter)
    return name


def check_archs(parameter: click.Parameter, archs: Sequence[str]) -> None:
    """Raise BadParameter for a value that is not a GPU architecture."""
    from traceview.kernels.inspect.targets import check_arch

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


def _is_value(option: str, word: str) -> bool:
    if not re.fullmatch(FORMS[option], word, re.DOTALL):
        return False
    # A file may be of these forms, too: then it is the target.
    may_be_file = option in ("--constexpr", "--signature")
    return not (may_be_file and (word.endswith(_SUFFIXES) or Path(word).exists()))


FORMS: Mapping[str, str] = {
    "--num-warps": "[0-9]+",
    "--num-stages": "[0-9]+",
    "--arch": r"sm_\d+[af]?",
    "--triton": r"\d+(\.\d+)+\w*(,[\w.]+)*",
    "--constexpr": r"[^\W\d]\w*=.*",
    "--signature": r"(\s*\*|[^,]+,).*",
    "--candidate": "[^-].*",
}
"""Multi-value options, each with the form of its further values."""


def one_option_per_value(arguments: Sequence[str]) -> list[str]:
    """Repeat each option before each further value of it.

    Only words of the option's form count as values: in `--num-warps 4 gelu.py` the target follows.
    """
    spread, option, values = [], "", 0
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        if name in FORMS:
            option, values = name, 1 if equals else 0
        elif values and _is_value(option, argument):
            spread.append(option)
        elif option and not values:
            values = 1
        else:
            option, values = "", 0
        spread.append(argument)
    return spread


def split_at_double_dash(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split the arguments at `--`, which is in neither part."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return list(arguments[:end]), list(arguments[end + 1 :])


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
    from traceview.traces.analyses import ALL
    from traceview.traces.explanation import explanations

    before, comma, last = typed.rpartition(",")
    answers = explanations() if parameter.name == "explain" else ALL
    return [
        CompletionItem(f"{before}{comma}{answer.name}", help=answer.question)
        for answer in answers
        if answer.name.startswith(last)
    ]


def complete_ranges(ctx: click.Context, _: click.Parameter, typed: str) -> list[CompletionItem]:
    """Names of the ranges in TRACE, with * for numbers; none if that cannot be read."""
    # While the option's value is missing, click leaves the whole line unparsed.
    words = [*(ctx.params.get("traces") or ()), *ctx.args]
    trace = next((Path(word) for word in words if word and Path(word).is_file()), None)
    if not trace:
        return []
    from traceview.traces.facts.ranges.ranges import range_tree
    from traceview.traces.trace.load import load

    try:
        # Not traceview.load, which runs nsys for a .nsys-rep: a key press must start no program.
        names = map(str, range_tree(load(trace)).patterns.names)
    except Exception:  # A shell has no place for an error message.
        return []
    globs = sorted({name.replace("#", "*") for name in names if not name.startswith(OURS)})
    # Names that stand for themselves on a command line: bash inserts them without quotes.
    inert = (name for name in globs if name.isprintable() and not _ACTIVE & set(name))
    short = (name for name in inert if 0 < len(name) <= _MOST and name.startswith(typed))
    return [CompletionItem(name) for name in islice(short, _MOST)]


def selection(chosen: str, left: str) -> Callable[[Any], Any]:
    """`--range`, `--exclude-range` and `--strict`, and what is done with chosen ranges and left."""

    def declared(command: Any) -> Any:
        several: dict[str, Any] = {"multiple": True, "shell_complete": complete_ranges}
        command = option(
            "--strict",
            "Do not assign work from threads without ranges, such as autograd's, to a range of "
            "the main thread.",
        )(command)
        left_out = f"{left} (repeatable)."
        command = option("--exclude-range GLOB", left_out, "exclude_ranges", **several)(command)
        return option("--range GLOB", f"{chosen} (repeatable).", "ranges", **several)(command)

    return declared
