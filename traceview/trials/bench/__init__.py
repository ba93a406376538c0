"""Benchmark one GPU operation: the correctness and speed of each of its versions.

torch and triton are imported only by the functions that need them, when called.
"""

from traceview.trials.bench.comparison import (
    BenchReport,
    VersionResult,
    measure,
)
from traceview.trials.bench.growth import Axis, Fit, Sweep, fit
from traceview.trials.bench.measurement import Timing, benchmark
from traceview.trials.bench.operation import Operation, Version, load_operation
from traceview.trials.bench.plan import BenchRequest
from traceview.trials.bench.profiling import Profile, profile
from traceview.trials.bench.program import ProgramSweep, sweep_program

__all__ = [
    "Axis",
    "BenchReport",
    "BenchRequest",
    "Fit",
    "Operation",
    "Profile",
    "ProgramSweep",
    "Sweep",
    "Timing",
    "Version",
    "VersionResult",
    "benchmark",
    "fit",
    "load_operation",
    "measure",
    "profile",
    "sweep_program",
]
