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
class Choices:
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
    extra: tuple[str, ...] = ()
    kernels: bool = True
    sync_sites: bool = True
    shapes: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.extra, str):
            # One option, not its letters.
            object.__setattr__(self, "extra", (self.extra,))


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
    nsys: Nsys, able: Abilities, choices: Choices, report: Path, command: Sequence[str]
) -> list[str]:
    """The whole command line that records `command` into `report`."""
    options = [
        f"--trace={choices.trace}",
        "--cuda-memory-usage=true",
        f"--cuda-graph-trace={choices.graph_trace}",
        *_call_chains(choices, able),
        "--cpuctxsw=none",
        *_metrics(choices, able),
        *([_SHAPES] if choices.shapes else []),
    ]
    # nsys refuses an option that is given twice.
    replaced = {able.short.get(name, name) for name in map(_name, choices.extra)}
    known = [word for word in options if _name(word) in able.options - replaced]
    # nsys keeps its raw recording, which holds the environment, where TMPDIR says: in our folder,
    # so that it goes with it. The program gets the value that it would have had.
    if "--env-var" in able.options - replaced:
        known.append(f"--env-var=TMPDIR={os.environ.get('TMPDIR', '/tmp')}")  # noqa: S108
    # nsys puts the values of variables where it finds %q{NAME} in the name of its output.
    output = f"--output={str(report).replace('%', '%%')}"
    return [str(nsys.path), "profile", *known, *choices.extra, output, *command]


def _name(option: str) -> str:
    return option.partition("=")[0]


def blind_spots(choices: Choices, able: Abilities) -> list[str]:
    """What was asked for and cannot be recorded here, with the remedy; one line each."""
    blind = []
    if choices.backtrace != "none" and not able.can_sample:
        blind.append(
            "call chains of synchronizations are not recorded: nsys may not sample the CPU here; "
            "allow it with: sysctl kernel.perf_event_paranoid=2 (in a container: "
            "--cap-add=SYS_ADMIN)"
        )
    if choices.shapes and _name(_SHAPES) not in able.options:
        blind.append(
            "shapes of tensors are not recorded: this nsys has no --pytorch; take a newer one, or "
            "run the program within torch.autograd.profiler.emit_nvtx(record_shapes=True)"
        )
    return blind


def _call_chains(choices: Choices, able: Abilities) -> list[str]:
    if choices.backtrace == "none" or not able.can_sample:
        return ["--sample=none"]
    # Call chains of CUDA calls come only with CPU sampling. The samples themselves nobody reads:
    # as few as possible are taken, and without their stacks, which would fill gigabytes.
    # The threshold of 0 ns keeps short waits, too.
    period = [f"--sampling-period={able.sampling_period}"] if able.sampling_period else []
    return [
        f"--cudabacktrace={choices.backtrace}:0",
        "--sample=process-tree",
        "--backtrace=none",
        *period,
    ]


def _metrics(choices: Choices, able: Abilities) -> list[str]:
    if not choices.gpu_metrics:
        return []
    newer = "--gpu-metrics-devices"
    return [f"{newer if newer in able.options else '--gpu-metrics-device'}=all"]
