"""The worker process: runs the user's script on a fake GPU and logs the kernels it compiles.

Started by traceview.kernels.headless.client with two paths: a request in JSON, and the event log
to write.
It stays alive to recompile kernels (see recompile_server).
"""

from __future__ import annotations

import functools
import importlib.util
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from traceview.base.errors import InputError, ToolNotFoundError, TraceviewError
from traceview.kernels.headless import compile_error, run_script
from traceview.kernels.headless.compile_options import Deadline, Request
from traceview.kernels.headless.fakes import torch_compile, torch_cuda, torch_values, triton_driver
from traceview.kernels.headless.fakes.triton_driver import Gpu, Overrides, Trials
from traceview.kernels.headless.project.call_sites import harness_of
from traceview.kernels.headless.project.imports import ProjectImports
from traceview.kernels.headless.worker import (
    compile_jobs,
    forked_task,
    recompile_server,
    standalone,
)
from traceview.kernels.headless.worker.event_log import CompiledVariant, EventLog
from traceview.kernels.headless.worker.interpreter import emulate
from traceview.kernels.headless.worker.jit_functions import resolved
from traceview.kernels.headless.worker.recompile_server import RAN, STARTED, Channel
from traceview.kernels.headless.worker.resolve_kernels import KernelResolution
from traceview.kernels.headless.worker.sparse_memory import LaunchSample

_UNAFFECTED = "; --num-warps, --num-stages and --constexpr do not affect its kernels"
_UNCHECKED = " passed unchecked, as no kernel ran; --emulate computes values to compare"
_UNCOMPUTED = (
    "large operations of PyTorch were not computed, as no kernel ran; --emulate computes them"
)
_AHEAD_S = 30.0
# What follows the last trial: disassembly and the report.
_REPORT_S = 1.5
_COMPILE = "add --compile (experimental) to include the kernels that torch.compile generates"


def main(request_path: str, events_path: str) -> None:
    """Run the request, answer recompilation requests, end the process with all its threads."""
    signal.signal(run_script.STOP, signal.SIG_IGN)
    request = Request.from_json(Path(request_path).read_text("utf-8"))
    channel, gpu = Channel.taken(), Gpu(request.capability)
    channel.end_with_client()
    with Path(events_path).open("a", encoding="utf-8") as stream:
        log, samples = EventLog(stream, request.options.kernel), dict[str, LaunchSample]()
        try:
            log.finish(_run_script(request, log, gpu, samples, channel))
        except TraceviewError as error:
            name = type(error).__name__
            log.write("failed", error=name, what=error.what, remedy=error.remedy)
        if log.variants:
            sys.stdout.flush()
            sys.stderr.flush()
            recompile_server.serve(channel, log.variants, gpu.target, samples)
    _end()


def _end() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _run_script(
    request: Request, log: EventLog, gpu: Gpu, samples: dict[str, LaunchSample], channel: Channel
) -> bool:
    """Run the script and resolve its kernels; return whether it ran to its end.

    `samples` gets a launch of each variant.
    """
    try:
        import triton  # noqa: F401
    except ImportError as error:
        what = f"a Python target needs Triton, which {sys.executable} cannot import ({error})"
        raise ToolNotFoundError(what, "install it: pip install 'traceview[ptx]'") from None
    file, options = request.file, request.options
    if request.jobs:
        _install_fakes(request, gpu, log, samples, generated=False)
        return compile_jobs.run(Path(request.jobs), log, gpu, channel)
    script = run_script.of_file(file) if file else run_script.of_module(str(request.module))
    overrides = _install_fakes(request, gpu, log, samples, generated=script.is_generated)
    launch = options.signature is None
    log.how = "launched" if launch else None
    imports, process_id = ProjectImports(), os.getpid()
    imports.install(script.package)
    ending = run_script.run(
        script,
        # What Inductor generates times itself in its main part, a hundred times over.
        as_main=launch and not script.is_generated,
        arguments=options.arguments,
        # Imports are done, which the script's own limit excludes.
        starting=functools.partial(channel.send, STARTED),
        afterwards=functools.partial(_call_model, log, script.is_generated)
        if launch
        else lambda _: None,
        functions=log.functions,
    )
    if os.getpid() != process_id:
        # A fork of the script must not answer the client.
        _end()
    # At least half of the time is left after a script that took long.
    deadline = Deadline(request.began_s + options.trials_s - _REPORT_S)
    deadline = deadline.no_sooner_than(options.trials_s / 2)
    channel.send(f"{RAN}{deadline.at_s!r}\n")
    log.how = None
    unused = [name for name in overrides.values if name not in overrides.used]
    if unused and log.variants:
        what = f"no launched kernel has a parameter {unused[0][:60]!r}"
        raise InputError(what, "check --constexpr")
    for text in imports.notes():
        log.note(text)
    KernelResolution(options, log, gpu, script, ending, deadline, imports.not_installed).run()
    return not ending.stopped


def _call_model(log: EventLog, generated: bool, names: Mapping[str, Any]) -> None:
    """Call the model of a file that launches nothing itself, as its harness does.

    Code that is `generated` compiles its kernels before it launches any.
    """
    harness = harness_of(names) if generated or not (log.variants or log.seen) else None
    if harness is None:
        return
    try:
        harness.call()
        text = f"called {harness.text}, as the harness of {harness.owner} does"
    except Exception as error:
        text = f"{harness.text} raised {type(error).__name__}: {compile_error.in_words(error)}"
    log.note(text)


def _install_fakes(
    request: Request, gpu: Gpu, log: EventLog, samples: dict[str, LaunchSample], *, generated: bool
) -> Overrides:
    """Install a fake GPU, whose driver launches nothing, in Triton and PyTorch.

    Code that torch.compile has `generated` needs the fakes of Inductor, too.
    """
    values = {name: resolved(value) for name, value in request.options.constexpr_values.items()}
    overrides = Overrides(values, request.options.launch_options, request.options.kernel)
    log.describe = functools.partial(_described, gpu)
    on_launch = _OnLaunch(log, request.options.emulate, overrides, samples)
    triton_driver.track(log.functions.append)
    triton_driver.install_newer()
    on_launch.trials = triton_driver.install(
        gpu,
        compiled=log.compiled,
        launched=on_launch,
        overrides=overrides,
        some_configs=log.sampler(request.options.most_configs),
        ahead=None if request.options.emulate else functools.partial(_begun, log),
        rejected=log.rejected,
        configuring=log.configuring,
        skips_failures=request.skips_failures,
    )
    if importlib.util.find_spec("torch"):
        unchecked = functools.cache(lambda name: log.note(name + _UNCHECKED))
        torch_cuda.install(gpu, None if request.options.emulate else unchecked)
        if not (request.options.emulate or request.options.compile_torch):
            torch_values.install(functools.cache(lambda: log.note(_UNCOMPUTED)))
        _fake_torch_compile(request, gpu, log, on_launch.trials)
        if generated:
            torch_compile.run_generated(gpu, on_launch.trials)
    return overrides


def _described(
    gpu: Gpu, variant: CompiledVariant, arguments: Sequence[Any]
) -> Mapping[str, Any] | None:
    try:
        options = triton_driver.changed_options(gpu.target, variant.metadata)
        return standalone.launch_of(variant.source, arguments, options)
    except (OSError, LookupError, TypeError, ValueError, AttributeError):
        # A source that cannot be told apart has no reproducer.
        return None


def _begun(log: EventLog, function: Callable[[], Any]) -> Callable[[], None]:
    """Begin a function that compiles, where another core is there and no thread can hold a lock.

    The thread that waits for the end of the client holds none.
    """
    threads = [each for each in threading.enumerate() if each.name != recompile_server.WATCH]
    if forked_task.cores() < 2 or len(threads) > 1:
        return lambda: None

    def unheard() -> None:
        log.how = None
        function()

    task = forked_task.ForkedTask(unheard)

    def wait() -> None:
        with suppress(TimeoutError, ChildProcessError):
            task.result(_AHEAD_S)

    return wait


def _fake_torch_compile(request: Request, gpu: Gpu, log: EventLog, trials: Trials) -> None:
    @functools.cache
    def skipped() -> None:
        log.remedy = _COMPILE
        log.note(f"torch.compile was skipped and its functions ran eagerly: {_COMPILE}")

    if request.options.compile_torch:
        log.places = torch_compile.places_of
        unaffected = request.options.launch_options or request.options.constexprs
        torch_compile.install(
            gpu, trials, lambda text: log.note(text + _UNAFFECTED * bool(unaffected))
        )
    else:
        torch_compile.skip(skipped)


class _OnLaunch:
    """The replacement of a launch: counts it and, with --emulate, runs it in the interpreter."""

    def __init__(
        self, log: EventLog, emulate: bool, overrides: Overrides, samples: dict[str, LaunchSample]
    ) -> None:
        self.trials = Trials()
        self._log, self._emulate_launches = log, emulate
        self._overrides, self._samples = overrides, samples
        self._impossible: set[str] = set()

    def __call__(
        self, source: Any, metadata: Any, grid: tuple[int, int, int], arguments: Sequence[Any]
    ) -> None:
        timed = self.trials.depth > 0
        self._log.launched(source, metadata.hash, grid, arguments, timed)
        if metadata.hash in self._log.variants and metadata.hash not in self._samples:
            # Without a sample, results are not compared.
            with suppress(Exception):
                names = list(source.signature)
                sample = LaunchSample.of(names, arguments, grid, self._overrides.grid)
                self._samples[metadata.hash] = sample
        if self._emulate_launches and metadata.name not in self._impossible:
            try:
                emulate(source, grid, arguments)
            except Exception as error:
                self._impossible.add(metadata.name)
                why = compile_error.in_words(error)
                text = f"{metadata.name} cannot be emulated, so its results are missing: {why}"
                self._log.note(text)
