"""Time every tile that kernels/ lists for GEMMs and attention, and torch.

    python -m benchmarks.kernels.tile_sizes [matmul low-precision forward backward]
        [--json OUT.json]

Needs an NVIDIA GPU; the first run compiles some 80 kernels, which takes a minute or two, the next
ones seconds. Results are compared with torch's before they are timed. The first tile of a group is
the one in use.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from kernels import flash_attention, flash_attention_backward, low_precision_matmul, matmul
from traceview.trials.bench import benchmark
from traceview.trials.bench.case import compare, flatten

Run = Callable[[], Any]


@dataclass(frozen=True)
class Group:
    """Several implementations of one computation: torch's, and ours by name."""

    title: str
    flop: int
    tolerance: float
    with_torch: Run
    ours: dict[str, Run]


def matmul_groups(options: argparse.Namespace) -> Iterator[Group]:
    """Each tile, in grouped order and in the persistent kernel."""
    a, b = matmul.inputs(options.size, getattr(torch, options.dtype), options.device)
    for name, run in (("grouped", matmul.grouped), ("persistent", matmul.persistent)):
        yield Group(
            f"matmul {name} {options.size} {options.dtype}",
            matmul.flop(a, b),
            matmul.TOLERANCES[options.dtype],
            partial(matmul.with_torch, a, b),
            {tile_name(tile): partial(run, a, b, chosen=tile) for tile in matmul.TILES},
        )


def low_precision_groups(options: argparse.Namespace) -> Iterator[Group]:
    """fp8 with both kinds of accumulation, and int8."""
    module = low_precision_matmul
    for title, dtype, run, reference in (
        ("fp8", module.FP8, module.precise, module.with_torch),
        ("fp8, fast sum", module.FP8, module.fast, module.with_torch_fast),
        ("int8", module.INT8, module.precise, module.with_torch),
    ):
        given = module.inputs(options.size, dtype, options.device)
        name = str(dtype).removeprefix("torch.")
        yield Group(
            f"matmul {title} {options.size}",
            module.flop(*given),
            module.OPERATION.tolerances[name],
            partial(reference, *given),
            {tile_name(tile): partial(run, *given, chosen=tile) for tile in module.TILES},
        )


def forward_groups(options: argparse.Namespace) -> Iterator[Group]:
    """Both head dimensions, causal and not."""
    module = flash_attention
    for dim, causal in ((64, False), (64, True), (128, False), (128, True)):
        given = module.inputs_of(dim)(options.length, getattr(torch, options.dtype), options.device)
        yield Group(
            f"forward {attention_title(options, dim, causal)}",
            module.flop(*given, causal),
            module.TOLERANCES[options.dtype],
            partial(module.with_torch, *given, causal),
            {
                str(tile): partial(first_of, module.forward, *given, causal, tile)
                for tile in module.FORWARD_TILES[dim]
            },
        )


def backward_groups(options: argparse.Namespace) -> Iterator[Group]:
    """As for the forward pass; tiles of dQ vary with those of dK and dV fixed, and vice versa."""
    module = flash_attention_backward
    for dim, causal in ((64, False), (64, True), (128, False), (128, True)):
        make = module.inputs_of(dim, causal)
        given = make(options.length, getattr(torch, options.dtype), options.device)
        queries, keys = module.QUERY_TILES[dim], module.KEY_TILES[dim]
        ours = {
            f"dK, dV {key}, dQ {query}": partial(module.backward, *given, causal, query, key)
            for query, key in [(queries[0], key) for key in keys]
            + [(query, keys[0]) for query in queries[1:]]
        }
        yield Group(
            f"backward {attention_title(options, dim, causal)}",
            module.flop(*given, causal),
            module.OPERATION.tolerances[options.dtype],
            partial(module.with_torch, *given, causal),
            ours,
        )


def attention_title(options: argparse.Namespace, dim: int, causal: bool) -> str:
    """The title of a computation."""
    return f"d={dim} n={options.length} {options.dtype}{' causal' if causal else ''}"


def tile_name(tile: matmul.Tile) -> str:
    """The name of a GEMM tile."""
    sizes = " × ".join(str(tile[f"BLOCK_{axis}"]) for axis in "MNK")
    return f"{sizes}, {tile['num_warps']} warps, {tile['num_stages']} stages"


def first_of(function: Callable[..., Any], *given: Any) -> Any:
    """The first of several results."""
    return function(*given)[0]


def rows_of(group: Group, trials: int) -> Iterator[dict[str, Any]]:
    """Time torch's implementation, then each of ours."""
    wanted = flatten(group.with_torch())
    torch_ns = benchmark(group.with_torch, trials=trials).median_ns
    yield {"group": group.title, "name": "torch", "ns": torch_ns, **rate(group, torch_ns)}
    for name, run in group.ours.items():
        row: dict[str, Any] = {"group": group.title, "name": name}
        try:
            found = compare(run(), wanted, 2 * group.tolerance)
            row["error"] = found.error
            if found.wrong:
                yield {**row, "failed": found.wrong}
                continue
            ns = benchmark(run, trials=trials).median_ns
        except Exception as error:  # A tile that does not fit is an answer, too.
            yield {**row, "failed": f"{type(error).__name__}: {error}"[:200]}
            continue
        yield {**row, "ns": ns, "of_torch_pct": 100 * torch_ns / ns, **rate(group, ns)}


def rate(group: Group, ns: float) -> dict[str, float]:
    """FLOP per second."""
    return {"flop_per_s": group.flop / ns * 1e9}


def shown(row: dict[str, Any]) -> str:
    """One line of the table."""
    if "failed" in row:
        return f"  {row['name']:66} {row['failed']}"
    share = f"{row['of_torch_pct']:6.1f} % of torch's speed" if "of_torch_pct" in row else ""
    rate_in_t = row["flop_per_s"] / 1e12
    return f"  {row['name']:66} {row['ns'] / 1e6:8.3f} ms {rate_in_t:7.1f} TFLOP/s {share}"


GROUPS = {
    "matmul": matmul_groups,
    "low-precision": low_precision_groups,
    "forward": forward_groups,
    "backward": backward_groups,
}


def parsed() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("what", nargs="*", metavar="WHAT", default=list(GROUPS))
    parser.add_argument("--dtype", default="float16", choices=["float16", "bfloat16"])
    parser.add_argument("--size", type=int, default=4096, help="rows and columns of a matrix")
    parser.add_argument("--length", type=int, default=4096, help="sequence length")
    parser.add_argument("--trials", type=int, default=15)
    parser.add_argument("--json", type=Path, help="write all rows here")
    options = parser.parse_args()
    unknown = [what for what in options.what if what not in GROUPS]
    if unknown:
        parser.error(f"{unknown[0]!r}: choose from {', '.join(GROUPS)}")
    return options


def main() -> None:
    """Print one table per group."""
    options = parsed()
    if not torch.cuda.is_available():
        sys.exit("tune_kernels: needs an NVIDIA GPU, and torch sees none")
    options.device = "cuda"
    rows = []
    for what in options.what:
        for group in GROUPS[what](options):
            print(group.title)
            for row in rows_of(group, options.trials):
                print(shown(row), flush=True)
                rows.append(row)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
