"""Options of `nsys profile`, and the injection that gathers kernels of the program."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Literal

from traceview.base.errors import InputError, RecordingError
from traceview.base.records import record
from traceview.kernels.toolchain.tools import run_process
from traceview.traces.recorders.injected.traceview_injected import start
from traceview.traces.recorders.injected.traceview_injected.annotations.training_steps import (
    UNRECORDED,
)
from traceview.traces.recorders.injected.traceview_injected.notes import NOTES, STARTED
from traceview.traces.recorders.injected.traceview_injected.sync_call_sites import NO_SOURCE
from traceview.traces.recorders.injected.traceview_injected.torch_profile import SETTINGS
from traceview.traces.recorders.job import MARKER, python_of
from traceview.traces.recorders.nsys import Nsys, can_include_json
from traceview.traces.trace.rank_identity import RankIdentity

Backend = Literal["auto", "nsys", "torch"]
_OPTION = re.compile(r"^\s+(?:\(\w+\) )?(?:(-\w), )?(--[\w-]+)", re.MULTILINE)
_PERIODS = re.compile(r"--sampling-period=\s+Possible values are integers between (\d+) and (\d+)")
_CHOICES = re.compile(r"(--[\w-]+)\[([\w|]+)\]")
"""As nsys lists `--nvtx-domain-[include|exclude]`."""
_SHAPES = "--pytorch=autograd-shapes-nvtx"
_WITHOUT_XLA = "--nvtx-domain-exclude=TSL"
"""nsys 2025.3 does not find strings that XLA registers for its ranges, and loses other events with
them: all of nine recordings of four JAX programs failed so, two without GPU work left."""
_NO_SAMPLING = re.compile(r"\(process-tree\): *Fail", re.IGNORECASE)


@record
class RecordOptions:
    """What to record. The defaults suit the analyses.

    `trace` lists the APIs that nsys traces. `graph_trace` records the kernels of CUDA graphs
    (`node`) or each graph launch as a whole (`graph`). `backtrace` selects the CUDA calls whose C++
    call chain is recorded. `gpu_metrics` samples hardware counters. `shapes` records the tensor
    shapes of torch operators, `kernels` the code of Triton kernels, `sync_sites` the Python lines
    that wait for the GPU, `python_samples` the Python stacks. `native_samples` records stacks of
    native code, thread scheduling and calls of the operating system; None does so only for programs
    that are not Python. `source_lines` stores the text of lines that wait or are sampled, with
    their neighbours. `annotate` adds ranges to torch programs: their steps and the parts of
    each step (`auto`), or those and the modules of the model (`modules`). `nsys_options` are passed
    to nsys profile and override traceview's own.

    `whole` records a long program to its end; else the recording ends when it has enough: with nsys
    when its raw data exceed RAW_BYTES, with torch.profiler after 10 s of steps, 50 at least.
    `steps` (A, B) records the steps A to B-1, counted from 0 by torch optimizers; `range_name`
    records the first NVTX range of that name. Raises InputError if both are given, or unless
    0 <= A < B.
    """

    trace: str = "cuda,nvtx,cublas"
    graph_trace: Literal["node", "graph"] = "node"
    backtrace: Literal["none", "sync", "all"] = "sync"
    gpu_metrics: bool = False
    nsys_options: Sequence[str] = ()
    kernels: bool = True
    sync_sites: bool = True
    shapes: bool = False
    python_samples: bool = True
    native_samples: bool | None = None
    source_lines: bool = True
    annotate: Literal["auto", "modules", "off"] = "auto"
    whole: bool = False
    steps: tuple[int, int] | None = None
    range_name: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.nsys_options, str):
            # One option, not its letters.
            object.__setattr__(self, "nsys_options", (self.nsys_options,))
        if self.steps and not 0 <= self.steps[0] < self.steps[1]:
            raise InputError(
                "{}:{} is not a range of steps".format(*self.steps),
                "pass first and end, such as 10:20",
            )
        if self.steps and self.range_name:
            raise InputError("steps and a range were given", "bound the recording by one of them")


def nsys_only(options: RecordOptions, *, keep_rep: bool) -> list[str]:
    """The changed options that only nsys supports, by their names on the command line."""
    default = RecordOptions()
    names = ("trace", "graph_trace", "backtrace", "gpu_metrics", "native_samples", "nsys_options")
    changed = [name for name in names if getattr(options, name) != getattr(default, name)]
    shown = [f"--{name.replace('_', '-')}" for name in changed]
    shown = [name.replace("--nsys-options", "--nsys-option") for name in shown]
    return [*shown, *(["--keep-rep"] if keep_rep else [])]


@record
class Abilities:
    """The abilities of one nsys on this machine. `short` maps short option names to long ones.

    `exports_json` is True if its SQLite export can contain the JSON of NVTX events, such as the
    sizes of NCCL's collectives.
    """

    options: frozenset[str]
    sampling_period: int | None
    can_sample: bool
    short: Mapping[str, str] = field(default_factory=dict)
    exports_json: bool = False


def abilities(nsys: Nsys) -> Abilities:
    """Query nsys for its options and for what it can record on this machine.

    Raises RecordingError if it lists no options.
    """
    help_text = run_process([nsys.path, "profile", "--help"])
    listed = _OPTION.findall(help_text.out)
    choices = _CHOICES.findall(help_text.out)
    either = [start + end for start, ends in choices for end in ends.split("|")]
    options = frozenset([*(long for _, long in listed), *either])
    if "--trace" not in options:
        raise RecordingError(
            f"{nsys.path} does not list its options ({help_text.evidence})", "reinstall nsys"
        )
    periods = _PERIODS.search(help_text.out)
    environment = run_process([nsys.path, "status", "--environment"])
    return Abilities(
        options,
        max(int(periods[1]), int(periods[2])) if periods else None,
        not _NO_SAMPLING.search(environment.text),
        {short: long for short, long in listed if short},
        can_include_json(nsys),
    )


def profile_command(
    nsys: Nsys,
    able: Abilities,
    options: RecordOptions,
    report: Path,
    command: Sequence[str],
    rank: RankIdentity | None = None,
) -> list[str]:
    """The whole command line that records `command`, which may be a rank, into `report`."""
    adds_osrt = options.native_samples and "osrt" not in options.trace.split(",")
    wanted = [
        f"--trace={options.trace}{',osrt' if adds_osrt else ''}",
        "--cuda-memory-usage=true",
        f"--cuda-graph-trace={options.graph_trace}",
        *_call_chains(options, able),
        f"--cpuctxsw={'process-tree' if options.native_samples and able.can_sample else 'none'}",
        *_metrics(options, able, rank),
        *([_SHAPES] if options.shapes else []),
        *_capture_range(options, able),
        *_without_xla(options),
    ]
    if session := session_of(options, able, report):
        wanted.append(f"{_SESSION}={session}")
    # nsys rejects an option that is given twice.
    replaced = {able.short.get(name, name) for name in map(_name, options.nsys_options)}
    passed = [word for word in wanted if _name(word) in able.options - replaced]
    # nsys writes its raw recording, which contains the environment, to $TMPDIR: our folder, which
    # is removed afterwards. The program still sees the TMPDIR of its caller.
    if "--env-var" in able.options - replaced:
        variables = [f"TMPDIR={os.environ.get('TMPDIR', '/tmp')}"]  # noqa: S108
        # Not in the environment of nsys itself: the marker tells the program from it.
        variables.append(f"{MARKER}={report.parent.name}")
        if options.range_name:
            # Else nsys sees only ranges whose names were registered; torch registers none.
            variables.append("NSYS_NVTX_PROFILER_REGISTER_ONLY=0")
        passed.append(f"--env-var={','.join(variables)}")
    # nsys expands %q{NAME} in the name of its output.
    output = f"--output={str(report).replace('%', '%%')}"
    return [str(nsys.path), "profile", *passed, *options.nsys_options, output, *command]


def session_of(options: RecordOptions, able: Abilities, report: Path) -> str | None:
    """The name by which nsys can be told to stop; None if the recording has no limit."""
    given = any(_name(each) == _SESSION for each in options.nsys_options)
    bounded = options.whole or options.steps or options.range_name
    if bounded or given or _SESSION not in able.options:
        return None
    return report.parent.name.lstrip(".")


def renamed_session(command: Sequence[str], old: str, new: str) -> list[str]:
    """The command of profile_command with another name for its session."""
    return [f"{_SESSION}={new}" if word == f"{_SESSION}={old}" else word for word in command]


_SESSION = "--session-new"


def bounds(options: RecordOptions) -> Mapping[str, str]:
    """The `steps` or `range` that bounds a recording, as facts for TRACEVIEW_RUN."""
    steps = {"steps": "{}:{}".format(*options.steps)} if options.steps else {}
    return {**steps, **({"range": options.range_name} if options.range_name else {})}


def unrecorded_step(gathered: Path) -> Mapping[str, str]:
    """The time of the steps before the window, and their number, as facts for TRACEVIEW_RUN."""
    try:
        step_ns, steps = (gathered / UNRECORDED).read_text("utf-8").split()
    except (OSError, ValueError):
        return {}
    return {"unrecorded_step_ns": step_ns, "unrecorded_steps": steps}


def missed(options: RecordOptions, where: str = "") -> tuple[str, str] | None:
    """Why no step or range that bounds the recording came, and the remedy; None if unbounded."""
    if options.steps:
        what = f"the program did not reach step {options.steps[0]}{where}"
        return (
            what,
            "steps are counted by torch optimizers, from 0; choose earlier ones, or --range",
        )
    if options.range_name:
        what = f"the program opened no NVTX range named {options.range_name!r}"
        return what, "check the name; it is compared as a whole"
    return None


def _capture_range(options: RecordOptions, able: Abilities) -> list[str]:
    """Options to capture the steps or range only. Raises RecordingError if nsys has none."""
    if not options.steps and not options.range_name:
        return []
    if not {"--capture-range", "--capture-range-end"} <= able.options:
        raise RecordingError("this nsys has no capture ranges", "install a newer nsys")
    if options.range_name:
        # nsys reads the part after the last @ as the domain.
        started = ["--capture-range=nvtx", f"--nvtx-capture={options.range_name}@*"]
    else:
        started = ["--capture-range=cudaProfilerApi"]
    return [*started, "--capture-range-end=stop"]


def _name(option: str) -> str:
    return option.partition("=")[0]


def blind_spots(options: RecordOptions, able: Abilities) -> list[str]:
    """Requested data that cannot be recorded here: one line each, with the fix."""
    blind = []
    if (options.backtrace != "none" or options.native_samples) and not able.can_sample:
        what = "C++ call chains and CPU samples" if options.native_samples else "C++ call chains"
        blind.append(
            f"{what} are not recorded, because nsys may not sample the CPU here; allow it "
            "with: sysctl kernel.perf_event_paranoid=2 (in a container: --cap-add=SYS_ADMIN)"
        )
    if options.shapes and _name(_SHAPES) not in able.options:
        blind.append(
            "tensor shapes are not recorded, because this nsys has no --pytorch option; install a "
            "newer nsys or use torch.autograd.profiler.emit_nvtx(record_shapes=True)"
        )
    return blind


def _call_chains(options: RecordOptions, able: Abilities) -> list[str]:
    chains = [] if options.backtrace == "none" else [f"--cudabacktrace={options.backtrace}:0"]
    if not able.can_sample or not (chains or options.native_samples):
        return ["--sample=none"]
    if options.native_samples:
        # With the default period and unwinding, which nsys picks to be cheap on this CPU.
        return [*chains, "--sample=process-tree"]
    # nsys records call chains of CUDA calls only with CPU sampling. The samples themselves are not
    # used: take as few as possible, and without stacks, which would fill gigabytes. The threshold
    # of 0 ns also keeps short waits.
    period = [f"--sampling-period={able.sampling_period}"] if able.sampling_period else []
    return [*chains, "--sample=process-tree", "--backtrace=none", *period]


def _without_xla(options: RecordOptions) -> list[str]:
    """Leave XLA's ranges out, unless the user chose domains or records one range of any domain."""
    chosen = any(each.startswith("--nvtx-domain-") for each in options.nsys_options)
    wanted = "nvtx" in options.trace.split(",") and not chosen and not options.range_name
    return [_WITHOUT_XLA] if wanted else []


def _metrics(options: RecordOptions, able: Abilities, rank: RankIdentity | None) -> list[str]:
    if not options.gpu_metrics:
        return []
    newer = "--gpu-metrics-devices"
    # Only one nsys at a time can sample a GPU, so each rank samples its own.
    gpus = "all" if rank is None or rank.local_rank is None else str(rank.local_rank)
    return [f"{newer if newer in able.options else '--gpu-metrics-device'}={gpus}"]


# Injection into the recorded program, which then writes its kernels and sync sites to a folder.
#
# The folder recorders/injected comes first on the program's PYTHONPATH. Child processes inherit
# it: the ranks of torchrun, Inductor's compile workers, DataLoader workers.

_INJECTED = Path(__file__).parent / "injected"
_MOST_NOTES = 3
_NO_HOOKS = (
    "the program's Triton kernels were not recorded, because its Python ignored PYTHONPATH; run "
    "it without python -I, -E or -S"
)


def environment(
    options: RecordOptions, folder: Path, *, torch_settings: str | None = None
) -> Mapping[str, str]:
    """Environment variables to add to the program's; creates `folder` for what it writes.

    With `torch_settings` the program runs torch.profiler.
    """
    wanted: dict[str, str] = {}
    # Where nsys samples Python because the user wants it to, once is enough.
    sample_python = options.python_samples and not any(
        _name(each) == "--python-sampling" for each in options.nsys_options
    )
    if options.kernels:
        wanted[start.GATHER] = str(folder)
    if sample_python:
        wanted[start.PYTHON_SAMPLES] = str(folder)
    if torch_settings:
        wanted |= {start.TORCH: str(folder), SETTINGS: torch_settings}
    elif options.steps:
        wanted[start.STEPS] = "{}:{}".format(*options.steps)
    if options.sync_sites:
        wanted[start.SYNC_SITES] = "1"
    if options.annotate != "off":
        wanted[start.ANNOTATE] = options.annotate
    if not wanted:
        return {}
    folder.mkdir(exist_ok=True)
    wanted[start.EVENTS] = str(folder)
    if not options.source_lines:
        wanted[NO_SOURCE] = "1"
    # An empty entry would be the current folder.
    entries = [str(_INJECTED), os.environ.get("PYTHONPATH", "")]
    return {**wanted, "PYTHONPATH": os.pathsep.join(filter(None, entries))}


def has_started(folder: Path) -> bool:
    """Whether a Python of the program reached the injected hooks."""
    return (folder / STARTED).exists()


def never_ran(options: RecordOptions, folder: Path, command: Sequence[str]) -> bool:
    """Whether the program certainly did not start.

    This is known only of a script run by our own Python without options: the hooks run before the
    script does.
    """
    hooked = options.kernels and command[0] == sys.executable
    hooked = hooked and any(word.endswith(".py") for word in command[1:2])
    return hooked and os.access(folder, os.W_OK) and not has_started(folder)


def remarks(options: RecordOptions, folder: Path, command: Sequence[str]) -> list[str]:
    """Failures of the hooks inside the program, one line each."""
    notes = gathered_notes(folder)
    if options.kernels and python_of(command) and not has_started(folder):
        notes = [_NO_HOOKS, *notes]
    more = len(notes) - _MOST_NOTES
    return [*notes[:_MOST_NOTES], *([f"{more} more warnings of this kind"] if more > 0 else [])]


def gathered_notes(folder: Path) -> list[str]:
    """Notes of the hooks in a gathered folder, one line each."""
    path = folder / NOTES
    try:
        text = path.read_text("utf-8", "replace")
    except OSError:
        return []
    return list(dict.fromkeys(text.splitlines()))
