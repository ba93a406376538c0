"""Recompile the kernels of a script on request, after it has run, in the process that ran it.

So the script runs only once, with its own arguments, and kernels defined at run time are there.
"""

from __future__ import annotations

import json
import os
import select
import signal
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from traceview.base.records import record
from traceview.kernels.headless.compile_error import in_words
from traceview.kernels.headless.compile_options import Equivalence
from traceview.kernels.headless.fakes import triton_driver
from traceview.kernels.headless.worker import event_log, forked_task, jit_functions
from traceview.kernels.headless.worker.equivalence import BackgroundComparison
from traceview.kernels.headless.worker.sparse_memory import LaunchSample, tuple_like
from traceview.kernels.ptx.model import Argument

_PATIENCE_S = 60.0
WATCH = "traceview: watch for the end of the client"
STARTED, RAN, READY = "started\n", "ran ", "ready\n"
Answer = dict[str, Any]


@record
class Channel:
    """The pipes to the client process."""

    questions: TextIO
    answers: TextIO

    @classmethod
    def taken(cls) -> Channel:
        """Claim stdin and stdout, so that the script reads nothing and writes to stderr."""
        answers, questions = os.fdopen(os.dup(1), "w"), os.fdopen(os.dup(0))
        os.dup2(2, 1)
        _redirect_to_null(0)
        return cls(questions, answers)

    def end_with_client(self) -> None:
        """Kill this process and its group once the client has ended, even if that was killed.

        Else a script without an end would run on for good.
        """
        closed = select.poll()
        # Without events to wait for, the end of the pipe is told all the same, and nothing is read.
        closed.register(self.questions, 0)

        def watch() -> None:
            closed.poll()
            os.killpg(0, signal.SIGKILL)

        threading.Thread(target=watch, name=WATCH, daemon=True).start()

    def send(self, line: str) -> None:
        """Write a line."""
        self.answers.write(line)
        self.answers.flush()


def _redirect_to_null(descriptor: int) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, descriptor)
    os.close(nothing)


def serve(
    channel: Channel,
    variants: Mapping[str, event_log.CompiledVariant],
    target: Any,
    samples: Mapping[str, LaunchSample],
) -> None:
    """Answer requests until the client closes the pipe; `target` is Triton's `GPUTarget`.

    `samples` are launches of the variants, by id, on which results are compared.
    """
    # A failed recompilation prints pages that are not the fault of the script.
    _redirect_to_null(1)
    _redirect_to_null(2)
    recompilation = _Recompilation(target, samples)
    triton_driver.listen(recompilation.compiled)
    channel.send(READY)
    for line in channel.questions:
        question = json.loads(line)
        channel.send(
            json.dumps(recompilation.answer(variants[question["variant"]], question)) + "\n"
        )


class _Recompilation:
    """Recompiles one variant at a time and keeps its files."""

    def __init__(self, target: Any, samples: Mapping[str, LaunchSample]) -> None:
        self._target, self._samples = target, samples
        self._latest: Answer = {}
        self._comparisons: dict[str, BackgroundComparison] = {}
        self._begun: dict[str, forked_task.ForkedTask] = {}

    def answer(self, variant: event_log.CompiledVariant, question: Mapping[str, Any]) -> Answer:
        """The paths of the recompiled code, or `error` with one line of text.

        To `compared` the answer is whether results stay the same. What is asked `next` is compiled
        at the same time.
        """
        arguments = [Argument(**fields) for fields in question["arguments"]]
        values = changed_values(variant.source, arguments)
        if "compared" in question:
            identity = question["variant"]
            if identity not in self._samples:
                return asdict(Equivalence("unknown", "no launch is known"))
            if not values:
                return asdict(Equivalence("same", "it changes no value"))
            self._start(identity, variant, values, question["seconds"], most=2)
            return asdict(self._comparisons.pop(_key(identity, values)).result())
        if question.get("compare_soon"):
            # End comparisons whose answer nobody has asked for.
            for comparison in self._comparisons.values():
                comparison.close()
            self._comparisons.clear()
            self._start(question["variant"], variant, values, question["seconds"], most=1)
        begun = self._begun.pop(_compilation(question["variant"], question), None)
        for task in self._begun.values():
            task.close()
        self._begun.clear()
        if "next" in question and forked_task.cores() > 1:
            self._begin(variant, question["variant"], question["next"])
        # What takes too long or crashes there may still compile here.
        with suppress(TimeoutError, ChildProcessError):
            if begun and (failed := str(begun.result(_PATIENCE_S))):
                return {"error": failed}
        return self._compiled(variant, question, arguments, values)

    def _begin(self, variant: event_log.CompiledVariant, identity: str, following: Answer) -> None:
        """Compile into Triton's cache, in another process, what is asked next."""
        arguments = [Argument(**fields) for fields in following["arguments"]]
        options = self._options(variant) | following["options"]

        def compiled() -> str:
            triton_driver.listen(None)
            try:
                self._compile(variant, arguments, options)
            except Exception as error:
                return in_words(error)
            return ""

        self._begun[_compilation(identity, following)] = forked_task.ForkedTask(compiled)

    def _compile(
        self,
        variant: event_log.CompiledVariant,
        arguments: Sequence[Argument],
        options: Mapping[str, Any],
    ) -> None:
        from triton.compiler import compile as compile_

        source = changed_source(variant.source, arguments)
        compile_(source, target=self._target, options=dict(options))

    def _compiled(
        self,
        variant: event_log.CompiledVariant,
        question: Mapping[str, Any],
        arguments: Sequence[Argument],
        values: Mapping[str, Any],
    ) -> Answer:
        self._latest = {"error": "nothing was compiled"}
        try:
            self._compile(variant, arguments, self._options(variant) | question["options"])
        except Exception as error:
            return {"error": in_words(error)}
        sample = self._samples.get(question["variant"])
        return self._latest | ({"grid": sample.grid_with(values)} if sample else {})

    def _start(
        self,
        identity: str,
        variant: event_log.CompiledVariant,
        values: Mapping[str, Any],
        seconds: float,
        most: int,
    ) -> None:
        """Begin to compare the results of a kernel with other constexprs, beside compiling it.

        No more than `most` comparisons are left to wait for.
        """
        key, sample = _key(identity, values), self._samples.get(identity)
        if values and sample and key not in self._comparisons and len(self._comparisons) < most:
            self._comparisons[key] = BackgroundComparison(variant.source, sample, values, seconds)

    def _options(self, variant: event_log.CompiledVariant) -> dict[str, Any]:
        """All options that the kernel was compiled with, including num_ctas and maxnreg."""
        known = triton_driver.options_of(self._target)
        options = {name: variant.metadata[name] for name in known if name in variant.metadata}
        # Of a kept kernel, those of an environment that has moved since are Triton's own.
        if libraries := options.pop("extern_libs", None):
            options["extern_libs"] = [each for each in libraries if Path(each[1]).exists()]
        # Of a kernel from the cache they were read from JSON, which has lists for tuples.
        return {n: tuple(v) if isinstance(v, list) else v for n, v in options.items()}

    def compiled(
        self, *, metadata: Mapping[str, Any], metadata_group: Mapping[str, str], **_: Any
    ) -> None:
        """Triton's compilation listener."""
        files = {name.rpartition(".")[2]: str(path) for name, path in metadata_group.items()}
        self._latest = {
            "ptx": files["ptx"],
            "cubin": files["cubin"],
            "stages": {name: files[name] for name in event_log.STAGES if name in files},
            "num_warps": metadata["num_warps"],
            "num_stages": metadata["num_stages"],
            "shared": metadata["shared"],
        }


def changed_values(source: Any, arguments: Sequence[Argument]) -> dict[str, Any]:
    """The arguments that get another value, by name: the compiler's view alone is not a change."""
    return {
        new.name: jit_functions.resolved(new.value)
        for new, old in zip(arguments, event_log.arguments_of(source), strict=True)
        if new.type == "constexpr" and (old.type != "constexpr" or new.value != old.value)
    }


def _compilation(identity: str, question: Mapping[str, Any]) -> str:
    return json.dumps([identity, question["arguments"], question["options"]], sort_keys=True)


def _key(identity: str, values: Mapping[str, Any]) -> str:
    return f"{identity} {sorted((name, str(value)) for name, value in values.items())}"


def changed_source(source: Any, arguments: Sequence[Argument]) -> Any:
    """The source object of a kernel with its arguments replaced.

    Unchanged arguments keep Triton's own values, such as functions, which an Argument cannot hold.
    """
    signature, constants, attributes = (
        dict(given or {}) for given in (source.signature, source.constants, source.attrs)
    )
    places = [place for place, _, _ in event_log.leaves_of(signature)]
    for place, new, old in zip(places, arguments, event_log.arguments_of(source), strict=True):
        # Whether two arguments give the same code; the compiler sees values of constexprs alone.
        same = (new.type, new.divisible_by_16) == (old.type, old.divisible_by_16)
        if same and (new.type != "constexpr" or new.value == old.value):
            continue
        name = list(signature)[place[0]]
        signature[name] = _with(signature[name], place[1:], new.type)
        constants.pop(place, None)
        attributes.pop(place, None)
        if new.type == "constexpr":
            constants[place] = jit_functions.resolved(new.value)
        if new.divisible_by_16:
            attributes[place] = [["tt.divisibility", 16]]
    return type(source)(source.fn, signature, constants, attributes)


def _with(type_: Any, within: event_log.Place, new: str) -> Any:
    """The type of a parameter with the type at one position in its tuples replaced."""
    if not within:
        return new
    at, *deeper = within
    inner = [_with(t, tuple(deeper), new) if n == at else t for n, t in enumerate(type_)]
    return tuple_like(type_, inner)
