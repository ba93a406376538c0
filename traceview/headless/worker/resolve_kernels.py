"""Resolve the kernels of a script: as launched, as declared by a signature, or guessed."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from traceview.errors import InputError, TraceviewError
from traceview.headless.compile_options import CompileOptions
from traceview.headless.fakes.triton_driver import Gpu
from traceview.headless.run_script import Ending, Script
from traceview.headless.signatures import inference, notation
from traceview.headless.worker.event_log import EventLog
from traceview.headless.worker.jit_functions import (
    AutotuneConfig,
    Jitted,
    compile_for,
    in_words,
    jitted_in,
)
from traceview.ptx.model import Argument


@dataclass(frozen=True)
class KernelResolution:
    """Compiles what a script did not launch, after it has run."""

    options: CompileOptions
    log: EventLog
    gpu: Gpu
    script: Script
    ending: Ending

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
        if self.options.signature is not None:
            self._compile_declared(self._declared_kernel(), self.options.signature)
        elif self.log.variants:
            self._note_unlaunched()
        else:
            self._compile_guessed()

    @functools.cached_property
    def _jitted(self) -> dict[str, Jitted]:
        return {jitted.name: jitted for jitted in jitted_in(self.ending.names)}

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
        if ending.missing:
            remedy = f"install it for {sys.executable}, or set $TRACEVIEW_PYTHON to another Python"
            return InputError(f"{name} imports {ending.missing}, which is not installed", remedy)
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
        return jitted.configurations[:1] if self.options.first_config else jitted.configurations

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
        self.log.how = "guessed"
        notation.check_names(self.options.constexprs, [p.name for p in jitted.parameters])
        helpers = {name: j.tree for name, j in self._jitted.items()}
        usage, problems = jitted.usage(helpers), []
        if usage.descriptors:
            return [f"{jitted.name} {_takes_descriptors(usage.descriptors)}"]
        for configuration in self._configurations(jitted):
            given = dict(configuration.constexprs) | self.options.constexpr_values
            arguments = inference.guess(jitted.parameters, usage, given)
            given = jitted.chosen(arguments) | given
            arguments = inference.guess(jitted.parameters, usage, given)
            remark = inference.in_words(arguments)
            problem = self._compile(jitted, arguments, configuration, (remark,))
            problems += [f"{jitted.name} does not compile: {problem}; {remark}"] if problem else []
        return problems

    def _compile(
        self,
        jitted: Jitted,
        arguments: Sequence[Argument],
        configuration: AutotuneConfig,
        remarks: tuple[str, ...],
    ) -> str | None:
        """Compile once; return the error on one line, or None."""
        self.log.remarks = (*remarks, *filter(None, [configuration.label]))
        options = dict(configuration.options) | self.options.launch_options
        try:
            compile_for(self.gpu.target, jitted, arguments, options)
        except Exception as error:
            return in_words(error)
        return None


def _takes_descriptors(names: Sequence[str]) -> str:
    many = "are tensor descriptors, whose block shapes are" if len(names) > 1 else ""
    one = "is a tensor descriptor, whose block shape is"
    return (
        f"cannot be guessed: {', '.join(names)} {many or one} set at the launch; pass a script "
        "that launches the kernel, or declare each as tensordesc<fp16[128, 64]>"
    )
