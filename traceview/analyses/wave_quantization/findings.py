"""Findings of wave-quantization: partial last waves, small grids, idle lanes, tile waves."""

from __future__ import annotations

from traceview.analyses.wave_quantization.configurations import Configuration
from traceview.analyses.wave_quantization.gemm_waves import TileWaves
from traceview.analyses.wave_quantization.grid_waves import LaunchedGrid
from traceview.analyses.wave_quantization.losses import (
    Loss,
    block_losses,
    full_of_blocks,
    grid_losses,
    tile_losses,
)
from traceview.analyses.wave_quantization.remedies import grid_remedy
from traceview.facts.idle.gaps import steady_span_ns
from traceview.facts.operations.kernel_owners import KernelOwner, owner_of
from traceview.findings import Evidence, Finding, Subject, share_pct
from traceview.hardware.limits import WARP_THREADS
from traceview.hardware.waves import Waves
from traceview.rules.engine import gain_sentence, severity_of_part
from traceview.trace import Trace
from traceview.units import Value

MOST_FINDINGS = 5
# A rule of thumb: with fewer blocks per SM, the last one to end weighs heavily.
FEW_BLOCKS_PER_SM = 4


def costliest(trace: Trace) -> list[tuple[int, Finding]]:
    """The costliest findings, each with the number of its kernel's launches in warm-up."""
    findings: list[tuple[int, Finding | None]] = []
    span_ns = steady_span_ns(trace)
    grids, blocks, gemms = grid_losses(trace), block_losses(trace), tile_losses(trace)
    findings += [(loss.early_calls, _grid_finding(trace, loss, span_ns)) for loss in grids]
    findings += [(loss.early_calls, _block_finding(loss, span_ns)) for loss in blocks]
    findings += [(loss.early_calls, _gemm_finding(loss, span_ns)) for loss in gemms]
    reported = [(early, finding) for early, finding in findings if finding]
    return sorted(reported, key=lambda each: -each[1].time_at_stake_ns)[:MOST_FINDINGS]


def _grid_finding(trace: Trace, loss: Loss[LaunchedGrid], span_ns: int) -> Finding | None:
    severity, worst = severity_of_part(loss.saved_ns, loss.lost_ns, span_ns), loss.worst
    if severity is None or worst.waves is None:
        return None
    of, waves, others = worst.configuration, worst.waves, loss.parts - 1
    remedy = grid_remedy(trace, of.name, waves, of.threads)
    if remedy is None:
        return None
    partial = waves.whole > 1
    template, values = _partial_wave(waves) if partial else _small_grid(waves, of.threads)
    if others:
        template += " ({other_grids:other grid size} too)"
    template += ". Up to {lost_ns} of {total_ns} "
    template += "is lost." if partial else "can be saved."
    if partial and worst.factor:
        template += " {blocks} blocks take {measured_factor} the time of {neighbour_blocks}."
        values |= {
            "measured_factor": worst.factor,
            "neighbour_blocks": worst.smaller_blocks,
        }
    elif partial and worst.verdict:
        template += " Measured times rise in such steps."
    template += gain_sentence(loss.saved_ns, loss.lost_ns)
    values |= {
        "kernel": of.label,
        "other_grids": others,
        "lost_ns": loss.lost_ns,
        "saved_ns": loss.saved_ns,
        "total_ns": loss.steady_ns,
    }
    return Finding(
        severity if remedy.sure else "info",
        template,
        remedy.template,
        loss.saved_ns,
        Subject("kernel", of.name),
        Evidence(values, "kernels", grid_keys(of)),
        share_pct(loss.saved_ns, span_ns) if loss.saved_ns else None,
    )


def _block_finding(loss: Loss[LaunchedGrid], span_ns: int) -> Finding | None:
    """Blocks of the program's own kernels that leave lanes of their warps idle."""
    severity, of = severity_of_part(loss.saved_ns, loss.lost_ns, span_ns), loss.worst.configuration
    if severity is None or owner_of(of.name) is not KernelOwner.PROGRAM:
        return None
    lanes = -(-of.threads // WARP_THREADS) * WARP_THREADS
    values: dict[str, Value] = {
        "kernel": of.label,
        "threads": of.threads,
        "lanes": lanes,
        "idle_lanes": lanes - of.threads,
        "warp_threads": WARP_THREADS,
        "lost_ns": loss.lost_ns,
        "saved_ns": loss.saved_ns,
        "total_ns": loss.steady_ns,
    }
    whose = "its warp" if lanes == WARP_THREADS else "its warps"
    few = ""
    if loss.worst.occupancy and full_of_blocks(loss.worst):
        few = ", and an SM holds no more than {blocks_per_sm} blocks"
        values["blocks_per_sm"] = loss.worst.occupancy.blocks_per_sm
    if severity == "high" and loss.worst.occupancy and loss.worst.occupancy.waves.whole <= 1:
        # All blocks run at once: fewer warps save only the time that they take from each other.
        severity = "medium"
    return Finding(
        severity,
        f"{{kernel}} launches blocks of {{threads:thread}}: each leaves {{idle_lanes}} of the "
        f"{{lanes}} lanes of {whose} idle{few}. Up to {{lost_ns}} of {{total_ns}} can be saved."
        f"{gain_sentence(loss.saved_ns, loss.lost_ns)}",
        "Launch fewer and larger blocks, of a multiple of {warp_threads} threads: 128 or 256 suit "
        "most kernels.",
        loss.saved_ns,
        Subject("kernel", of.name),
        Evidence(values, "kernels", grid_keys(of)),
        share_pct(loss.saved_ns, span_ns) if loss.saved_ns else None,
    )


def grid_keys(of: Configuration) -> dict[str, Value]:
    """The cells by which a configuration is found in the table of kernels."""
    return {
        "name": of.name,
        "grid": "x".join(map(str, of.grid)),
        "block": "x".join(map(str, of.block)),
        "registers_per_thread": of.registers,
        "shared_memory_bytes": of.static_bytes + of.dynamic_bytes,
        "total_ns": of.total_ns,
    }


def _partial_wave(waves: Waves) -> tuple[str, dict[str, Value]]:
    """Template and values of a grid whose last wave is partly empty."""
    template = (
        "{kernel} launches {blocks} blocks where the GPU holds {wave_blocks} at once. The last of "
        "{waves} waves has {last_blocks:block} and leaves {unused_pct} of all block slots unused"
    )
    values: dict[str, Value] = {
        "blocks": waves.blocks,
        "wave_blocks": waves.at_once,
        "waves": waves.whole,
        "last_blocks": waves.blocks - (waves.whole - 1) * waves.at_once,
        "unused_pct": 100 * waves.idle_fraction,
        "fewer_blocks": waves.fills[0],
        "more_blocks": waves.fills[-1],
    }
    return template, values


def _small_grid(waves: Waves, threads: int) -> tuple[str, dict[str, Value]]:
    """Template and values of a grid with fewer blocks than the GPU has SMs."""
    stay = "stays" if waves.idle_sms == 1 else "stay"
    few = " of {threads:thread}" if threads < WARP_THREADS else ""
    template = (
        f"{{kernel}} launches {{blocks:block}}{few} for {{sms}} SMs: {{idle_sms:SM}} {stay} idle"
    )
    values: dict[str, Value] = {
        "blocks": waves.blocks,
        "threads": threads,
        "sms": waves.sm_count,
        "idle_sms": waves.idle_sms,
        "better_blocks": FEW_BLOCKS_PER_SM * waves.sm_count,
    }
    return template, values


def _gemm_finding(loss: Loss[TileWaves], span_ns: int) -> Finding | None:
    severity = severity_of_part(loss.saved_ns, loss.lost_ns, span_ns)
    worst, others = loss.worst, loss.parts - 1
    if severity is None:
        return None
    of, gemm, kernel = worst.gemm, worst.gemm.gemm, worst.grid.configuration
    batch = "{batch} GEMMs of " if gemm.batch > 1 else ""
    other_gemms = " ({other_gemms:other GEMM size} too)" if others else ""
    fills = "{fewer_tiles} or {more_tiles}" if len(worst.fills) > 1 else "{more_tiles}"
    return Finding(
        severity,
        f"{{kernel}} cuts {batch}{{m}} × {{n}} into {{tiles}} tiles of {{tile_m}} × {{tile_n}} for "
        "{blocks} persistent blocks. The last of {tile_waves} tile waves has {last_tiles:tile} and "
        f"leaves {{unused_pct}} of all tile slots unused{other_gemms}. Up to {{lost_ns}} of "
        f"{{total_ns}} is lost.{gain_sentence(loss.saved_ns, loss.lost_ns)}",
        f"Try nearby sizes that fill whole tile waves, {fills} tiles instead of {{tiles}}: "
        "another batch, sequence length or width, padded where it pays.",
        loss.saved_ns,
        Subject("kernel", kernel.name),
        Evidence(
            {
                "kernel": kernel.label,
                "batch": gemm.batch,
                "m": gemm.m,
                "n": gemm.n,
                "tiles": of.tiles,
                "tile_m": of.tile.columns,
                "tile_n": of.tile.rows,
                "blocks": of.blocks,
                "tile_waves": worst.whole,
                "last_tiles": worst.last_tiles,
                "unused_pct": 100 * worst.idle_fraction,
                "fewer_tiles": worst.fills[0],
                "more_tiles": worst.fills[-1],
                "other_gemms": others,
                "lost_ns": loss.lost_ns,
                "saved_ns": loss.saved_ns,
                "total_ns": loss.steady_ns,
            },
            "tiles",
            {
                "name": kernel.name,
                "batch": gemm.batch,
                "m": gemm.m,
                "n": gemm.n,
                "k": gemm.k,
                "total_ns": of.total_ns,
            },
        ),
        share_pct(loss.saved_ns, span_ns) if loss.saved_ns else None,
    )
