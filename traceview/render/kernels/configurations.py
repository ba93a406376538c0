"""The configurations of autotuners, those worth timing first, as text and JSON."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from traceview.base import units
from traceview.base.records import record
from traceview.kernels.inspect.configurations import Preselection, TunedConfiguration
from traceview.kernels.ptx.accesses import GENERATIONS
from traceview.render.base.json_text import JsonKey, JsonShape, items_of
from traceview.render.base.safe_text import shortened, visible
from traceview.render.base.text import SENTENCE, drawn, grid, heading, note_block


@record
class PreselectionReport:
    """The kernels of a target under @triton.autotune."""

    target: str
    kernels: tuple[Preselection, ...]


def render_text(report: PreselectionReport, *, width: int = 80, color: bool = False) -> str:
    """Per kernel the configurations worth timing, then the others by the reason."""
    return drawn(
        (each for kernel in report.kernels for each in _kernel(kernel, width)), width, color
    )


def _kernel(kernel: Preselection, width: int) -> Iterator[RenderableType]:
    name = " ".join(filter(None, (kernel.kernel, kernel.arguments)))
    kept, count = len(kernel.kept), len(kernel.configurations)
    lead = f"{kept} of {units.counted(count, 'configuration')} worth timing"
    yield Group(heading(shortened(visible(name), width), kernel.arch), Text(lead, "bold"))
    rows = grid("", "right", "right", "right", "right")
    titles = ("configuration", "registers", "warps per SM", "in flight per SM", "SMs filled")
    rows.add_row(*(Text(title, "dim") for title in titles))
    for each in kernel.kept:
        fill = units.percent(None if each.fill is None else 100 * each.fill)
        buffers = units.size(each.buffer_bytes_per_sm) if each.buffer_bytes_per_sm else units.ABSENT
        figures = (units.count(each.registers), units.count(each.warps_per_sm), buffers, fill)
        rows.add_row(Text(visible(each.text, SENTENCE)), *map(Text, figures))
    yield rows
    yield Group(*_dropped(kernel.configurations))


def _dropped(configurations: Sequence[TunedConfiguration]) -> Iterator[RenderableType]:
    """The reasons, each with the configurations that fall away for it."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for each in configurations:
        if each.dropped:
            by_reason[each.dropped].append(each.text)
    for reason, texts in by_reason.items():
        yield note_block(
            "", f"{visible(reason, SENTENCE)}: {visible('; '.join(texts), SENTENCE)}", "dim"
        )


_CONFIGURATION = JsonShape(
    TunedConfiguration,
    "values dropped registers spill_bytes shared_memory_bytes warps_per_sm buffer_bytes_per_sm",
    JsonKey("tensor_cores", str, lambda each, _: GENERATIONS[each.tensor_cores].name),
    "fill flop_per_byte",
    values="constexprs and options by name",
    dropped="why it is not worth timing; null if it is",
    buffer_bytes_per_sm="of pipelined loops, in all blocks on an SM",
    fill="part of the block slots of its waves that the grid fills; of the SMs below one wave",
    flop_per_byte="tensor-core work per byte that the pipelined loop copies",
)
CONFIGURATIONS = JsonShape(
    PreselectionReport,
    "target",
    items_of(
        "kernels",
        JsonShape(
            Preselection, "kernel arch arguments", items_of("configurations", _CONFIGURATION)
        ),
    ),
)
