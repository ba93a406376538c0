"""What a worker process is asked: compile options, changes to a kernel, the script to run."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import asdict, field
from typing import Literal

from traceview.base.records import record
from traceview.kernels.headless.signatures import Value, value_of

MOST_CONFIGS = 4
"""How many configurations of an autotuned kernel are compiled unless all are asked for."""
BUDGET_S = 20.0
"""Time limit of one invocation unless another is asked for."""
_OF_SOURCES = {
    "signature": "--signature",
    "constexprs": "--constexpr",
    "num_stages": "--num-stages",
    "first_config": "--first-config",
    "all_configs": "--all-configs",
    "guess": "--guess",
    "emulate": "--emulate",
    "compile_torch": "--compile",
    "timeout_s": "--timeout",
    "budget_s": "--budget",
    "arguments": "arguments after --",
}
"""Options that only Triton sources take, as written on the command line."""


@record
class CompileOptions:
    """The kernels of a target to compile, and options; None leaves an option to the target.

    `kernel` selects one kernel by name. `arch` is such as "sm_90"; Python and CUDA C++ targets
    default to it. `signature` declares argument types in Triton's notation. `constexprs` maps names
    to values as written on the command line; like `num_warps` and `num_stages` they also replace
    what a script passes. Of an autotuned kernel a few configurations are compiled, or all with
    `all_configs`, or one with `first_config`. `guess` continues if a script fails before it
    launches a kernel. `emulate` runs kernels in Triton's interpreter, so that tensors get their
    values. `compile_torch` compiles what torch.compile generates. A script gets `arguments`, and is
    interrupted after `timeout_s`. All trials (guessed arguments, recompilations, comparisons of
    results) end shortly before `budget_s` is over.
    """

    kernel: str | None = None
    arch: str | None = None
    signature: str | None = None
    constexprs: Mapping[str, str] = field(default_factory=dict)
    num_warps: int | None = None
    num_stages: int | None = None
    first_config: bool = False
    all_configs: bool = False
    guess: bool = False
    emulate: bool = False
    compile_torch: bool = False
    timeout_s: float | None = None
    budget_s: float | None = None
    arguments: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # A string is one argument, not its letters; JSON has lists for tuples.
        arguments = (self.arguments,) if isinstance(self.arguments, str) else tuple(self.arguments)
        object.__setattr__(self, "arguments", arguments)

    @property
    def of_sources(self) -> list[str]:
        """The options that are set and that only Triton sources take."""
        set_ = {name for name, value in vars(self).items() if value not in (None, False, {}, ())}
        return [option for name, option in _OF_SOURCES.items() if name in set_]

    @property
    def most_configs(self) -> int | None:
        """The most configurations of an autotuned kernel to compile; None for all."""
        if self.first_config:
            return 1
        return None if self.all_configs else MOST_CONFIGS

    @property
    def trials_s(self) -> float:
        """Seconds for the script and all trials; BUDGET_S unless another limit is asked for."""
        return BUDGET_S if self.budget_s is None else self.budget_s

    @property
    def script_s(self) -> float:
        """Seconds after which the script is interrupted: half the time unless asked for.

        Without `timeout_s` it goes on until its first kernel is compiled.
        """
        return self.trials_s / 2 if self.timeout_s is None else self.timeout_s

    @property
    def constexpr_values(self) -> dict[str, Value]:
        """The constexprs as Python values."""
        return {name: value_of(text) for name, text in self.constexprs.items()}

    @property
    def launch_options(self) -> dict[str, int]:
        """num_warps and num_stages, as far as they are set."""
        options = {"num_warps": self.num_warps, "num_stages": self.num_stages}
        return {name: value for name, value in options.items() if value is not None}


# Whether a kernel computes the same results with other constexprs.


@record
class Equivalence:
    """Whether results stay the same with a change, and how that is known or why it is not.

    `grid` is the grid that the changed launch needs, if the program passes a fixed one.
    """

    verdict: Literal["same", "differs", "unknown"]
    detail: str
    grid: tuple[int, int, int] | None = None


@record
class Change:
    """A change that a recompilation makes; everything else stays as it was.

    `divisible` names arguments to assume divisible by 16. `constexprs` turns arguments into
    compile-time constants. `max_registers` limits registers per thread (maxnreg). `resizes` says
    that the constexprs get other values, which may change what is computed.
    """

    divisible: tuple[str, ...] = ()
    constexprs: tuple[tuple[str, int], ...] = ()
    num_warps: int | None = None
    num_stages: int | None = None
    max_registers: int | None = None
    resizes: bool = False

    @property
    def tunes(self) -> bool:
        """Whether it changes the kernel, and not only what the compiler knows of its arguments."""
        return bool(self.constexprs or self.num_warps or self.num_stages or self.max_registers)

    @property
    def description(self) -> str:
        """The change as text, such as `n divisible by 16, num_warps=1`."""
        parts = [f"{' and '.join(self.divisible)} divisible by 16"] if self.divisible else []
        parts += [f"{name}={value}" for name, value in self.constexprs]
        parts += [f"num_warps={self.num_warps}"] if self.num_warps else []
        parts += [f"num_stages={self.num_stages}"] if self.num_stages else []
        parts += [f"maxnreg={self.max_registers}"] if self.max_registers else []
        return ", ".join(parts)


# The time limit that all trials of one invocation share.


@record
class Deadline:
    """A moment on the monotonic clock in seconds, which all processes of a machine share."""

    at_s: float = math.inf

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """The moment `seconds` from now."""
        return cls(time.monotonic() + seconds)

    @property
    def left_s(self) -> float:
        """Seconds until then; 0 once it has passed."""
        return max(0.0, self.at_s - time.monotonic())

    @property
    def passed(self) -> bool:
        """Whether it has passed, so that no more work is to begin."""
        return self.left_s <= 0.0

    def shared(self, among: int) -> Deadline:
        """The end of the first of `among` equal parts of the time left."""
        return Deadline.after(self.left_s / max(among, 1)) if math.isfinite(self.at_s) else self

    def no_sooner_than(self, seconds: float) -> Deadline:
        """This moment, or `seconds` from now if that is later."""
        return Deadline(max(self.at_s, time.monotonic() + seconds))


@record
class Request:
    """A script or module to run, and how to compile its kernels.

    One of `file`, `module` and `jobs`, a list of kernels to compile (see compile_jobs), is set.
    `capability` is the compute capability of the fake GPU, such as "9.0". `triton` is the folder of
    another Triton than the installed one. With `skips_failures` the script goes on after a launch
    whose kernel does not compile, and with `is_quiet` its output is dropped. `began_s` is when the
    time for the answer began, on the monotonic clock.
    """

    file: str | None
    module: str | None
    capability: str
    options: CompileOptions
    triton: str | None = None
    skips_failures: bool = False
    jobs: str | None = None
    is_quiet: bool = False
    began_s: float = field(default_factory=time.monotonic)

    def to_json(self) -> str:
        """The request as one JSON object."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Request:
        """The request that `to_json` wrote."""
        fields = json.loads(text)
        return cls(**{**fields, "options": CompileOptions(**fields["options"])})
