"""Compare the kernels with the peak of this GPU and with torch, as ratios from one run.

    python -m benchmarks.kernels.speed_claims [--json OUT.json] [--only gelu softmax …]
        [--trials 50]

Each line of the table is a claim: a version, what it is compared with, and the percentage it has to
reach. `traceview bench` checks and then measures both sides one after the other with a cold L2
cache; the exit status is 1 if a claim does not hold. `of` is the time of the rival ÷ our time, or
for the peak our bandwidth ÷ that of the data sheet. `±` follows from the deviations of both
(1.4826 MAD).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import kernels
from traceview.base import units
from traceview.trials.bench import BenchReport, BenchRequest, VersionResult, measure

PEAK = "peak"
# Medians of one run differ by as much between two runs of the same kernel.
AS_FAST = 99.0


@dataclass(frozen=True)
class Claim:
    """The fastest version of `ours` (a pattern) reaches `least_pct` of `rival` at each size."""

    operation: str
    ours: str
    rival: str
    least_pct: float
    sizes: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Ratio:
    """The outcome of a claim at one size; `reached_pct` is None if a side was not timed."""

    operation: str
    dtype: str
    size: int
    ours: str
    rival: str
    ours_ns: float | None
    rival_ns: float | None
    reached_pct: float | None
    spread_pct: float | None
    least_pct: float
    why_not: str | None = None

    @property
    def holds(self) -> bool:
        return self.reached_pct is not None and self.reached_pct >= self.least_pct


LONG = (2048, 8192, 16384)
CLAIMS = (
    *(
        Claim("gelu", version, PEAK, 85, (1 << 28,), "float32")
        for version in ("triton", "cuda-vector")
    ),
    Claim("add", "triton", PEAK, 85, (1 << 28,), "float32"),
    Claim("strided_copy", "triton", PEAK, 85, (1 << 28,), "float32"),
    *(
        Claim("softmax", "triton*", "torch", AS_FAST, (256, 1024, 4096, 16384), dtype)
        for dtype in ("float32", "float16", "bfloat16")
    ),
    *(
        Claim(f"flash_attention{which}", "triton*", "torch", 60, LONG, "float16")
        for which in ("", "_causal")
    ),
    *(
        Claim(f"flash_attention_backward{which}", "triton*", "torch", 50, LONG, "float16")
        for which in ("", "_causal")
    ),
    Claim("matmul", "triton*", "torch", 70, (2048, 4096, 8192), "float16"),
)


def ratios(claims: tuple[Claim, ...], trials: int) -> Iterator[tuple[BenchReport, Ratio]]:
    for claim in claims:
        operation = kernels.operation(claim.operation)
        names = [v.name for v in operation.versions if fnmatchcase(v.name, claim.ours)]
        rivals = [] if claim.rival == PEAK else [claim.rival]
        request = BenchRequest(
            claim.sizes, (claim.dtype,), (*names, *rivals), trials=trials, warmup=5, widths=False
        )
        report = measure(operation, request, note=lambda text: print(f"  {text}", file=sys.stderr))
        for size in claim.sizes:
            yield report, ratio(claim, size, [row for row in report.rows if row.size == size])


def ratio(claim: Claim, size: int, rows: list[VersionResult]) -> Ratio:
    ours = [row for row in rows if row.version != claim.rival]
    timed = [row for row in ours if row.timing]
    rival = next((row for row in rows if row.version == claim.rival), None)
    if not timed or (rival and not rival.timing):
        why = "; ".join(f"{row.version}: {row.why or row.status}" for row in rows if not row.timing)
        nothing = (None, None, None, None, claim.least_pct, why)
        return Ratio(claim.operation, claim.dtype, size, claim.ours, claim.rival, *nothing)
    best = min(timed, key=lambda row: row.median_ns or math.inf)
    both = [best, *([rival] if rival else [])]
    reached = best.peak_pct if rival is None else 100 * _ns(rival) / _ns(best)
    spread = math.hypot(*(_deviation(row) for row in both)) * (reached or 0)
    return Ratio(
        claim.operation, claim.dtype, size, best.version, claim.rival,
        _ns(best), _ns(rival) if rival else None, reached, spread, claim.least_pct,
        None if reached is not None else "no peak of this GPU is known",
    )  # fmt: skip


def _ns(row: VersionResult) -> float:
    return row.median_ns or math.inf


def _deviation(row: VersionResult) -> float:
    """Deviation ÷ median."""
    return 1.4826 * row.timing.mad_ns / row.timing.median_ns if row.timing else 0.0


@dataclass(frozen=True)
class Memory:
    """Bytes that one sequence takes beyond its inputs, by length."""

    operation: str
    version: str
    bytes_by_length: dict[int, int]

    @property
    def exponent(self) -> float:
        """Memory grows as the length to this power: 1 is linear, 2 quadratic."""
        (short, few), *_, (long, many) = sorted(self.bytes_by_length.items())
        return math.log(many / few) / math.log(long / short)


def memory(name: str, version: str, lengths: tuple[int, ...]) -> Memory:
    import torch

    operation = kernels.operation(name)
    run, taken = operation.version(version).run, {}
    for length in lengths:
        inputs: Any = operation.inputs(length, torch.float16, "cuda")
        run(*inputs)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run(*inputs)
        torch.cuda.synchronize()
        taken[length] = (torch.cuda.max_memory_allocated() - before) // inputs[0].shape[0]
        del inputs
    return Memory(name, version, taken)


def memories() -> Iterator[Memory]:
    for name in ("flash_attention", "flash_attention_backward"):
        yield memory(name, "triton", (1024, 2048, 4096, 8192, 16384))
        yield memory(name, "naive", (1024, 2048, 4096, 8192))


def facts(report: BenchReport) -> dict[str, object]:
    machine = report.machine
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "gpu": machine.gpu,
        "driver": machine.driver_version,
        "cuda": machine.cuda_version,
        "torch": machine.torch_version,
        "triton": machine.triton_version,
        "python": machine.python_version,
        "peak": f"{units.quantity('bytes_per_s', report.peaks.memory_bytes_per_s)}, "
        f"{report.peaks.source}",
    }


def table(found: list[Ratio]) -> Iterator[str]:
    yield "| operation | type | size | version | time | against | its time | of | ± | least | |"
    yield "|---|---|--:|---|--:|---|--:|--:|--:|--:|---|"
    for each in found:
        cells = (
            each.operation, each.dtype, f"{each.size:,}", each.ours, units.duration(each.ours_ns),
            each.rival, units.duration(each.rival_ns), _pct(each.reached_pct),
            _pct(each.spread_pct), f"{each.least_pct:.0f} %",
            "holds" if each.holds else f"**does not hold** {each.why_not or ''}".strip(),
        )  # fmt: skip
        yield "| " + " | ".join(cells) + " |"


def memory_table(found: list[Memory]) -> Iterator[str]:
    lengths = sorted({length for each in found for length in each.bytes_by_length})
    yield "| memory of a sequence | " + " | ".join(f"{n:,}" for n in lengths) + " | grows as |"
    yield "|---|" + "--:|" * (len(lengths) + 1)
    for each in found:
        sizes = (each.bytes_by_length.get(length) for length in lengths)
        cells = " | ".join("–" if size is None else units.size(size) for size in sizes)
        yield f"| {each.operation} {each.version} | {cells} | length^{each.exponent:.2f} |"


def _pct(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f} %"


def main() -> int:
    parser = argparse.ArgumentParser(description="Ratios of the kernels on this GPU.")
    parser.add_argument(
        "--json", type=Path, metavar="OUT.json", help="write the figures as JSON, too"
    )
    parser.add_argument("--only", nargs="+", metavar="OPERATION", help="measure only these")
    parser.add_argument("--trials", type=int, default=50, help="measurements per version")
    given = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        print("kernels.py: no NVIDIA GPU found, nothing to compare", file=sys.stderr)
        return 2
    claims = tuple(claim for claim in CLAIMS if not given.only or claim.operation in given.only)
    if not claims:
        known = ", ".join(sorted({claim.operation for claim in CLAIMS}))
        print(f"kernels.py: no claims about these; pass some of {known}", file=sys.stderr)
        return 2
    measured = list(ratios(claims, given.trials))
    found = [each for _, each in measured]
    grown = list(memories()) if not given.only or "flash_attention" in given.only else []
    context = facts(measured[-1][0])
    print("\n".join(f"{name}: {value}" for name, value in context.items()), end="\n\n")
    print("\n".join(table(found)), end="\n\n")
    print("\n".join(memory_table(grown)))
    if given.json:
        figures = {
            **context,
            "ratios": [{**asdict(each), "holds": each.holds} for each in found],
            "memory": [{**asdict(each), "exponent": each.exponent} for each in grown],
        }
        given.json.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")
        print(f"Wrote {given.json}")
    bad = [each for each in found if not each.holds]
    steep = [each for each in grown if each.version == "triton" and each.exponent > 1.05]
    return 1 if bad or steep else 0


if __name__ == "__main__":
    sys.exit(main())
