"""The process in which the user's script runs: it compiles kernels and writes down what it got.

Started by traceview.ptx.python_target with two paths: a request as JSON, and the file for the
events (see traceview.ptx.recording).
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from traceview.errors import InputError, ToolNotFoundError, TraceviewError
from traceview.ptx import declared, guessed, pretend_cuda, script, triton_driver
from traceview.ptx.declared import Value
from traceview.ptx.emulation import emulate
from traceview.ptx.jitted import (
    Configuration,
    Jitted,
    compile_for,
    in_words,
    jitted_in,
    resolved,
)
from traceview.ptx.model import Argument
from traceview.ptx.recording import Recording
from traceview.ptx.script import Ending, Script
from traceview.ptx.triton_driver import Gpu, Overrides, Trials


@dataclass(frozen=True)
class Request:
    """What to compile. One of `file` and `module` is set; `capability` is such as 9.0."""

    file: str | None
    module: str | None
    kernel: str | None
    capability: str
    script_args: Sequence[str]
    signature: str | None
    constexprs: Mapping[str, str]
    options: Mapping[str, int]
    first_config: bool
    emulate: bool

    @property
    def values(self) -> dict[str, Value]:
        """The constexprs as values."""
        return {name: declared.value_of(text) for name, text in self.constexprs.items()}


def main(request_path: str, events_path: str) -> None:
    """Do what the request says, and end the process: threads of the script may still run."""
    request = Request(**json.loads(Path(request_path).read_text()))
    with Path(events_path).open("a") as stream:
        recording = Recording(stream, request.kernel)
        try:
            _serve(request, recording)
        except TraceviewError as error:
            name = type(error).__name__
            recording.write("failed", error=name, what=error.what, remedy=error.remedy)
        recording.finish()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _serve(request: Request, recording: Recording) -> None:
    _need_triton()
    found = script.of_file(request.file) if request.file else script.of_module(str(request.module))
    gpu = Gpu(request.capability)
    overrides = _pretend(request, gpu, recording)
    launch = request.signature is None
    recording.how = "launched" if launch else None
    ending = script.run(found, as_main=launch, arguments=request.script_args)
    recording.how = None
    _check_overrides(overrides, recording)
    _After(request, recording, gpu, found, ending).conclude()


def _need_triton() -> None:
    try:
        import triton  # noqa: F401
    except ImportError as error:
        what = f"compiling a Python target needs Triton, and {sys.executable} has none ({error})"
        raise ToolNotFoundError(what, "install it: pip install 'traceview[ptx]'") from None


def _pretend(request: Request, gpu: Gpu, recording: Recording) -> Overrides:
    """Put a GPU that launches nothing where the script will look for one."""
    values = {name: resolved(value) for name, value in request.values.items()}
    overrides = Overrides(values, request.options, request.kernel)
    on_launch = _OnLaunch(recording, request.emulate)
    on_launch.trials = triton_driver.install(
        gpu,
        compiled=recording.compiled,
        launched=on_launch,
        overrides=overrides,
        first_config=request.first_config,
    )
    if importlib.util.find_spec("torch"):
        unchecked = functools.cache(functools.partial(_say_unchecked, recording))
        pretend_cuda.install(gpu, None if request.emulate else unchecked)
    return overrides


def _say_unchecked(recording: Recording, name: str) -> None:
    text = f"{name} was taken to hold, as no kernel ran; --emulate gives values to compare"
    recording.write("note", text=text)


def _check_overrides(overrides: Overrides, recording: Recording) -> None:
    unused = [name for name in overrides.values if name not in overrides.used]
    if unused and recording.ids:
        raise InputError(f"no kernel that is launched has a parameter {unused[0][:60]!r}")


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
            text = f"{metadata.name} cannot be emulated and gives no values: {in_words(error)}"
            self._recording.write("note", text=text)


@dataclass(frozen=True)
class _After:
    """What is left to do after the script has run."""

    request: Request
    recording: Recording
    gpu: Gpu
    script: Script
    ending: Ending

    def conclude(self) -> None:
        """Compile what was declared, or what has to be guessed; say how the script ended."""
        if self.ending.failure and (self.recording.ids or self._jitted):
            self._note(f"{self.script.name} {self.ending.failure}; what came before is kept")
        if self.request.signature is not None:
            self._declared(self._one(), self.request.signature)
        elif self.recording.ids:
            self._tell_of_unlaunched()
        else:
            self._guess_all()

    @functools.cached_property
    def _jitted(self) -> dict[str, Jitted]:
        return {jitted.name: jitted for jitted in jitted_in(self.ending.names)}

    @functools.cached_property
    def _kernels(self) -> list[str]:
        """Names of those functions of the script's own that seem to be kernels."""
        module = self.ending.names.get("__name__")
        own = {name: j.tree for name, j in self._jitted.items() if j.module == module}
        return guessed.kernels_among(own)

    def _note(self, text: str) -> None:
        self.recording.write("note", text=text)

    def _tell_of_unlaunched(self) -> None:
        rest = [name for name in self._kernels if name not in self.recording.seen]
        if rest and self.request.kernel is None:
            first = f"add :{rest[0]} to the target to see it, its arguments guessed"
            self._note(f"never launched, so not shown: {', '.join(rest)} ({first})")

    def _one(self) -> Jitted:
        """The kernel that a signature is for. Raises InputError if that is not clear."""
        names = self._named()
        if len(names) > 1:
            remedy = f"name one of: {', '.join(names)}"
            raise InputError(f"{self.script.name} has {len(names)} kernels", remedy)
        return self._jitted[names[0]]

    def _named(self) -> list[str]:
        """The kernels that are meant. Raises InputError if there are none."""
        wanted = self.request.kernel
        if wanted is None and self._kernels:
            return self._kernels
        if wanted in self._jitted:
            return [str(wanted)]
        raise self._none()

    def _none(self) -> InputError:
        """Why there is nothing to show."""
        name, ending = self.script.name, self.ending
        if ending.missing:
            remedy = f"install it for {sys.executable}, or name another Python in $TRACEVIEW_PYTHON"
            return InputError(f"{name} needs the package {ending.missing}, not found here", remedy)
        there = sorted(set(self._kernels) | self.recording.seen)
        if self.request.kernel and there:
            early = f" (it {ending.failure})" if ending.failure else ""
            what = f"{name} has no Triton kernel {self.request.kernel[:60]!r}{early}"
            return InputError(what, f"it has: {', '.join(there)}")
        if ending.failure:
            return InputError(f"{name} {ending.failure}", "no kernel was compiled before that")
        return InputError(f"{name} neither launches nor defines a Triton kernel")

    def _configurations(self, jitted: Jitted) -> Sequence[Configuration]:
        return jitted.configurations[:1] if self.request.first_config else jitted.configurations

    def _declared(self, jitted: Jitted, signature: str) -> None:
        self.recording.how = "declared"
        whole = declared.is_whole(signature, jitted.parameters)
        for configuration in (Configuration(),) if whole else self._configurations(jitted):
            given = dict(configuration.constexprs) | self.request.values
            arguments = declared.bind(signature, jitted.parameters, given)
            problem = self._compile(jitted, arguments, configuration, ())
            if problem:
                raise InputError(f"{jitted.name} does not compile as declared: {problem}")

    def _guess_all(self) -> None:
        names, problems = self._named(), []
        self._note(f"{', '.join(names)}: no launch was seen, so the arguments are guessed")
        for name in names:
            problems += self._guess(self._jitted[name])
        if not self.recording.ids:
            raise InputError(problems[0], 'declare its arguments with --signature "…"')
        for problem in problems:
            self._note(problem)

    def _guess(self, jitted: Jitted) -> list[str]:
        self.recording.how = "guessed"
        declared.check_names(self.request.constexprs, [p.name for p in jitted.parameters])
        helpers = {name: j.tree for name, j in self._jitted.items()}
        usage, problems = jitted.usage(helpers), []
        for configuration in self._configurations(jitted):
            given = dict(configuration.constexprs) | self.request.values
            arguments = guessed.guess(jitted.parameters, usage, given)
            given = jitted.chosen(arguments) | given
            arguments = guessed.guess(jitted.parameters, usage, given)
            said = guessed.in_words(arguments)
            problem = self._compile(jitted, arguments, configuration, (said,))
            problems += [f"{jitted.name} does not compile: {problem}; {said}"] if problem else []
        return problems

    def _compile(
        self,
        jitted: Jitted,
        arguments: Sequence[Argument],
        configuration: Configuration,
        remarks: tuple[str, ...],
    ) -> str | None:
        """Compile once; what went wrong, if anything."""
        said = (configuration.said,) if configuration.said else ()
        self.recording.remarks = (*remarks, *said)
        options = dict(configuration.options) | dict(self.request.options)
        try:
            compile_for(self.gpu.target, jitted, arguments, options)
        except Exception as error:
            return in_words(error)
        return None
