"""The options of `nsys profile`: what the answers need, as far as this nsys has it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from traceview.errors import RecordingError
from traceview.recorders.nsys import Nsys
from traceview.toolchain.processes import run_process

_OPTION = re.compile(r"^\s+(?:\(\w+\) )?(?:(-\w), )?(--[\w-]+)", re.MULTILINE)
_PERIODS = re.compile(r"--sampling-period=\s+Possible values are integers between (\d+) and (\d+)")
_SHAPES = "--pytorch=autograd-shapes-nvtx"
_NO_SAMPLING = re.compile(r"\(process-tree\): *Fail", re.IGNORECASE)


@dataclass(frozen=True)
class RecordOptions:
    """What to record. The defaults are what the analyses need.

    `backtrace` says of which CUDA calls the C++ call chain is kept, `graph_trace` whether a CUDA
    graph is recorded node by node or whole; `extra` options come last, in place of those of the
    same name. With `shapes` torch names the shapes of tensors of each operator, with `kernels` the
    code of Triton kernels is gathered, with `sync_sites` the lines of Python that wait for the GPU.
    """

    trace: str = "cuda,nvtx,cublas"
    graph_trace: Literal["node", "graph"] = "node"
    backtrace: Literal["none", "sync", "all"] = "sync"
    gpu_metrics: bool = False
    nsys_options: Sequence[str] = ()
    kernels: bool = True
    sync_sites: bool = True
    shapes: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.nsys_options, str):
            # One option, not its letters.
            object.__setattr__(self, "nsys_options", (self.nsys_options,))


@dataclass(frozen=True)
class Abilities:
    """What one nsys can do on this machine; `short` gives the long name of a short option."""

    options: frozenset[str]
    sampling_period: int | None
    can_sample: bool
    short: Mapping[str, str] = field(default_factory=dict)


def abilities(nsys: Nsys) -> Abilities:
    """Ask nsys for its options and for its view of this machine.

    Raises RecordingError if it lists no options.
    """
    said = run_process([nsys.path, "profile", "--help"])
    listed = _OPTION.findall(said.out)
    options = frozenset(long for _, long in listed)
    if "--trace" not in options:
        raise RecordingError(
            f"{nsys.path} does not list its options ({said.evidence})", "install nsys again"
        )
    periods = _PERIODS.search(said.out)
    environment = run_process([nsys.path, "status", "--environment"])
    return Abilities(
        options,
        max(int(periods[1]), int(periods[2])) if periods else None,
        not _NO_SAMPLING.search(environment.text),
        {short: long for short, long in listed if short},
    )


def profile_command(
    nsys: Nsys, able: Abilities, options: RecordOptions, report: Path, command: Sequence[str]
) -> list[str]:
    """The whole command line that records `command` into `report`."""
    wanted = [
        f"--trace={options.trace}",
        "--cuda-memory-usage=true",
        f"--cuda-graph-trace={options.graph_trace}",
        *_call_chains(options, able),
        "--cpuctxsw=none",
        *_metrics(options, able),
        *([_SHAPES] if options.shapes else []),
    ]
    # nsys refuses an option that is given twice.
    replaced = {able.short.get(name, name) for name in map(_name, options.nsys_options)}
    known = [word for word in wanted if _name(word) in able.options - replaced]
    # nsys keeps its raw recording, which holds the environment, where TMPDIR says: in our folder,
    # so that it goes with it. The program gets the value that it would have had.
    if "--env-var" in able.options - replaced:
        known.append(f"--env-var=TMPDIR={os.environ.get('TMPDIR', '/tmp')}")  # noqa: S108
    # nsys puts the values of variables where it finds %q{NAME} in the name of its output.
    output = f"--output={str(report).replace('%', '%%')}"
    return [str(nsys.path), "profile", *known, *options.nsys_options, output, *command]


def _name(option: str) -> str:
    return option.partition("=")[0]


def blind_spots(options: RecordOptions, able: Abilities) -> list[str]:
    """What was asked for and cannot be recorded here, with the remedy; one line each."""
    blind = []
    if options.backtrace != "none" and not able.can_sample:
        blind.append(
            "call chains of synchronizations are not recorded: nsys may not sample the CPU here; "
            "allow it with: sysctl kernel.perf_event_paranoid=2 (in a container: "
            "--cap-add=SYS_ADMIN)"
        )
    if options.shapes and _name(_SHAPES) not in able.options:
        blind.append(
            "shapes of tensors are not recorded: this nsys has no --pytorch; take a newer one, or "
            "run the program within torch.autograd.profiler.emit_nvtx(record_shapes=True)"
        )
    return blind


def _call_chains(options: RecordOptions, able: Abilities) -> list[str]:
    if options.backtrace == "none" or not able.can_sample:
        return ["--sample=none"]
    # Call chains of CUDA calls come only with CPU sampling. The samples themselves nobody reads:
    # as few as possible are taken, and without their stacks, which would fill gigabytes.
    # The threshold of 0 ns keeps short waits, too.
    period = [f"--sampling-period={able.sampling_period}"] if able.sampling_period else []
    return [
        f"--cudabacktrace={options.backtrace}:0",
        "--sample=process-tree",
        "--backtrace=none",
        *period,
    ]


def _metrics(options: RecordOptions, able: Abilities) -> list[str]:
    if not options.gpu_metrics:
        return []
    newer = "--gpu-metrics-devices"
    return [f"{newer if newer in able.options else '--gpu-metrics-device'}=all"]
