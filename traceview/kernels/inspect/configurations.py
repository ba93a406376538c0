"""Which configurations of an autotuner are worth timing, and why the others are not.

Every configuration is compiled; none is timed. One falls away for a fact of its code that another
one does not share. What remains differs in ways that only a measurement weighs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from traceview.base import units
from traceview.base.errors import InputError
from traceview.base.hardware.occupancy import waves_of
from traceview.base.records import record
from traceview.kernels.headless.client import python
from traceview.kernels.headless.compile_options import CompileOptions
from traceview.kernels.headless.events import Rejected
from traceview.kernels.inspect.kernel_report import KernelReport, sm_count_of
from traceview.kernels.inspect.python_targets import DEFAULT_ARCH
from traceview.kernels.inspect.rules.global_memory import MANY_SPILLED_BYTES
from traceview.kernels.inspect.target_report import inspect
from traceview.kernels.inspect.targets import is_python
from traceview.kernels.inspect.triton_builds import (
    TritonBuild,
    autotuned_identity,
    builds,
    failures,
)
from traceview.kernels.ptx import cubin as cubin_file
from traceview.kernels.ptx.accesses import GENERATIONS, generation
from traceview.kernels.ptx.model import Compiled
from traceview.kernels.toolchain.triton_versions import interpreter

BUDGET_S = 600.0
"""Seconds to compile all configurations of a target, unless another budget is asked for."""
MORE_IN_FLIGHT = 1.5
"""How many times the warps or the pipeline's bytes another one of its tile must keep on an SM."""
MORE_REUSE = 2.0
"""How many times the FLOP per loaded byte another one must reach that fills the SMs as well.

Tiles of 64×64 reach 32 FLOP per byte in 16 bits. An H100 does 989 TFLOP/s and reads some 5.5 TB/s
from L2, so it needs 180: the half is lost before the tile with twice as much is.
"""
MOST_PADDING = 1.5
"""How many times as many elements another configuration may cover: more are beyond the data."""
MORE_FULL = 1.25
"""How many times as evenly another configuration must fill the SMs.

With a quarter of the SM time lost a kernel that is limited by throughput takes a third longer,
more than tiles of neighbouring sizes usually differ in.
"""
_OF_LAUNCH = ("num_warps", "num_stages", "num_ctas", "maxnreg", "ir_override")
_DEFAULTS = (("num_ctas", 1), ("maxnreg", None), ("ir_override", None))
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
# Up to the line that closes the loop, by its indentation.
_LOOP = re.compile(r"^( *)(?:\S+ = )?scf\.(?:for|while)\b.*?^\1\}", re.MULTILINE | re.DOTALL)
_STORED = re.compile(r"\btt\.(?:store|descriptor_store)\b.*?tensor<((?:\d+x)+)")
_WARPS_PER_OP = {"wgmma": 4}


@record
class TunedConfiguration:
    """One configuration as compiled; `dropped` is why it is not worth timing, None if it is.

    Registers and spills are per thread, shared memory per block, warps and pipeline buffers per SM.
    `fill` is as the function `fill` computes it: the part of the time that SMs are in use.
    `flop_per_byte` is that of the pipelined loop: tensor-core work per byte that it copies.
    `stored` are the elements of the largest tensor that a block stores, None if it does in a loop.
    """

    values: Mapping[str, Any]
    registers: int | None = None
    spill_bytes: int | None = None
    shared_memory_bytes: int | None = None
    warps_per_sm: int | None = None
    buffer_bytes_per_sm: int = 0
    tensor_cores: int = 0
    fill: float | None = None
    flop_per_byte: float | None = None
    code: bytes = b""
    dropped: str | None = None
    grid: tuple[int, ...] | None = None
    stored: int | None = None

    @property
    def blocks(self) -> int | None:
        """Blocks of the launch."""
        return math.prod(self.grid) if self.grid else None

    @property
    def text(self) -> str:
        """`BLOCK_M=128, BLOCK_N=64, num_warps=8`."""
        shown = (item for item in self.values.items() if item not in _DEFAULTS)
        return ", ".join(f"{name}={value}" for name, value in shown)

    @property
    def tile(self) -> tuple[tuple[str, str], ...]:
        """The constexprs, which decide what a block computes."""
        return tuple((n, str(v)) for n, v in self.values.items() if n not in _OF_LAUNCH)


@record
class Preselection:
    """The configurations of one autotuned kernel for one set of arguments, in the list's order."""

    kernel: str
    arch: str
    arguments: str
    configurations: tuple[TunedConfiguration, ...]

    @property
    def kept(self) -> tuple[TunedConfiguration, ...]:
        """Those worth timing."""
        return tuple(each for each in self.configurations if each.dropped is None)


def preselect(
    target: str,
    options: CompileOptions,
    *,
    sm_count: int | None = None,
    note: Callable[[str], None] = lambda _: None,
    step: Callable[[str], None] = lambda _: None,
) -> tuple[Preselection, ...]:
    """Compile all configurations of the autotuned kernels of a Python target, and judge them.

    Raises InputError if it is no Python target or has no autotuned kernel, and what `builds` does.
    """
    if not is_python(target):
        raise InputError(f"{target} has no autotuner", "pass the script or module that launches it")
    # A script goes on until all are compiled.
    budget = BUDGET_S if options.budget_s is None else options.budget_s
    timeout = budget if options.timeout_s is None else options.timeout_s
    every = replace(
        options, first_config=False, all_configs=True, budget_s=budget, timeout_s=timeout
    )
    version = interpreter(python()).triton or "(none)"
    [build] = builds(target, (version,), [options.arch or DEFAULT_ARCH], every, note, step)
    for line in failures([build]):
        note(line)
    step("Comparing the configurations")
    return _preselections(build, sm_count, target)


def _preselections(
    build: TritonBuild, sm_count: int | None, target: str
) -> tuple[Preselection, ...]:
    groups: dict[object, list[TunedConfiguration]] = {}
    about: dict[object, Compiled] = {}
    everything: list[Compiled | Rejected] = [*build.kernels, *build.rejected]
    for kernel in everything:
        compiled = kernel.kernel if isinstance(kernel, Rejected) else kernel
        if compiled.configuration:
            about.setdefault(autotuned_identity(compiled), compiled)
            groups.setdefault(autotuned_identity(compiled), []).append(
                _configuration(kernel, sm_count)
            )
    if not groups:
        raise InputError(f"{target} compiles no kernel under @triton.autotune", "pass what does")
    return tuple(
        Preselection(about[key].name, build.arch, _arguments(about[key]), judged(each))
        for key, each in groups.items()
    )


def _arguments(kernel: Compiled) -> str:
    values = kernel.configuration or {}
    given = (a for a in kernel.arguments if a.type == "constexpr" and a.name not in values)
    return ", ".join(f"{a.name}={a.value}" for a in given)


def _configuration(kernel: Compiled | Rejected, sm_count: int | None) -> TunedConfiguration:
    if isinstance(kernel, Rejected):
        return TunedConfiguration(kernel.kernel.configuration or {}, dropped=kernel.reason)
    report = inspect(kernel, sass=False, sm_count=sm_count)
    occupancy = report.occupancy
    blocks = occupancy.blocks_per_sm if occupancy else 0
    return TunedConfiguration(
        kernel.configuration or {},
        report.registers,
        report.spill_bytes,
        report.shared_memory_bytes,
        occupancy.active_warps if occupancy else None,
        blocks * sum(buffer.size_bytes for buffer in report.pipeline_buffers),
        generation(report.tensor_ops),
        fill(report, sm_count),
        _flop_per_byte(report),
        cubin_file.machine_code(kernel.cubin, kernel.name) if kernel.cubin else b"",
        grid=report.compiled.grid,
        stored=_stored(report.compiled.stages.get("ttgir", "")),
    )


def _stored(ttgir: str) -> int | None:
    body = _LOOP.sub("", ttgir)
    sizes = [math.prod(map(int, m[1].split("x")[:-1])) for m in _STORED.finditer(body)]
    return max(sizes) if sizes and len(sizes) == len(_STORED.findall(ttgir)) else None


def fill(report: KernelReport, sm_count: int | None) -> float | None:
    """The part of the block slots of its waves that the grid fills; of the SMs below one wave."""
    sms, grid = sm_count_of(report.compiled, sm_count), report.compiled.grid
    if sms is None or grid is None or report.occupancy is None:
        return None
    waves = waves_of(grid, report.occupancy, sms.count)
    if waves is None:
        return None
    if waves.idle_sms:
        return 1 - waves.idle_sms / waves.sm_count
    # Less than a wave runs at once.
    return 1 - waves.idle_fraction if waves.waves > 1 else 1.0


def _flop_per_byte(report: KernelReport) -> float | None:
    """Work of the tensor cores per byte of one stage, both of one turn of the loops."""
    flop = 0.0
    for op in report.tensor_ops:
        shape = _SHAPE.search(op.shape or "")
        if shape and op.loop_depth:
            warps = (report.compiled.num_warps or 1) / _WARPS_PER_OP.get(op.operation[:5], 1)
            flop += 2 * math.prod(map(int, shape.groups())) * op.count * warps
    loaded = sum(buffer.size_bytes / buffer.count for buffer in report.pipeline_buffers)
    return flop / loaded if flop and loaded else None


def judged(configurations: Sequence[TunedConfiguration]) -> tuple[TunedConfiguration, ...]:
    """The configurations, those that fall away with the reason."""
    result = list(configurations)
    for reason in (_equal, _spilling, _padded, _older, _uneven, _hungrier, _emptier):
        left = [each for each in result if each.dropped is None]
        result = [
            each if each.dropped else replace(each, dropped=reason(each, left)) for each in result
        ]
    return tuple(result)


Others = Sequence[TunedConfiguration]


def _equal(one: TunedConfiguration, left: Others) -> str | None:
    before = left[: next(at for at, each in enumerate(left) if each is one)]
    alike = ("code", "shared_memory_bytes", "fill", "grid")
    same = (o for o in before if all(getattr(o, name) == getattr(one, name) for name in alike))
    first = next(same, None) if one.code else None
    return f"the same machine code as {first.text}" if first else None


def _spilling(one: TunedConfiguration, left: Others) -> str | None:
    spilled = one.spill_bytes or 0
    if spilled < MANY_SPILLED_BYTES or not any(o.spill_bytes == 0 for o in left):
        return None
    return f"spills {units.size(spilled)} per thread"


def _padded(one: TunedConfiguration, left: Others) -> str | None:
    """A smaller tile makes no more blocks: what this one is larger reaches beyond the data."""
    for other in left:
        differing = {*one.tile} ^ {*other.tile}
        smaller = one.stored and other.stored and other.stored < one.stored
        if smaller and len(differing) == 2 and one.blocks and one.blocks == other.blocks:
            tile = ", ".join(f"{n}={v}" for n, v in other.tile if (n, v) in differing)
            return f"{tile} covers as much with as many blocks"
    return None


def _older(one: TunedConfiguration, left: Others) -> str | None:
    """Newer tensor cores with no fewer warps on an SM, which do the rest of the work."""
    able = (o for o in left if (o.warps_per_sm or 0) >= (one.warps_per_sm or 0))
    newest = max((o.tensor_cores for o in able if _does_as_much(o, one)), default=0)
    if one.tensor_cores >= newest:
        return None
    mine, theirs = GENERATIONS[one.tensor_cores], GENERATIONS[newest]
    return f"{mine.name}, others use {theirs.name}"


def _uneven(one: TunedConfiguration, left: Others) -> str | None:
    fills = [other.fill for other in left if other.fill is not None]
    if one.fill is None or max(fills) < MORE_FULL * one.fill:
        return None
    filled, best = (units.percent(100 * part) for part in (one.fill, max(fills)))
    return f"its grid fills {filled} of the SMs' time, another one's {best}"


def _hungrier(one: TunedConfiguration, left: Others) -> str | None:
    """Another configuration uses each loaded byte twice as often, and fills the SMs for it."""
    for other in (each for each in left if _does_as_much(each, one)):
        mine, theirs = one.flop_per_byte, other.flop_per_byte
        emptier = max(1.0, (one.fill or 1.0) / (other.fill or 1.0))
        if mine and theirs and theirs >= MORE_REUSE * emptier * mine:
            return f"{mine:.0f} FLOP per loaded byte, {other.text} has {theirs:.0f}"
    return None


def _does_as_much(other: TunedConfiguration, one: TunedConfiguration) -> bool:
    """Whether the work of another tile is no padding: a larger one then makes fewer blocks."""
    if other.tile == one.tile or not (one.blocks and other.blocks):
        return other.tile == one.tile or one.blocks is None
    covered = ((o.blocks or 0) * (o.stored or 0) for o in (other, one))
    theirs, mine = covered
    return other.blocks < one.blocks and theirs <= MOST_PADDING * mine


def _emptier(one: TunedConfiguration, left: Others) -> str | None:
    """Another configuration of the same tile keeps no less in flight on an SM, and more of one.

    More warps instead of a deeper pipeline are no reason for kernels on tensor cores.
    """
    for other in left:
        theirs, mine = ((each.warps_per_sm or 0, each.buffer_bytes_per_sm) for each in (other, one))
        ratios = [a / b if b else math.inf if a else 1.0 for a, b in zip(theirs, mine, strict=True)]
        if other.tile != one.tile or min(ratios) < 1.0:
            continue
        # Of one tile, more blocks have more loads in flight, however few their warps.
        blocks, others = (
            (each.warps_per_sm or 0) // int(each.values.get("num_warps") or 4)
            for each in (one, other)
        )
        fewer = others < blocks
        if ratios[0] >= MORE_IN_FLIGHT and not one.tensor_cores and not fewer:
            each = f"{mine[0]} instead of {units.counted(theirs[0], 'warp')}"
            return f"{each} per SM, as {_options(other)} has"
        if ratios[1] >= MORE_IN_FLIGHT:
            each = f"{units.size(mine[1])} instead of {units.size(theirs[1])}"
            return f"{each} in flight per SM, as {_options(other)} has"
    return None


def _options(one: TunedConfiguration) -> str:
    shown = ((n, one.values[n]) for n in _OF_LAUNCH if n in one.values)
    return ", ".join(f"{name}={value}" for name, value in shown if (name, value) not in _DEFAULTS)
