"""The event log of a worker process: kernels compiled, launches, notes, the final error.

One JSON object per line, written at once, so that nothing is lost if the process is killed. Each
has a `kind`: compiled, rejected, launched, note, left_out, counts, failed.
"""

from __future__ import annotations

import enum
import functools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO

from traceview.base.records import record
from traceview.kernels.headless.compile_error import in_words, source_of
from traceview.kernels.headless.signatures import Value
from traceview.kernels.ptx.model import Argument, How

_MOST_LETTERS = 160

STAGES = ("ttir", "ttgir", "llir")
"""Triton's intermediate code, by the suffixes of its files."""

Place = tuple[int, ...]
"""The position of an argument: the index of its parameter, then indices within tuples."""


@record
class CompiledVariant:
    """A compiled kernel: Triton's source object, and its metadata, which holds the options."""

    source: Any
    metadata: Mapping[str, Any]


@dataclass
class EventLog:
    """Writes compilations and launches while `how` is set, and none while it is None.

    `kernel` restricts it to one kernel. `variants` are those written so far, by id; `seen` are the
    names of all kernels compiled, written or not. `places` returns remarks on the origin of a
    generated kernel, by its name. `functions` are all jitted functions. `remedy` is the advice if
    no kernel is compiled at all. `configuration` is that of the autotuner which compiles now.
    `plain_global` is one that the kernel reads although Triton refuses it, with file and line.
    `assumed_sides` are the sides of tiles that are guessed, `guessed` what a call leaves open,
    `integers` what it passes.
    `describe` returns the first launch of a variant as data, for a reproducer.
    """

    stream: TextIO
    kernel: str | None = None
    how: How | None = None
    remarks: tuple[str, ...] = ()
    variants: dict[str, CompiledVariant] = field(default_factory=dict)
    launches: Counter[str] = field(default_factory=Counter)
    seen: set[str] = field(default_factory=set)
    places: Callable[[str], Sequence[str]] = lambda _: ()
    remedy: str = ""
    functions: list[Any] = field(default_factory=list)
    configuration: Mapping[str, Value] | None = None
    plain_global: tuple[str, str, int] | None = None
    assumed_sides: tuple[str, ...] = ()
    guessed: tuple[str, ...] = ()
    integers: Mapping[str, int] = field(default_factory=dict)
    describe: Callable[[CompiledVariant, Sequence[Any]], Mapping[str, Any] | None] = lambda *_: None

    def write(self, kind: str, **fields: Any) -> None:
        """Write one event."""
        self.stream.write(json.dumps({"kind": kind, **fields}) + "\n")
        self.stream.flush()

    def note(self, text: str) -> None:
        """Write a note for the report."""
        self.write("note", text=text)

    def compiled(
        self, *, src: Any, metadata: Mapping[str, Any], metadata_group: Mapping[str, str], **_: Any
    ) -> None:
        """Triton's compilation listener, called for every kernel compiled or found in the cache."""
        identity = str(metadata["hash"])
        if self.how is None or identity in self.variants:
            return
        self.seen.add(_function_name(src))
        if self.kernel not in (None, metadata["name"], _function_name(src)):
            return
        self.variants[identity] = CompiledVariant(src, metadata)
        files = {Path(path).suffix: str(path) for path in metadata_group.values()}
        self._write_kernel(
            "compiled",
            src,
            metadata,
            id=identity,
            name=metadata["name"],
            kernel=_function_name(src),
            dynamic_shared_bytes=metadata["shared"],
            ptx=files.get(".ptx"),
            cubin=files.get(".cubin"),
            stages={name: files[f".{name}"] for name in STAGES if f".{name}" in files},
            notes=(*self.remarks, *self.places(str(metadata["name"]))),
            plain_global=self.plain_global,
            assumed_sides=self.assumed_sides,
            guessed=self.guessed,
            integers=self.integers,
        )

    def rejected(self, src: Any, options: Mapping[str, Any], error: Exception) -> None:
        """Write that a kernel does not compile, with the reason on one line."""
        # Of a file of intermediate code there is but the path.
        name = Path(src).stem if isinstance(src, str) else _function_name(src)
        if self.how is not None and self.kernel in (None, name):
            reason = in_words(error, self.functions)
            self._write_kernel(
                "rejected", src, options, name=name, reason=reason, notes=self.remarks
            )

    def _write_kernel(self, kind: str, src: Any, options: Mapping[str, Any], **fields: Any) -> None:
        arguments = () if isinstance(src, str) else arguments_of(src)
        self.write(
            kind,
            how=self.how,
            arguments=[asdict(argument) for argument in arguments],
            num_warps=options.get("num_warps"),
            num_stages=options.get("num_stages"),
            source=source_of(getattr(src, "fn", None)),
            configuration=self.configuration,
            **fields,
        )

    def configuring(self, config: Any) -> None:
        """Note the configuration that an autotuner compiles from now on; None for none."""
        values = config.all_kwargs().items() if config is not None else None
        self.configuration = {name: plain(value) for name, value in values} if values else None

    def launched(
        self,
        src: Any,
        identity: str,
        grid: tuple[int, int, int],
        arguments: Sequence[Any],
        timed: bool,
    ) -> None:
        """Count a launch; write it at each power of two, to keep the log of a long loop short.

        A `timed` launch is part of a benchmark: its grid is logged, but it is not counted.
        """
        if identity not in self.variants:
            return
        self.launches[identity] += not timed
        count = self.launches[identity]
        if count & (count - 1) == 0:
            # The values of the run-time integer arguments, by name.
            named = ((name, _at(arguments, place)) for place, name, _ in leaves_of(src.signature))
            values = {name: value for name, value in named if type(value) is int}
            launch = self.describe(self.variants[identity], arguments) if count == 1 else None
            self.write(
                "launched",
                id=identity,
                count=count,
                grid=grid,
                values=values,
                timed=timed,
                launch=launch,
            )

    def sampler(self, most: int | None) -> Callable[[str, Sequence[Any]], list[Any]]:
        """A function that selects at most `most` configurations and notes how many it omits."""

        @functools.cache
        def note(kernel: str, some: int, count: int) -> None:
            text = f"{kernel}: {some} of {count} autotuner configurations are compiled"
            self.write("note", text=f"{text}; --all-configs compiles all")

        def some(kernel: str, configurations: Sequence[Any]) -> list[Any]:
            chosen = list(sampled_configurations(configurations, most))
            if 1 < len(chosen) < len(configurations):
                note(kernel, len(chosen), len(configurations))
            return chosen

        return some

    def finish(self, whole: bool) -> None:
        """Write the final launch counts; `whole` tells whether the script ran to its end."""
        self.write("counts", counts=dict(self.launches), whole=whole)


def sampled_configurations(configurations: Sequence[Any], most: int | None) -> Sequence[Any]:
    """At most `most` configurations: the first, the last, and some between at equal distances."""
    count = len(configurations)
    if most is None or count <= most:
        return configurations
    if most == 1:
        return configurations[:1]
    return [configurations[round(at * (count - 1) / (most - 1))] for at in range(most)]


def arguments_of(src: Any) -> tuple[Argument, ...]:
    """The arguments that Triton compiled a kernel for, with each element of a tuple."""
    constants = getattr(src, "constants", None) or {}
    attributes = getattr(src, "attrs", None) or {}
    parameters = getattr(getattr(src, "fn", None), "params", ())
    fixed = {p.name for p in parameters if p.do_not_specialize and not p.is_constexpr}
    return tuple(
        Argument(
            name,
            str(type_),
            any(k == "tt.divisibility" and n % 16 == 0 for k, n in attributes.get(path, ())),
            plain(constants.get(path)),
            name not in fixed,
        )
        for path, name, type_ in leaves_of(src.signature)
    )


def leaves_of(signature: Mapping[Any, Any]) -> Iterator[tuple[Place, str, Any]]:
    """Position, name and type of each argument; names are `x`, and `pair[0]` or `pair.key`.

    Each is one parameter of the compiled kernel, unless it is a constant.
    """
    for at, (name, type_) in enumerate(signature.items()):
        yield from _leaves((at,), str(name), type_)


def plain(value: Any) -> Value:
    """A constexpr as a JSON value: types as tl.float16, functions and members of enums by name."""
    import triton.language as tl

    value = getattr(value, "value", value) if isinstance(value, tl.constexpr) else value
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, tl.dtype):
        return _type_words().get(str(value), str(value))
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    text = str(getattr(value, "__name__", None) or repr(value))
    return text if len(text) <= _MOST_LETTERS else f"{text[: _MOST_LETTERS - 1]}…"


@functools.cache
def _type_words() -> dict[str, str]:
    import triton.language as tl

    named = ((name, getattr(tl, name)) for name in dir(tl) if not name.startswith("_"))
    return {str(value): f"tl.{name}" for name, value in named if isinstance(value, tl.dtype)}


def _function_name(src: Any) -> str:
    return str(getattr(getattr(src, "fn", None), "__name__", src.name))


def _leaves(place: Place, name: str, type_: Any) -> Iterator[tuple[Place, str, Any]]:
    if not isinstance(type_, (tuple, list)):
        yield place, name, type_
        return
    fields = getattr(type_, "_fields", None)
    for at, inner in enumerate(type_):
        called = f"{name}.{fields[at]}" if fields else f"{name}[{at}]"
        yield from _leaves((*place, at), called, inner)


def _at(arguments: Any, place: Place) -> Any:
    """The argument at a position; None if the launch passes fewer arguments."""
    for at in place:
        if not isinstance(arguments, (tuple, list)) or at >= len(arguments):
            return None
        arguments = arguments[at]
    return arguments
