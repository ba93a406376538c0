"""The process in which the user's script runs: it compiles kernels and writes down what it got.

Started by traceview.headless.client with two paths: a request as JSON, and the file for the events
(see event_log). It stays alive to compile kernels again (see recompile_server).
"""

from __future__ import annotations

import functools
import importlib.util
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from traceview.errors import InputError, ToolNotFoundError, TraceviewError
from traceview.headless import run_script
from traceview.headless.fakes import torch_compile, triton_driver
from traceview.headless.fakes import torch_cuda as pretend_cuda
from traceview.headless.fakes.triton_driver import Gpu, Overrides, Trials
from traceview.headless.request import Request
from traceview.headless.worker import recompile_server
from traceview.headless.worker.event_log import Recording
from traceview.headless.worker.interpreter import emulate
from traceview.headless.worker.jit_functions import in_words, resolved
from traceview.headless.worker.recompile_server import STARTED, Channel
from traceview.headless.worker.resolve_kernels import After

_UNREACHED = "; --num-warps, --num-stages and --constexpr do not affect its kernels"
_COMPILE = "add --compile (experimental) to include the kernels that torch.compile generates"


def main(request_path: str, events_path: str) -> None:
    """Do what the request says, answer questions, end the process with all its threads."""
    signal.signal(run_script.STOP, signal.SIG_IGN)
    request = Request.from_json(Path(request_path).read_text())
    channel, gpu = Channel.taken(), Gpu(request.capability)
    with Path(events_path).open("a") as stream:
        recording = Recording(stream, request.options.kernel)
        try:
            recording.finish(_ran(request, recording, gpu, lambda: channel.send(STARTED)))
        except TraceviewError as error:
            name = type(error).__name__
            recording.write("failed", error=name, what=error.what, remedy=error.remedy)
        if recording.variants:
            sys.stdout.flush()
            sys.stderr.flush()
            recompile_server.serve(channel, recording.variants, gpu.target)
    _end()


def _end() -> None:
    """Threads of the script may still run."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _ran(request: Request, recording: Recording, gpu: Gpu, starting: Callable[[], None]) -> bool:
    """Whether the script came to its end."""
    _need_triton()
    found = (
        run_script.of_file(request.file)
        if request.file
        else run_script.of_module(str(request.module))
    )
    overrides = _pretend(request, gpu, recording)
    launch = request.options.signature is None
    recording.how = "launched" if launch else None
    arguments, born_as = request.options.arguments, os.getpid()
    ending = run_script.run(found, as_main=launch, arguments=arguments, starting=starting)
    if os.getpid() != born_as:
        # The script has forked, and this is not the process that answers.
        _end()
    recording.how = None
    _check_overrides(overrides, recording)
    After(request.options, recording, gpu, found, ending).conclude()
    return not ending.stopped


def _need_triton() -> None:
    try:
        import triton  # noqa: F401
    except ImportError as error:
        what = f"a Python target needs Triton, which {sys.executable} cannot import ({error})"
        raise ToolNotFoundError(what, "install it: pip install 'traceview[ptx]'") from None


def _pretend(request: Request, gpu: Gpu, recording: Recording) -> Overrides:
    """Put a GPU that launches nothing where the script will look for one."""
    values = {name: resolved(value) for name, value in request.options.constexpr_values.items()}
    overrides = Overrides(values, request.options.launch_options, request.options.kernel)
    on_launch = _OnLaunch(recording, request.options.emulate)
    on_launch.trials = triton_driver.install(
        gpu,
        compiled=recording.compiled,
        launched=on_launch,
        overrides=overrides,
        first_config=request.options.first_config,
    )
    if importlib.util.find_spec("torch"):
        unchecked = functools.cache(functools.partial(_say_unchecked, recording))
        pretend_cuda.install(gpu, None if request.options.emulate else unchecked)
        _pretend_compile(request, gpu, recording, on_launch.trials)
    return overrides


def _pretend_compile(request: Request, gpu: Gpu, recording: Recording, trials: Trials) -> None:
    def note(text: str) -> None:
        recording.write("note", text=text)

    @functools.cache
    def passed_over() -> None:
        recording.remedy = _COMPILE
        note(f"torch.compile was skipped and its functions ran eagerly: {_COMPILE}")

    if request.options.compile_torch:
        recording.places = torch_compile.places_of
        unreached = request.options.launch_options or request.options.constexprs
        torch_compile.install(gpu, trials, lambda text: note(text + _UNREACHED * bool(unreached)))
    else:
        torch_compile.pass_over(passed_over)


def _say_unchecked(recording: Recording, name: str) -> None:
    text = f"{name} passed unchecked, as no kernel ran; --emulate computes values to compare"
    recording.write("note", text=text)


def _check_overrides(overrides: Overrides, recording: Recording) -> None:
    unused = [name for name in overrides.values if name not in overrides.used]
    if unused and recording.variants:
        raise InputError(f"no launched kernel has a parameter {unused[0][:60]!r}")


class _OnLaunch:
    """What happens in place of a launch: it is counted and, if asked for, emulated."""

    def __init__(self, recording: Recording, emulates: bool) -> None:
        self.trials = Trials()
        self._recording, self._emulates = recording, emulates
        self._impossible: set[str] = set()

    def __call__(
        self, source: Any, metadata: Any, grid: tuple[int, int, int], arguments: Sequence[Any]
    ) -> None:
        timed = self.trials.depth > 0
        self._recording.launched(source, metadata.hash, grid, arguments, timed)
        if self._emulates and metadata.name not in self._impossible:
            self._emulate(source, metadata, grid, arguments)

    def _emulate(self, source: Any, metadata: Any, grid: Any, arguments: Sequence[Any]) -> None:
        try:
            emulate(source, grid, arguments)
        except Exception as error:
            self._impossible.add(metadata.name)
            text = (
                f"{metadata.name} cannot be emulated, so its results are missing: {in_words(error)}"
            )
            self._recording.write("note", text=text)
