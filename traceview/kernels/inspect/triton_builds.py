"""The kernels of a target, compiled by several versions of Triton for several architectures.

A script runs once per version and architecture, in one process that compiles all its kernels. The
kernels of a recording are compiled from their file, if it is on this machine and still has their
text, else from the recorded text alone; those of a cache from Triton's intermediate code.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from traceview.base import units
from traceview.base.errors import InputError, TimeUpError, TraceviewError
from traceview.base.hardware import limits_of
from traceview.base.records import record
from traceview.kernels.headless.client import Worker, python
from traceview.kernels.headless.compile_options import CompileOptions, Request
from traceview.kernels.headless.events import Events, Rejected
from traceview.kernels.inspect.python_targets import DEFAULT_ARCH, parse_target, read_cache
from traceview.kernels.inspect.targets import is_named, is_python
from traceview.kernels.ptx.model import Compiled
from traceview.kernels.toolchain import triton_versions
from traceview.traces.facts.code import gathered_code
from traceview.traces.trace.load import is_trace, load

BUDGET_S = 240.0
"""Seconds for the script under one version, unless another budget is asked for."""
_AT_ONCE = 2
_UNREADABLE = "Parse MLIR file failed"
_FROM_IR = "from Triton's intermediate code, so changes of its Python front end do not show"
# What kernels of programs, and those of Inductor, commonly find in their module.
_MODULE = (
    "import math, torch, triton, triton.language as tl; "
    "from triton.language.extra import libdevice; exec('try:\\n"
    " from torch._inductor.runtime import triton_helpers\\n"
    " from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math\\n"
    "except ImportError: pass')"
)


@record
class TritonBuild:
    """The kernels as one version compiles them for one architecture.

    `failure` says why kernels of the program may be missing. `times_ns` has the time of each
    kernel in the recording, by its variant, and is empty where there is none.
    """

    version: str
    arch: str
    kernels: tuple[Compiled, ...]
    rejected: tuple[Rejected, ...] = ()
    failure: str | None = None
    times_ns: Mapping[str, int] | None = None


@record
class _Job:
    """A kernel to compile, as the target has it, and its time in the recording, if known."""

    compiled: Compiled
    time_ns: int | None = None

    @property
    def text(self) -> str | None:
        """The Python module that defines the kernel, as the recording has it; lines are kept."""
        compiled = self.compiled
        if self.time_ns is None or not compiled.source_text:
            return None
        lines = compiled.source_text.splitlines()
        first = max((compiled.source_line or 1) - 1, 0)
        before = [*lines[:first], "", ""][: max(first, 2)]
        before[0], before[-1] = _MODULE, "@triton.jit"
        return "\n".join([*before, *lines[first:], ""])


def versions_of(given: Sequence[str]) -> tuple[str, ...]:
    """The versions to compare; a single one is compared with the installed one.

    Raises InputError for a text that is no version, or if there is nothing to compare.
    """
    for version in given:
        triton_versions.check_version(version)
    installed = triton_versions.interpreter(python()).triton
    versions = list(given) if len(given) > 1 or not installed else [installed, *given]
    for at, version in enumerate(versions):
        if any(triton_versions.same_version(version, other) for other in versions[:at]):
            what = f"Triton {version} would be compared with itself"
            raise InputError(what, "pass another version: --triton 3.6.0 3.7.1")
    if len(versions) < 2:
        what = "there is only one version to compare, and no Triton is installed"
        raise InputError(what, "pass two: --triton 3.6.0 3.7.1")
    return tuple(versions)


def builds(
    target: str,
    versions: Sequence[str],
    archs: Sequence[str],
    options: CompileOptions,
    note: Callable[[str], None],
    step: Callable[[str], None],
) -> list[TritonBuild]:
    """The kernels of a target by each version and for each architecture, in this order.

    Without architectures they are those of the cache or the recording, sm_90 for a script. Raises
    InputError if the target has no such kernels, and what `folder_of` raises.
    """
    of_python = is_python(target)
    jobs = [] if of_python else _jobs(target, options, note)
    archs = archs or ([DEFAULT_ARCH] if of_python else sorted({j.compiled.arch for j in jobs}))
    folders = {version: triton_versions.folder_of(version, python(), note) for version in versions}
    asked = [(version, arch) for arch in archs for version in versions]

    def built(version: str, arch: str) -> TritonBuild:
        step(f"Compiling with Triton {version} for {arch}")
        request = _request(None if jobs else target, arch, options, folders[version])
        # The script prints the same under every version.
        request = replace(request, is_quiet=(version, arch) != asked[0])
        return _build(request, version, arch, jobs)

    with ThreadPoolExecutor(min(_AT_ONCE, os.cpu_count() or 1)) as pool:
        return list(pool.map(built, *zip(*asked, strict=True)))


def _request(
    target: str | None, arch: str, options: CompileOptions, folder: Path | None
) -> Request:
    parts = parse_target(target, options.kernel) if target else None
    budget = BUDGET_S if options.budget_s is None else options.budget_s
    kernel = parts.kernel if parts else None
    return Request(
        file=parts.file if parts else None,
        module=parts.module if parts else None,
        capability=limits_of(arch).compute_capability,
        options=replace(options, kernel=kernel, arch=arch, budget_s=budget),
        triton=str(folder) if folder else None,
        skips_failures=True,
    )


def _build(request: Request, version: str, arch: str, jobs: Sequence[_Job]) -> TritonBuild:
    with tempfile.TemporaryDirectory(prefix="traceview-") as folder:
        if jobs:
            # A list has an end: what a script may take for its trials is for compilations.
            options = replace(request.options, timeout_s=request.options.trials_s)
            listed = str(_written(jobs, Path(folder)))
            request = replace(request, jobs=listed, options=options)
        worker = Worker(request)
        try:
            ended = worker.run()
            events = Events.read(worker.events, arch)
        finally:
            worker.close()
    stopped = None if events.is_whole else f"did not end within {request.options.script_s:g} s"
    failure = events.failure.what if events.failure else ended or stopped
    too_slow = isinstance(events.failure, TimeUpError) if events.failure else not ended
    if failure and (too_slow or worker.timed_out):
        failure = f"{failure}; --budget {3 * request.options.trials_s:g} allows more time"
    if jobs:
        return _of_jobs(events, jobs, version, arch, failure)
    return TritonBuild(version, arch, _fitting(events), events.rejected, failure)


def _fitting(events: Events) -> tuple[Compiled, ...]:
    """The kernels that were compiled and that can be launched."""
    rejected = {identity(each.kernel) for each in events.rejected}
    return tuple(kernel for kernel in events.compiled if identity(kernel) not in rejected)


def identity(kernel: Compiled) -> object:
    """What tells a variant from others in every version.

    Values at run time are no part of it: a launch has them, a kernel that does not compile none.
    """
    arguments = tuple(
        (a.name, a.type, a.divisible_by_16, str(a.value) if a.type == "constexpr" else None)
        for a in kernel.arguments
        if a.type == "constexpr" or a.divisible_by_16
    )
    # A kernel of a list has its number there.
    number = kernel.notes if kernel.how == "given" else ()
    return kernel.name, arguments, kernel.num_warps, kernel.num_stages, number


def autotuned_identity(kernel: Compiled) -> object:
    """Equal for the configurations of one kernel and one set of arguments."""
    values = kernel.configuration or {}
    rest = tuple(argument for argument in kernel.arguments if argument.name not in values)
    return identity(replace(kernel, arguments=rest, num_warps=None, num_stages=None))


def _of_jobs(
    events: Events, jobs: Sequence[_Job], version: str, arch: str, failure: str | None
) -> TritonBuild:
    """The build of a list of kernels, which take their arguments from the target."""

    def known(compiled: Compiled) -> tuple[Compiled, _Job]:
        job = jobs[int(compiled.notes[0])]
        given = job.compiled
        name, arguments = given.name, given.arguments
        launched = replace(compiled, grid=given.grid, launches=given.launches)
        return replace(launched, name=name, arguments=arguments), job

    kernels = [known(compiled) for compiled in _fitting(events)]
    read = [each for each in events.rejected if _UNREADABLE not in each.reason]
    if unread := len(events.rejected) - len(read):
        count = units.counted(unread, "kernel")
        failure = failure or f"it does not read another version's intermediate code of {count}"
    rejected = [(known(each.kernel), each.reason) for each in read]
    listed = [*kernels, *(each for each, _ in rejected)]
    times = {str(kernel.variant): job.time_ns for kernel, job in kernels if job.time_ns is not None}
    return TritonBuild(
        version,
        arch,
        tuple(kernel for kernel, _ in kernels),
        tuple(Rejected(kernel, reason) for (kernel, _), reason in rejected),
        failure or (None if listed else "it compiled no kernel"),
        times,
    )


def _written(jobs: Sequence[_Job], folder: Path) -> Path:
    """The list of kernels as a file for the worker."""
    listed = [_described(job, number, folder) for number, job in enumerate(jobs)]
    path = folder / "kernels.json"
    path.write_text(json.dumps(listed), "utf-8")
    return path


def _described(job: _Job, number: int, folder: Path) -> dict[str, Any]:
    compiled, text = job.compiled, job.text
    options = {"num_warps": compiled.num_warps, "num_stages": compiled.num_stages}
    described: dict[str, Any] = {
        "name": compiled.name,
        "arguments": [asdict(argument) for argument in compiled.arguments],
        "options": {name: value for name, value in options.items() if value},
    }
    if text and _has_text(compiled):
        return described | {"file": compiled.source_file}
    path = folder / str(number) / f"{compiled.name[:80]}.{'py' if text else 'ttir'}"
    path.parent.mkdir()
    path.write_text(text or compiled.stages["ttir"], "utf-8")
    return described | {"file" if text else "code": str(path)}


def _has_text(compiled: Compiled) -> bool:
    """Whether the kernel's file is here, with the recorded text."""
    try:
        text = Path(compiled.source_file or "").read_text("utf-8")
    except (OSError, ValueError):
        return False
    return (compiled.source_text or "").strip() in text


def _jobs(target: str, options: CompileOptions, note: Callable[[str], None]) -> list[_Job]:
    """The kernels of a cache, or those of a recording that ran; each is compiled once."""
    path = Path(target)
    if path.is_dir():
        found = [_Job(compiled) for compiled in read_cache(path, note=note)]
    elif is_trace(path):
        code = gathered_code(load(path))
        found = [_Job(each.compiled, each.total_ns) for each in code.launched]
    else:
        what = f"{target} is neither a Triton source, nor a Triton cache, nor a recording"
        raise InputError(what, "pass what has Triton kernels to compile")
    chosen = [
        each
        for each in found
        if is_named(options.kernel, each.compiled.name, each.compiled.name)
        and (each.text or "ttir" in each.compiled.stages)
        # Without a signature it is CUDA C++.
        and each.compiled.arguments
    ]
    if not chosen:
        raise InputError(f"{target} has no such Triton kernel", "check TARGET and --kernel")
    if count := sum(each.text is None for each in chosen):
        note(f"{count} of {len(chosen)} kernels are compiled {_FROM_IR}")
    return list({_key(each): each for each in reversed(chosen)}.values())[::-1]


def _key(job: _Job) -> object:
    """Equal for one kernel that the target has for several architectures."""
    given = job.compiled
    code = job.text or given.stages["ttir"]
    return given.name, given.arguments, given.num_warps, given.num_stages, code


def failures(built: Sequence[TritonBuild]) -> Iterator[str]:
    """Why kernels of some builds may be missing, a line each.

    Raises TraceviewError if a version that the others are compared with compiled none.
    """
    first = built[0].version
    for build in built:
        if build.failure and build.version == first and not (build.kernels or build.rejected):
            what = f"Triton {build.version} for {build.arch}: {build.failure}"
            raise TraceviewError(what, "check it with `traceview ptx TARGET`")
        if build.failure:
            yield f"Triton {build.version} for {build.arch}: {build.failure}"
