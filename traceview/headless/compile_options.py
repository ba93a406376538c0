"""Options of compiling kernels, from the command line to the worker process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from traceview.headless.signatures.notation import Value, value_of
from traceview.records import record

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
