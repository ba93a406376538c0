"""Values of options that are checked while the command line is read, so that a bad one exits 2."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click

from traceview.errors import InputError


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
