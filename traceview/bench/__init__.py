"""Measure one operation of a GPU: how long each way to compute it takes, and how right it is.

torch and triton are imported by what needs them, when it is called.
"""

from traceview.bench.bandwidth import Bandwidth, bandwidth
from traceview.bench.comparison import BenchReport, Row, measure
from traceview.bench.describe import Description, TensorFacts, describe
from traceview.bench.loading import load_operation
from traceview.bench.operation import Operation, Version
from traceview.bench.plan import Asked
from traceview.bench.profiling import Profile, profile
from traceview.bench.program import ProgramSweep, sweep_program
from traceview.bench.timing.growth import Fit, fit
from traceview.bench.timing.measurement import Timing, benchmark
from traceview.bench.timing.sweep import Axis, Sweep, sweep
from traceview.bench.tuning.autotune import Tried, Tuned, autotune
from traceview.bench.tuning.block_sizes import BlockSizes
from traceview.bench.tuning.cache import Saved, key_of

__all__ = [
    "Asked",
    "Axis",
    "Bandwidth",
    "BenchReport",
    "BlockSizes",
    "Description",
    "Fit",
    "Operation",
    "Profile",
    "ProgramSweep",
    "Row",
    "Saved",
    "Sweep",
    "TensorFacts",
    "Timing",
    "Tried",
    "Tuned",
    "Version",
    "autotune",
    "bandwidth",
    "benchmark",
    "describe",
    "fit",
    "key_of",
    "load_operation",
    "measure",
    "profile",
    "sweep",
    "sweep_program",
]
