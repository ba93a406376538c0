"""What the process of a Python target is asked to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from traceview.headless.signatures import notation
from traceview.headless.signatures.notation import Value


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
    compile_torch: bool = False
    timeout_s: float | None = None

    @property
    def values(self) -> dict[str, Value]:
        """The constexprs as values."""
        return {name: notation.value_of(text) for name, text in self.constexprs.items()}
