"""A command whose help groups its options under headings and ends with examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click


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
