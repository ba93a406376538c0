"""Samples of a kernel's warps, by the reason why they did not issue their next instruction.

Three kinds of files have them: a report of Nsight Compute (.ncu-rep) with the section
SourceCounters, its source page as CSV, and Proton's profile with pc_sampling. The first two count
at each instruction, Proton at each source line.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import TypeVar

from traceview.base.errors import MALFORMED, InputError, TraceFormatError, unreadable
from traceview.base.records import record
from traceview.kernels.ptx import cubin as cubin_file
from traceview.kernels.ptx.model import SourceLine
from traceview.kernels.ptx.producers import base_name, plain_name
from traceview.kernels.ptx.scoreboards import INSTRUCTION_BYTES
from traceview.traces.trace import ncu, ncu_report

HOW = (
    "pass a report (.ncu-rep) of ncu --section SourceCounters, its CSV by ncu --import REPORT "
    "--page source --csv, or a profile (.hatchet) of Proton with pc_sampling"
)
# The source page shortens the reasons of the metrics smsp__pcsamp_warps_issue_stalled_*.
_SHORTENED = {
    "dispatch": "dispatch_stall",
    "imc": "imc_miss",
    "lg": "lg_throttle",
    "long_sb": "long_scoreboard",
    "math": "math_pipe_throttle",
    "mio": "mio_throttle",
    "no_inst": "no_instructions",
    "no_instruction": "no_instructions",
    "short_sb": "short_scoreboard",
    "sleep": "sleeping",
    "tex": "tex_throttle",
}
_COLUMN = re.compile(r"stall_(\w+)")
_ALL = "Warp Stall Sampling (All Samples)"
_METRIC = re.compile(r"stalled_(\w+)")
# Counts are whole: what precedes three digits separates thousands, in any locale.
_GROUPING = re.compile(r"[.,](?=\d{3}(?!\d))")
_ADDRESS = re.compile(r"0x([0-9a-fA-F]{1,16})")
_OTHER = "other"
_SASS = re.compile(r"\s*(?:@(!?U?P[T\d]+)\s+)?([A-Z][\w.]*)")
_FRAME = re.compile(r"(?P<file>.+):(?P<line>\d{1,9})@(?P<function>.+)", re.DOTALL)

Stalls = Counter[str]
"""Samples by reason, such as long_scoreboard."""
Place = TypeVar("Place")
_Sass = tuple[str | None, str]


@record
class KernelSamples:
    """The samples of one kernel, summed over the launches of the same code.

    `symbol` is its name as written in the file. `by_index` counts at each instruction of its code,
    which is known by its bytes or its instructions (guard and opcode); `by_line` at source lines,
    where instructions are not known. Samples in other functions that it calls are under None.
    """

    symbol: str
    machine_code: bytes = b""
    opcodes: tuple[_Sass, ...] = ()
    by_index: Mapping[int | None, Stalls] = field(default_factory=dict)
    by_line: Mapping[SourceLine | None, Stalls] = field(default_factory=dict)

    def is_named(self, symbol: str) -> bool:
        """Whether it is of a kernel that is linked under this name."""
        names = {self.symbol, plain_name(self.symbol), base_name(self.symbol)}
        return symbol in names or plain_name(symbol) in names


def read_samples(path: Path) -> list[KernelSamples]:
    """The samples of each kernel in a file.

    Raises InputError if the file cannot be read or has none.
    """
    try:
        samples = list(_merged(_read(path)))
    except OSError as error:
        raise unreadable(path, error) from None
    if not samples:
        raise InputError(f"{path} has no warp samples per instruction or line", HOW)
    return samples


def _read(path: Path) -> Iterable[KernelSamples]:
    try:
        if ncu_report.is_report(path):
            return list(_of_report(path))
        text = path.read_text("utf-8", "replace")
        return list(_of_profile(text) if text.lstrip()[:1] in ("[", "{") else _of_page(text))
    except (csv.Error, RecursionError, TraceFormatError, *MALFORMED) as error:
        raise InputError(f"{path} has no warp samples that can be read ({error})", HOW) from error


def _merged(samples: Iterable[KernelSamples]) -> Iterator[KernelSamples]:
    """One of each kernel and code, with all its samples."""
    same: dict[tuple[object, ...], list[KernelSamples]] = defaultdict(list)
    for each in samples:
        same[each.symbol, each.machine_code, each.opcodes].append(each)
    for listed in same.values():
        yield replace(
            listed[0],
            by_index=_summed(each.by_index for each in listed),
            by_line=_summed(each.by_line for each in listed),
        )


def _summed(all_stalls: Iterable[Mapping[Place, Stalls]]) -> dict[Place, Stalls]:
    total: dict[Place, Stalls] = defaultdict(Counter)
    for stalls in all_stalls:
        for place, counts in stalls.items():
            total[place].update(counts)
    return total


def _of_report(path: Path) -> Iterator[KernelSamples]:
    loaded, launches = ncu_report.read_samples(path)
    for launch in launches:
        listed = loaded[launch.process]
        modules = (*reversed(listed[: launch.loaded]), *listed[launch.loaded :])
        for place, module in enumerate(modules):
            start = module.addresses.get(launch.symbol, 0)
            # The module of an entry without a cubin is that of one before it.
            code = _code_of(launch.symbol, modules[place:] + modules[:place]) if start else b""
            inside = range(start, start + len(code))
            if not any(address in inside for address in launch.stalls):
                continue
            by_index: dict[int | None, Stalls] = defaultdict(Counter)
            for address, stalls in launch.stalls.items():
                index = (address - start) // INSTRUCTION_BYTES if address in inside else None
                by_index[index].update(stalls)
            yield KernelSamples(launch.symbol, code, by_index=by_index)
            break


def _code_of(symbol: str, modules: Iterable[ncu_report.Module]) -> bytes:
    """The machine code of a kernel, from the first of these that has it."""
    codes = (cubin_file.machine_code(each.cubin, symbol) for each in modules if each.cubin)
    return next(filter(None, codes), b"")


def _of_page(text: str) -> Iterator[KernelSamples]:
    """The kernels of a source page, whether it shows SASS alone or beside the source.

    Beside the source an instruction is repeated at each line that it was inlined to.
    """
    launch: dict[int, tuple[_Sass, Stalls]] = {}
    symbol, view, columns = "", "", dict[str, int]()
    views = set[tuple[str, str]]()
    for row in csv.reader(io.StringIO(text, newline="")):
        if len(row) > 1 and row[0] == "File Path":
            view = row[1]
        elif len(row) > 1 and row[0] in ("Kernel Name", "Function Name"):
            if (view, row[1]) in views or row[1] != symbol:
                yield from _of_launch(symbol, launch)
                launch, views = {}, set()
            symbol = row[1]
            views.add((view, symbol))
        elif "Address" in row and "Source" in row:
            columns = {"address": row.index("Address")}
            columns["sass"] = row.index("Source", columns["address"])
            columns |= {m[1]: at for at, name in enumerate(row) if (m := _COLUMN.fullmatch(name))}
            if _ALL in row:
                columns[_OTHER] = row.index(_ALL)
        elif columns and len(row) > max(columns.values()):
            address = _ADDRESS.fullmatch(row[columns["address"]])
            if address and (sass := _SASS.match(row[columns["sass"]])):
                cells = {
                    name: _GROUPING.sub("", row[at])
                    for name, at in columns.items()
                    if name not in ("address", "sass")
                }
                stalls = _stalls(cells)
                # The page has no column of some reasons, such as warpgroup_arrive.
                rest = stalls.pop(_OTHER, 0) - stalls.total()
                stalls += Counter({_OTHER: rest})
                launch[int(address[1], 16)] = ((sass[1], sass[2]), stalls)
    yield from _of_launch(symbol, launch)


def _of_launch(symbol: str, launch: Mapping[int, tuple[_Sass, Stalls]]) -> Iterator[KernelSamples]:
    if any(stalls for _, stalls in launch.values()):
        rows = [launch[address] for address in sorted(launch)]
        by_index: dict[int | None, Stalls] = {
            index: stalls for index, (_, stalls) in enumerate(rows) if stalls
        }
        yield KernelSamples(symbol, opcodes=tuple(sass for sass, _ in rows), by_index=by_index)


def _of_profile(text: str) -> Iterator[KernelSamples]:
    """The kernels of Proton's tree, whose frames are named FILE:LINE@FUNCTION or FUNCTION."""
    trees = json.loads(text)
    waiting = list(trees) if isinstance(trees, list) else [trees]
    while waiting:
        node = waiting.pop()
        if not isinstance(node, dict):
            continue
        metrics, frame, children = (node.get(key) for key in ("metrics", "frame", "children"))
        waiting += children if isinstance(children, list) else []
        if not isinstance(metrics, dict) or not isinstance(frame, dict):
            continue
        found = {m[1]: value for key, value in metrics.items() if (m := _METRIC.fullmatch(key))}
        stalls = _stalls(found)
        if stalls:
            name = str(frame.get("name"))
            at = _FRAME.fullmatch(name)
            line = SourceLine(at["file"], int(at["line"])) if at else None
            yield KernelSamples(at["function"] if at else name, by_line={line: stalls})


def _stalls(cells: Mapping[str, object]) -> Stalls:
    """Samples by reason, without those of which there are none."""
    stalls = Counter[str]()
    for name, cell in cells.items():
        samples = int(min(ncu.number(str(cell), ".") or 0, ncu_report.MOST_SAMPLES))
        if samples:
            reason = name.lower()
            stalls[_SHORTENED.get(reason, reason)] += samples
    return stalls
