"""A trace in memory: typed tables as recorded, and a cache of facts computed from them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from importlib import import_module
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar, cast

from traceview.base import display
from traceview.base.errors import MissingTableError
from traceview.base.records import record
from traceview.base.tables import JoinedTable, Table
from traceview.traces.trace.rank_identity import RankIdentity
from traceview.traces.trace.schema import OWN_TORCH_REMEDIES, TABLES, TORCH_PROFILER, TORCH_REMEDIES
from traceview.traces.trace.staged import ImpossibleRows

if TYPE_CHECKING:
    import duckdb

Value = TypeVar("Value")


@dataclass(frozen=True)
class Selection:
    """The selected range instances: globs over range names and paths.

    Without `include` everything is in, except what `exclude` names.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.include or self.exclude)


class _Cache:
    """Values by name, each computed once even under concurrent access.

    They depend on each other without cycles, so two threads never wait for each other.
    """

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._locks: dict[str, RLock] = {}

    def get(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self._values:
            with self._locks.setdefault(name, RLock()):
                if name not in self._values:
                    self._values[name] = make()
        return self._values[name]


class Facts:
    """The facts of a trace. Those that read no ranges are apart: traces can share them."""

    def __init__(self, without_ranges: _Cache | None = None) -> None:
        self.of_ranges = _Cache()
        self.without_ranges = without_ranges or _Cache()

    def for_other_ranges(self) -> Facts:
        """Facts that share those without ranges, even the ones that are not computed yet."""
        return Facts(self.without_ranges)


def _recorded(name: str) -> cached_property[Table]:
    return cached_property(lambda trace: cast(Trace, trace).table(name))


@dataclass(frozen=True, repr=False)
class Trace(display.Drawn):
    """One recording.

    A table that was recorded and saw nothing is empty; one that was never recorded is absent.
    The two are different answers. `devices`, `processes` and `threads` are always there.

    `run` is what `traceview record` stored about the run (table TRACEVIEW_RUN), and the rank if
    another recorder stored it; `capture` has the options of the recorder by its own names. Either
    is empty where the trace has none.

    For a `strict` trace nothing is inferred: work of a thread without ranges is in no range.
    `impossible` counts the rows that cannot be true, which no table has.
    `peaks` are figures of the GPU that the user gave (see hardware.FIGURES), by name. `absent`
    names tables that were not recorded, though inference has filled them since; `unread` maps
    tables that were recorded in a form that cannot be read to the reason.
    """

    path: str
    recorder: str
    recorder_version: str | None
    export_schema_version: str | None
    tables: Mapping[str, Table]
    run: Mapping[str, str] = field(default_factory=dict)
    capture: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    impossible: tuple[ImpossibleRows, ...] = ()
    selection: Selection = Selection()
    strict: bool = False
    peaks: Mapping[str, float] = field(default_factory=dict)
    absent: frozenset[str] = frozenset()
    unread: Mapping[str, str] = field(default_factory=dict)
    _facts: Facts = field(default_factory=Facts, repr=False, compare=False)

    def table(self, name: str) -> Table:
        """The table of that name. Raises MissingTableError if it was not recorded."""
        if name not in self.tables:
            raise MissingTableError(name, self.how_to_record(name))
        return self.tables[name]

    def how_to_record(self, name: str) -> str:
        """How to record the table of that name with this recorder, else with another one."""
        if name == "kernel_code" and self.run.get("gpu_vendor") == "AMD":
            return "an NVIDIA GPU: the code that is read is PTX and SASS"
        if self.recorder == TORCH_PROFILER and self.run.get("backend") == "torch":
            return OWN_TORCH_REMEDIES.get(name, TABLES[name].how_to_record)
        if self.recorder == TORCH_PROFILER:
            return TORCH_REMEDIES.get(name, TABLES[name].how_to_record)
        return TABLES[name].how_to_record

    def recorded(self, name: str) -> Table:
        """The table of that name; empty if it was not recorded."""
        if name in self.tables:
            return self.tables[name]
        return Table.empty(TABLES[name].columns)

    def but(self, **changes: Any) -> Trace:
        """The same recording with other fields, such as `selection`, `strict` or `peaks`."""
        return replace(self, **changes, _facts=Facts())

    def with_ranges(self, ranges: Table) -> Trace:
        """The same trace with other ranges."""
        absent = self.absent if "ranges" in self.tables else self.absent | {"ranges"}
        tables = {**self.tables, "ranges": ranges}
        return replace(self, tables=tables, absent=absent, _facts=self._facts.for_other_ranges())

    @property
    def rank(self) -> RankIdentity | None:
        """The rank of the recorded process in a distributed run; None if single or unknown."""
        recorded_rank = RankIdentity.of_run(self.run)
        return recorded_rank or RankIdentity.of_communicators(self.recorded("communicators"))

    @cached_property
    def kernels(self) -> Table:
        """The kernels: `api.joined_kernels.COLUMNS` before the recorded columns.

        Raises MissingTableError if kernels were not recorded.
        """
        recorded, joined = self.table("kernels"), import_module("traceview.api.joined_kernels")
        return JoinedTable(recorded, joined.COLUMNS, lambda: joined.columns_of(self))

    def sql(self, query: str) -> duckdb.DuckDBPyRelation:
        """The rows that an SQL query selects from the tables, by DuckDB, which reads them in place.

        `trace.sql("SELECT label, sum(duration_ns) FROM kernels GROUP BY 1 ORDER BY 2 DESC")` is a
        relation: it prints as a table, and has `.df()`, `.pl()` and `.arrow()`. A query sees the
        tables alone, no file. Raises InputError if it is wrong, ToolNotFoundError without DuckDB.
        """
        return import_module("traceview.traces.trace.sql").select(self, query)

    # The tables that most code reads; each raises MissingTableError if it was not recorded.
    copies = _recorded("copies")
    sets = _recorded("sets")
    graph_launches = _recorded("graph_launches")
    synchronizations = _recorded("synchronizations")
    memory_events = _recorded("memory_events")
    overheads = _recorded("overheads")
    diagnostics = _recorded("diagnostics")
    kernel_code = _recorded("kernel_code")
    api_calls = _recorded("api_calls")
    ranges = _recorded("ranges")
    call_sites = _recorded("call_sites")
    callchains = _recorded("callchains")
    devices = _recorded("devices")
    processes = _recorded("processes")
    threads = _recorded("threads")


Fact = Callable[[Trace], Value]


def fact(function: Fact[Value]) -> Fact[Value]:
    """Decorate a function of a trace: its result is computed once and cached in the trace."""
    return _cached(function, lambda facts: facts.of_ranges)


def fact_without_ranges(function: Fact[Value]) -> Fact[Value]:
    """As `fact`, for a function that reads no ranges: traces that differ in these share it."""
    return _cached(function, lambda facts: facts.without_ranges)


def _cached(function: Fact[Value], cache_of: Callable[[Facts], _Cache]) -> Fact[Value]:
    key = f"{function.__module__}.{function.__qualname__}"

    @wraps(function)
    def once(trace: Trace) -> Value:
        return cast(Value, cache_of(trace._facts).get(key, lambda: function(trace)))

    return once


_COMMAND = "nsys_command"
"""Key of the command line in TRACEVIEW_RUN."""
_CHAINS = "PROCESS_0:CUDA_BACKTRACE_OPTIONS:COLLECT_"
_PYTHON_SAMPLES = "PYTHON_BACKTRACE_SAMPLING_OPTIONS:COLLECT_SAMPLES"


@record
class RecordingOptions:
    """The options of the recorder, False where unknown."""

    shapes: bool = False
    call_chains: bool = False
    python_samples: bool = False
    gpu_metrics: bool = False
    bounded: bool = False
    """Whether only a part of the program was recorded: nsys with --capture-range, or stopped."""


@fact
def recording_options(trace: Trace) -> RecordingOptions:
    """The options of the recording, from its metadata and from what it contains."""
    try:
        words = shlex.split(trace.run.get(_COMMAND, ""))
    except ValueError:
        words = []
    chains = (key for key in trace.capture if key.startswith(_CHAINS))
    sampled = trace.capture.get(_PYTHON_SAMPLES) == "true" or "--python-sampling=true" in words
    return RecordingOptions(
        shapes=any("shapes-nvtx" in word for word in words)
        or trace.run.get("record_shapes") == "1",
        call_chains=any(trace.capture[key] == "true" for key in chains),
        python_samples=sampled or bool(len(trace.recorded("python_samples"))),
        bounded="first_s" in trace.run
        or any(word.startswith("--capture-range=") for word in words),
        gpu_metrics=any("gpu-metrics" in word for word in words) or "gpu_metrics" in trace.tables,
    )


INDUCTOR = r"/(?P<hash>[a-z2-7]{2})/c(?P=hash)[a-z2-7]{49}\.py$"
"""What Inductor generates, by its hash: TORCHINDUCTOR_CACHE_DIR may be any folder."""
_LIBRARY = (
    r"(^|/)(site|dist)-packages/|/lib(64)?/python[\d.]+t?(\.zip)?/|/bin/[^/]*$"
    # The last of these is how networkx names what it generates.
    r"|^\(unnamed\)$|^<(frozen|eval_with_key|torch|__array|attrs|decorator|class )|/torchinductor_"
    rf"|{INDUCTOR}"
    # Wrappers that `traceview record` puts around the program's calls.
    r"|/traceview_injected/"
    # Source builds, and templates that PyTorch Geometric writes to the temporary folder.
    r"|(^|/)torch/(nn|optim|autograd|utils|cuda|_\w+)/|/torch_geometric\.[\w.]+\.py$"
)


def is_library(file: str) -> bool:
    """Whether a file, as Python names it, is outside the user's program, or has no name.

    nsys writes `[Unknown]` for a file whose name it lost.
    """
    return file.strip() in ("", "[Unknown]") or bool(re.search(_LIBRARY, file))
