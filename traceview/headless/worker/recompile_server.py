"""After the script has run: its kernels are compiled again, changed a little, as asked for.

In the process in which the script ran, so that it runs once, with its own arguments, and so that
kernels made while it ran are there too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from traceview.headless.fakes import triton_driver
from traceview.headless.worker.event_log import Place, Variant, arguments_of, leaves_of
from traceview.headless.worker.jit_functions import in_words, resolved
from traceview.ptx.model import Argument

STARTED, READY = "started\n", "ready\n"
Answer = dict[str, Any]


@dataclass(frozen=True)
class Channel:
    """The pipes to the process that asks."""

    questions: TextIO
    answers: TextIO

    @classmethod
    def taken(cls) -> Channel:
        """Take stdin and stdout, so that the script reads nothing and writes to stderr."""
        answers, questions = os.fdopen(os.dup(1), "w"), os.fdopen(os.dup(0))
        os.dup2(2, 1)
        _let_be_nothing(0)
        return cls(questions, answers)

    def send(self, line: str) -> None:
        """Write a line."""
        self.answers.write(line)
        self.answers.flush()


def _let_be_nothing(descriptor: int) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, descriptor)
    os.close(nothing)


def serve(channel: Channel, variants: Mapping[str, Variant], target: Any) -> None:
    """Answer until the other side is gone. `target` is the GPU, as Triton writes it."""
    # A trial that fails makes the compiler print pages, and the script is not at fault.
    _let_be_nothing(1)
    _let_be_nothing(2)
    bench = _Bench(target)
    triton_driver.listen(bench.compiled)
    channel.send(READY)
    for line in channel.questions:
        question = json.loads(line)
        channel.send(json.dumps(bench.answer(variants[question["variant"]], question)) + "\n")


class _Bench:
    """Compiles one variant at a time and keeps what came of it."""

    def __init__(self, target: Any) -> None:
        self._target = target
        self._latest: Answer = {}

    def answer(self, variant: Variant, question: Mapping[str, Any]) -> Answer:
        """Where the code of the changed kernel is; an `error` in words if it does not compile."""
        from triton.compiler import compile as compile_

        self._latest = {"error": "nothing was compiled"}
        arguments = [Argument(**fields) for fields in question["arguments"]]
        try:
            options = self._options(variant) | question["options"]
            compile_(changed(variant.source, arguments), target=self._target, options=options)
        except Exception as error:
            return {"error": in_words(error)}
        return self._latest

    def _options(self, variant: Variant) -> dict[str, Any]:
        """All options that the kernel was compiled with, num_ctas and maxnreg among them."""
        known = triton_driver.options_of(self._target)
        return {name: variant.metadata[name] for name in known if name in variant.metadata}

    def compiled(
        self, *, metadata: Mapping[str, Any], metadata_group: Mapping[str, str], **_: Any
    ) -> None:
        """Triton's compilation listener."""
        files = {name.rpartition(".")[2]: str(path) for name, path in metadata_group.items()}
        self._latest = {
            "ptx": files["ptx"],
            "cubin": files["cubin"],
            "num_warps": metadata["num_warps"],
            "num_stages": metadata["num_stages"],
            "shared": metadata["shared"],
        }


def changed(source: Any, arguments: Sequence[Argument]) -> Any:
    """The source object of a kernel with these arguments in place of its own.

    Those that are as they were keep what Triton has for them, which an Argument may not hold, such
    as a function.
    """
    signature, constants, attributes = (
        dict(given or {}) for given in (source.signature, source.constants, source.attrs)
    )
    places = [place for place, _, _ in leaves_of(signature)]
    for place, new, old in zip(places, arguments, arguments_of(source), strict=True):
        if _compiles_alike(new, old):
            continue
        name = list(signature)[place[0]]
        signature[name] = _with(signature[name], place[1:], new.type)
        constants.pop(place, None)
        attributes.pop(place, None)
        if new.type == "constexpr":
            constants[place] = resolved(new.value)
        if new.divisible_by_16:
            attributes[place] = [["tt.divisibility", 16]]
    return type(source)(source.fn, signature, constants, attributes)


def _with(type_: Any, within: Place, new: str) -> Any:
    """The type of a parameter with another one at a place in its tuples, if it has such."""
    if not within:
        return new
    at, *deeper = within
    inner = [_with(t, tuple(deeper), new) if n == at else t for n, t in enumerate(type_)]
    # A tuple whose elements have names is made of its elements, not of a list.
    return type(type_)(*inner) if hasattr(type_, "_fields") else type(type_)(inner)


def _compiles_alike(new: Argument, old: Argument) -> bool:
    """Whether two arguments are the same to the compiler, which sees the values of constexprs."""
    same = (new.type, new.divisible_by_16) == (old.type, old.divisible_by_16)
    return same and (new.type != "constexpr" or new.value == old.value)
