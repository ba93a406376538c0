"""Read the event log of a worker process into compiled kernels."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from traceview import errors
from traceview.errors import TraceviewError
from traceview.headless.inductor_sources import Generated
from traceview.ptx.model import Argument, Compiled
from traceview.records import record

_ONLY_TIMED = (
    "launched only by the autotuner or a benchmark; nothing is timed without a GPU, so the "
    "autotuner picks its first configuration"
)
_ONLY_WARMED_UP = "compiled by warmup() and never launched"
_HOW = {
    "launched": "compiled as launched",
    "declared": "compiled as declared",
    "called": "compiled with the arguments of a call in the source",
    "guessed": "compiled with guessed arguments",
}


@record
class Events:
    """The kernels that a worker compiled, its notes, and the error that it ended with, if any.

    `is_whole` tells whether the script ran to its end, so that launch counts are complete.
    `left_out` names the trials that there was no time for.
    """

    compiled: list[Compiled]
    notes: tuple[str, ...]
    failure: TraceviewError | None
    is_whole: bool = True
    left_out: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: Path, arch: str) -> Events:
        """Read an event log, which may be incomplete, and the code of its kernels."""
        lines = list(_lines(path))
        variants = _variants(lines)
        notes = tuple(line["text"] for line in lines if line["kind"] == "note")
        failed = next((line for line in lines if line["kind"] == "failed"), None)
        kind = getattr(errors, failed["error"], TraceviewError) if failed else TraceviewError
        failure = kind(failed["what"], failed["remedy"]) if failed else None
        whole = any(line["kind"] == "counts" and line["whole"] for line in lines)
        left_out = tuple(line["text"] for line in lines if line["kind"] == "left_out")
        # Sources in the folder, which is temporary, are kept as text.
        generated = Generated.in_folder(path.parent)
        compiled = [generated.described(_compiled(variant, arch)) for variant in variants]
        return cls(compiled, notes, failure, whole, left_out)

    @property
    def summary(self) -> str:
        """The number of kernels and how they were compiled, as text."""
        kernels = len({(c.source_file, c.source_line, c.name) for c in self.compiled})
        how = _HOW[self.compiled[0].how]
        variants = len(self.compiled)
        more = f" in {variants} variants" if variants > kernels else ""
        return f"{kernels} kernel{'s' if kernels > 1 else ''}{more} {how}"


@dataclass
class _Variant:
    """An event `compiled`, with the launches from later events."""

    line: Mapping[str, Any]
    grids: list[tuple[int, int, int]]
    launches: int = 0
    timed: bool = False
    values: Mapping[str, int] | None = None

    def add(self, launch: Mapping[str, Any]) -> None:
        grid = tuple(launch["grid"])
        if not launch["timed"] and not self.launches:
            # The grid and the values of a real launch replace those of a benchmark.
            self.grids, self.values = [], None
        if grid not in self.grids:
            self.grids.append(grid)
        self.values = launch["values"] if self.values is None else self.values
        self.launches = max(self.launches, launch["count"])
        self.timed |= launch["timed"]


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """The events, without a last line that is truncated because the process was killed."""
    if not path.exists():
        return
    for text in path.read_text("utf-8", errors="replace").splitlines():
        try:
            yield json.loads(text)
        except ValueError:
            return


def _variants(lines: list[dict[str, Any]]) -> list[_Variant]:
    variants: dict[str, _Variant] = {}
    for line in lines:
        if line["kind"] == "compiled":
            variants[line["id"]] = _Variant(line, [])
        elif line["kind"] == "launched":
            variants[line["id"]].add(line)
        elif line["kind"] == "counts":
            for identity, count in line["counts"].items():
                variants[identity].launches = count
    return list(variants.values())


def _compiled(variant: _Variant, arch: str) -> Compiled:
    line, source = variant.line, variant.line["source"] or (None, None)
    ptx, cubin = (Path(line[key]) if line[key] else None for key in ("ptx", "cubin"))
    arguments, values = [], variant.values or {}
    for fields in line["arguments"]:
        # Integers have the values of the launch.
        given = fields["type"] != "constexpr" and fields["name"] in values
        value = {"value": values[fields["name"]]} if given else {}
        arguments.append(Argument(**fields | value))
    remarks = list(line["notes"])
    if line["how"] == "launched" and not variant.launches:
        remarks.append(_ONLY_TIMED if variant.timed else _ONLY_WARMED_UP)
    if len(variant.grids) > 1:
        count = len(variant.grids)
        remarks.append(f"launched with {count} or more different grids; the first is shown")
    return Compiled(
        name=line["name"],
        arch=arch,
        how=line["how"],
        ptx=ptx.read_text("utf-8") if ptx else None,
        cubin=cubin.read_bytes() if cubin else None,
        stages={n: Path(path).read_text("utf-8") for n, path in line.get("stages", {}).items()},
        arguments=tuple(arguments),
        num_warps=line["num_warps"],
        num_stages=line["num_stages"],
        dynamic_shared_bytes=line["dynamic_shared_bytes"],
        grid=variant.grids[0] if variant.grids else None,
        launches=variant.launches,
        source_file=source[0],
        source_line=source[1],
        notes=tuple(remarks),
        variant=line["id"],
    )
