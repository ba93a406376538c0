"""`traceview what-if`: replay a recording with edits and show the time per step with each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from traceview.base.outputs import unpacked_name
from traceview.cli import color_option, options
from traceview.cli.options import Verb, complete_ranges, misuse, option
from traceview.cli.output import Asked, documents, progress

_KINDS = ("kernel", "fuse", "no-sync", "graph", "cpu", "copy", "link", "gpu", "no-recorder")
_ORDER = "traceview.what_if.order"


class _WhatIfVerb(Verb):
    """Keeps the order of the edits: click gathers the values of each option by themselves."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = list(args)
        rest = super().parse_args(ctx, args)
        _, _, order = self.make_parser(ctx).parse_args(given)
        ctx.meta[_ORDER] = [str(each.name) for each in order]
        return rest


def _checked(
    _: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    """Check the form of the edits of an option, such as PATTERN=FACTOR."""
    if values:
        from traceview.traces.edits.requests import request

        with misuse(parameter):
            for value in values:
                request(str(parameter.opts[0]).removeprefix("--"), value)
    return values


def _edit(
    kind: str, metavar: str, text: str, complete: Callable[..., Any] | None = None
) -> Callable[[Any], Any]:
    """The option of one kind of edit."""
    shown, text = f"--{kind} {metavar}", f"{text} (repeatable)."
    return option(shown, text, multiple=True, callback=_checked, shell_complete=complete)


@click.command(
    cls=_WhatIfVerb,
    sections={
        "Edits": tuple(f"--{kind}" for kind in _KINDS),
        "Selection": ("--rank", "--range", "--exclude-range", "--strict"),
        "Additional input": ("--peak", "--ncu"),
        "Terminal": ("--color",),
        "Output": ("-o", "--html", "--open", "--json", "--markdown", "--force"),
    },
    examples=(
        "traceview what-if train.sqlite --no-sync train.py:90 --kernel '*gemm*=0.5'",
        "traceview what-if train.sqlite --graph step --cpu data.py:24=0 --html",
        "traceview what-if rank0.sqlite rank1.sqlite --rank 1 --cpu data.py:24=0",
    ),
)
@click.argument("traces", nargs=-1, metavar="TRACE…", type=click.Path(path_type=Path))
@_edit(
    "kernel",
    "PATTERN=FACTOR",
    "Scale kernels whose whole name, demangled or as reports show it, matches PATTERN (*, ?; | "
    "between several): =0.5 is half the time, =2x twice as fast",
)
@_edit(
    "fuse",
    "PATTERN|…=FACTOR",
    "Make one kernel, launched once, of kernels that match and follow each other on a stream; it "
    "takes FACTOR of their summed time",
)
@_edit(
    "no-sync",
    "PLACE",
    "Take out the waits of synchronizations and of blocking copies of results: at a line "
    "(train.py:90), by name (cudaStreamSynchronize, Tensor.item) or in a range",
    complete_ranges,
)
@_edit(
    "graph",
    "RANGE",
    "Launch the work of each instance of a range as one CUDA graph: step for the steps, forward, "
    "layer_#",
    complete_ranges,
)
@_edit(
    "cpu",
    "PLACE=FACTOR",
    "Scale the time of launching threads between CUDA calls: at a line (data.py:24) or in a "
    "function, by Python samples, or in a range",
)
@_edit("copy", "DIRECTION=FACTOR", "Scale copies by direction: H2D, D2H, D2D, P2P or *")
@_edit("link", "FACTORx", "Make copies between host and GPU FACTOR times as fast, such as 2x")
@_edit(
    "gpu",
    "NAME",
    "Scale kernels of known bytes or FLOP near a ceiling by the peak rates of another GPU, such "
    "as H200, B200 or 'A100 SXM 80GB'",
)
@option(
    "--no-recorder", "Take off what nsys adds: a quarter of each call and pause, or as measured."
)
@option(
    "--rank N",
    "Edit only this rank, of recordings of several (repeatable).",
    "ranks",
    multiple=True,
    type=int,
)
@options.selection(
    "Edit only what was launched in the ranges that match by name or path; times stay those "
    "of whole steps",
    "Leave what was launched in these ranges as it is",
)
@options.peak("Override a property of the recorded GPU for --gpu, as in traceview report")
@option(
    "--ncu FILE",
    "Read Nsight Compute counters of the same program for --gpu, as in traceview report.",
    type=click.Path(path_type=Path),
)
@color_option
@documents(". Default path: <trace>-what-if.html")
def command(
    traces: tuple[Path, ...],
    ranks: tuple[int, ...],
    ranges: tuple[str, ...],
    exclude_ranges: tuple[str, ...],
    strict: bool,
    peaks: tuple[str, ...],
    ncu: Path | None,
    asked: Asked,
    **edits: Any,
) -> None:
    """Show what edits of a program would win, by replaying TRACE with them.

    The edits add up in the order given: each row is the time per step with one more of them, and
    its error. TRACE is as in traceview report; several are those of the ranks of one job, replayed
    together. Contention for the GPU is not modelled.
    """
    if not traces:
        raise asked.no_input("TRACE", "Put TRACE first: traceview what-if {path} {option}")
    given = list(_in_order(click.get_current_context().meta[_ORDER], edits))
    if not given:
        named = ", ".join(f"--{kind}" for kind in _KINDS)
        raise click.UsageError(f"name an edit: {named}")
    outputs = asked.outputs(f"{Path(unpacked_name(traces[0])).stem}-what-if", [*traces])
    import traceview
    from traceview.base import memory
    from traceview.traces.edits.requests import request

    memory.prepare()
    with progress("Reading the trace") as next_step:
        loaded = [traceview.load(each) for each in traces]
        next_step("Replaying")
        answer = traceview.what_if(
            loaded,
            *(request(kind, value) for kind, value in given),
            ranges=ranges,
            exclude_ranges=exclude_ranges,
            strict=strict,
            peaks=peaks,
            ncu=ncu,
            ranks=ranks,
        )
    outputs.put_answer(answer)


def _in_order(order: list[str], edits: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Kind and value of each edit, in the order of the command line."""
    values = {name: iter(value) for name, value in edits.items() if isinstance(value, tuple)}
    for name in order:
        if name in values:
            yield name.replace("_", "-"), next(values[name])
        elif name == "no_recorder" and edits.pop(name, False):
            yield "no-recorder", ""
