"""Benchmark one GPU operation: the correctness and speed of each of its versions.

torch and triton are imported only by the functions that need them, when called.
"""

from traceview.bench.bandwidth import Bandwidth, bandwidth
from traceview.bench.comparison import BenchReport, VersionResult, measure
from traceview.bench.describe import Description, TensorFacts, describe
from traceview.bench.loading import load_operation
from traceview.bench.operation import Operation, Version
from traceview.bench.plan import BenchRequest
from traceview.bench.profiling import Profile, profile
from traceview.bench.program import ProgramSweep, sweep_program
from traceview.bench.timing.growth import Axis, Fit, Sweep, fit, sweep
from traceview.bench.timing.measurement import Timing, benchmark
from traceview.bench.tuning import (
    BlockSizes,
    Candidate,
    TuningCache,
    TuningResult,
    autotune,
    cache_key,
)

__all__ = [
    "Axis",
    "Bandwidth",
    "BenchReport",
    "BenchRequest",
    "BlockSizes",
    "Candidate",
    "Description",
    "Fit",
    "Operation",
    "Profile",
    "ProgramSweep",
    "Sweep",
    "TensorFacts",
    "Timing",
    "TuningCache",
    "TuningResult",
    "Version",
    "VersionResult",
    "autotune",
    "bandwidth",
    "benchmark",
    "cache_key",
    "describe",
    "fit",
    "load_operation",
    "measure",
    "profile",
    "sweep",
    "sweep_program",
]
