"""Resolve the kernels of a script: as launched, as declared by a signature, or guessed."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, MappingProxyType
from typing import Any

from traceview.errors import InputError, TraceviewError
from traceview.headless.compile_options import CompileOptions
from traceview.headless.fakes.ptxas_limit import ptxas_limit
from traceview.headless.fakes.triton_driver import Gpu
from traceview.headless.project.call_sites import call_sites
from traceview.headless.project.launch_arguments import (
    LaunchArguments,
    globals_of,
    launch_arguments,
)
from traceview.headless.run_script import Ending, Script
from traceview.headless.signatures import inference, notation
from traceview.headless.worker.event_log import EventLog
from traceview.headless.worker.guessed_arguments import Attempt, Guesses
from traceview.headless.worker.jit_functions import (
    AutotuneConfig,
    Jitted,
    compile_for,
    in_words,
    jitted_in,
)
from traceview.ptx.model import Argument

_WRITES = re.compile(r"\b(?:st\.(?:\w+\.)*global|atom|red|multimem|cp\.async\.bulk|cp\.reduce)\.")
_TRIED_S, _PTXAS_S = 12.0, 6.0
"""How long arguments of one kernel are tried, and how long ptxas may take for one attempt."""


@dataclass(frozen=True)
class KernelResolution:
    """Compiles what a script did not launch, after it has run."""

    options: CompileOptions
    log: EventLog
    gpu: Gpu
    script: Script
    ending: Ending
    not_installed: tuple[str, ...] = ()

    def run(self) -> None:
        """Compile declared or guessed kernels where needed; log how the script ended.

        Raises InputError or TraceviewError if there is no kernel to report on.
        """
        if self.ending.stopped and not self.log.variants:
            raise self._too_slow()
        if self.ending.failure and (self.log.variants or self._jitted):
            self._note(
                f"{self.script.name} {self._failure}; only kernels compiled by then are shown"
            )
        launched = self.log.variants or self.log.seen
        if self.ending.failure and not launched and not self._may_guess:
            raise self._failed_early()
        if self.options.signature is not None:
            self._compile_declared(self._declared_kernel(), self.options.signature)
        elif self.log.variants:
            self._note_unlaunched()
        else:
            self._compile_guessed()

    @functools.cached_property
    def _jitted(self) -> dict[str, Jitted]:
        found = {jitted.name: jitted for jitted in jitted_in(self.ending.names)}
        path = self.script.path
        inner = [f for f in self.log.functions if f.fn.__code__.co_filename == path]
        return {f.__name__: Jitted(f) for f in inner} | self._undecorated | found

    @property
    def _undecorated(self) -> dict[str, Jitted]:
        """The selected function, if it is plain Python that a project passes to triton.jit."""
        function = self.ending.names.get(self.options.kernel or "")
        if not isinstance(function, FunctionType) or self.log.functions:
            return {}
        import triton

        return {function.__name__: Jitted(triton.jit(function))}

    @functools.cached_property
    def _kernels(self) -> list[str]:
        """The names of the jitted functions in the script itself that look like kernels."""
        module = self.ending.names.get("__name__")
        own = {name: j.tree for name, j in self._jitted.items() if j.module == module}
        return inference.kernels_among(own)

    @property
    def _failure(self) -> str | None:
        if self.ending.stopped:
            return f"did not end within {self.options.timeout_s:g} s and was stopped"
        return self.ending.failure

    @property
    def _may_guess(self) -> bool:
        """Whether kernels are compiled although the script failed before it launched one."""
        options = self.options
        return options.guess or options.signature is not None or self.script.is_library

    def _failed_early(self) -> InputError:
        if not self._jitted or self.not_installed or self.ending.missing:
            return self._no_kernel()
        what = f"{self.script.name} {self.ending.failure} before it launched a kernel"
        remedy = "correct that, or add --guess to compile its kernels with guessed arguments"
        return InputError(what, remedy)

    def _too_slow(self) -> TraceviewError:
        what = f"{self.script.name} {self._failure} before any kernel was compiled"
        return TraceviewError(what, "allow more time with --timeout")

    def _note(self, text: str) -> None:
        self.log.write("note", text=text)

    def _note_unlaunched(self) -> None:
        rest = [name for name in self._kernels if name not in self.log.seen]
        if rest and self.options.kernel is None:
            first = f"add :{rest[0]} to the target to compile it with guessed arguments"
            self._note(f"never launched and not shown: {', '.join(rest)} ({first})")

    def _declared_kernel(self) -> Jitted:
        """The kernel that the signature is for. Raises InputError if it is ambiguous."""
        names = self._selected()
        if len(names) > 1:
            remedy = f"name one of: {', '.join(names)}"
            raise InputError(f"{self.script.name} has {len(names)} kernels", remedy)
        return self._jitted[names[0]]

    def _selected(self) -> list[str]:
        """The names of the selected kernels. Raises InputError if there are none."""
        wanted = self.options.kernel
        if wanted is None and self._kernels:
            return self._kernels
        if wanted in self._jitted:
            return [str(wanted)]
        raise self._no_kernel()

    def _no_kernel(self) -> InputError:
        """Why there is no kernel to report on."""
        name, ending = self.script.name, self.ending
        missing = ending.missing or next(iter(self.not_installed), None)
        if missing and (ending.failure or not self._kernels):
            how = f"{name} imports {missing}, which is not installed"
            failed = f", and {ending.failure}" if ending.failure and not ending.missing else ""
            remedy = f"install it for {sys.executable}, or set $TRACEVIEW_PYTHON to another Python"
            return InputError(how + failed, remedy)
        known = sorted(set(self._kernels) | self.log.seen)
        if self.options.kernel and known:
            early = f" (it {ending.failure})" if ending.failure else ""
            what = f"{name} has no Triton kernel {self.options.kernel[:60]!r}{early}"
            return InputError(what, f"it has: {', '.join(known)}")
        if ending.failure:
            return InputError(f"{name} {ending.failure}", "no kernel was compiled before that")
        remedy = self.log.remedy
        return InputError(f"{name} neither launches nor defines a Triton kernel", remedy)

    def _configurations(self, jitted: Jitted) -> Sequence[AutotuneConfig]:
        some = self.log.sampler(self.options.most_configs)
        return some(jitted.name, jitted.configurations)

    def _compile_declared(self, jitted: Jitted, signature: str) -> None:
        self.log.how = "declared"
        whole = notation.is_whole(signature, jitted.parameters)
        for configuration in (AutotuneConfig(),) if whole else self._configurations(jitted):
            given = dict(configuration.constexprs) | self.options.constexpr_values
            arguments = notation.bind(signature, jitted.parameters, given)
            problem = self._compile(jitted, arguments, configuration, ())
            if problem:
                raise InputError(f"{jitted.name} does not compile as declared: {problem}")

    def _compile_guessed(self) -> None:
        names, problems = self._selected(), []
        self._note(f"{', '.join(names)}: not launched by the script, so the arguments are guessed")
        for name in names:
            problems += self._guess(self._jitted[name])
        if not self.log.variants:
            raise InputError(problems[0], 'declare its arguments with --signature "…"')
        for problem in problems:
            self._note(problem)

    def _guess(self, jitted: Jitted) -> list[str]:
        notation.check_names(self.options.constexprs, [p.name for p in jitted.parameters])
        helpers = {name: j.tree for name, j in self._jitted.items()}
        guesses = Guesses(
            jitted, jitted.usage(helpers), self._calls(jitted), self.options.constexpr_values
        )
        problems = (self._first_that_compiles(guesses, c) for c in self._configurations(jitted))
        return [problem for problem in problems if problem]

    def _first_that_compiles(self, guesses: Guesses, configuration: AutotuneConfig) -> str | None:
        """Compile the first attempt that can be; return what was wrong with the first of all."""
        jitted, problem, end = guesses.jitted, None, time.monotonic() + _TRIED_S
        for attempt in guesses.attempts(configuration):
            remark = inference.in_words(attempt.arguments, attempt.origin)
            failed = self._tried(jitted, attempt, configuration)
            if failed is None:
                self.log.how = "called" if attempt.origin else "guessed"
                return self._compile(
                    jitted, attempt.arguments, configuration, (remark,), attempt.options
                )
            problem = problem or f"{jitted.name} does not compile: {failed}; {remark}"
            if time.monotonic() > end:
                break
        missing = [n for n in guesses.usage.descriptors if not guesses.is_passed(n)]
        return f"{jitted.name} {_takes_descriptors(missing)}" if missing else problem

    def _tried(self, jitted: Jitted, attempt: Attempt, configuration: AutotuneConfig) -> str | None:
        """Compile without reporting it; return what is wrong with it, or None.

        Triton keeps what it compiles, so that compiling it again costs little.
        """
        options = dict(attempt.options) | dict(configuration.options) | self.options.launch_options
        self.log.how = None
        try:
            with _quietly():
                made = compile_for(self.gpu.target, jitted, attempt.arguments, options)
                ptx = str(made.asm["ptx"])
        except subprocess.TimeoutExpired:
            return f"ptxas takes more than {_PTXAS_S:g} s with these arguments"
        except Exception as error:
            return in_words(error)
        return None if _WRITES.search(ptx) else "it writes nothing with these arguments"

    def _calls(self, jitted: Jitted) -> list[LaunchArguments]:
        """The calls of a kernel in the source of its project."""
        file = Path(jitted.function.fn.__code__.co_filename)
        project = self.script.package.project if self.script.package else None
        parameters = jitted.parameters
        own = jitted.function.fn.__globals__
        found = []
        for site in call_sites(jitted.name, file, project):
            known = own if site.file == file else globals_of(site.module, own)
            found.append(launch_arguments(site, parameters, known))
        return sorted(found, key=lambda call: -len(call.values))

    def _compile(
        self,
        jitted: Jitted,
        arguments: Sequence[Argument],
        configuration: AutotuneConfig,
        remarks: tuple[str, ...],
        given: Mapping[str, Any] = MappingProxyType({}),
    ) -> str | None:
        """Compile once; return the error on one line, or None."""
        self.log.remarks = (*remarks, *filter(None, [configuration.label]))
        options = dict(given) | dict(configuration.options) | self.options.launch_options
        try:
            with _quietly() if self.log.how != "declared" else nullcontext():
                compile_for(self.gpu.target, jitted, arguments, options)
        except Exception as error:
            return in_words(error)
        return None


@contextmanager
def _quietly() -> Iterator[None]:
    """Limit ptxas, and drop the pages that it and Triton print where an attempt fails."""
    kept = [os.dup(1), os.dup(2)]
    with Path(os.devnull).open("w") as nothing, ptxas_limit.of(_PTXAS_S):
        sys.stdout.flush()
        os.dup2(nothing.fileno(), 1)
        os.dup2(nothing.fileno(), 2)
        try:
            yield
        finally:
            sys.stdout.flush()
            for descriptor, copy in zip((1, 2), kept, strict=True):
                os.dup2(copy, descriptor)
                os.close(copy)


def _takes_descriptors(names: Sequence[str]) -> str:
    many = "are tensor descriptors, whose block shapes are" if len(names) > 1 else ""
    one = "is a tensor descriptor, whose block shape is"
    return (
        f"cannot be guessed: {', '.join(names)} {many or one} set at the launch; pass a script "
        "that launches the kernel, or declare each as tensordesc<fp16[128, 64]>"
    )
