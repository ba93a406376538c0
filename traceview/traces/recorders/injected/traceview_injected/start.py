"""Install the hooks that the environment requests, independently of each other."""

from __future__ import annotations

import os

from . import notes

GATHER = "TRACEVIEW_GATHER"
SYNC_SITES = "TRACEVIEW_SYNC_SITES"
PYTHON_SAMPLES = "TRACEVIEW_PYTHON_SAMPLES"
ANNOTATE = "TRACEVIEW_ANNOTATE"
TORCH = "TRACEVIEW_TORCH"
STEPS = "TRACEVIEW_STEPS"
EVENTS = "TRACEVIEW_PYTHON_EVENTS"


def begin() -> None:
    """Install the hooks, before the program imports anything."""
    folder = os.environ.get(GATHER)
    if folder:
        notes.started(folder)
        with notes.noting_errors(folder, "recording kernels failed"):
            from . import triton_kernels

            triton_kernels.install(folder)
    profiled = os.environ.get(TORCH)
    if profiled:
        # First: marks and added ranges go where it records.
        with notes.noting_errors(profiled, "torch.profiler could not be started"):
            from . import torch_profile

            torch_profile.install(profiled)
    if os.environ.get(SYNC_SITES) == "1":
        with notes.noting_errors(folder, "marking sync sites failed"):
            from . import sync_hooks

            sync_hooks.install()
    steps = os.environ.get(STEPS)
    if steps:
        with notes.noting_errors(folder, "bounding the recording failed"):
            from .annotations import training_steps

            training_steps.capture(steps, folder)
    ranges = os.environ.get(ANNOTATE)
    if ranges:
        with notes.noting_errors(folder, "adding ranges failed"):
            from . import annotations

            annotations.install(ranges)
    samples = os.environ.get(PYTHON_SAMPLES)
    if samples:
        with notes.noting_errors(samples, "sampling Python stacks failed"):
            from . import python_sampler

            python_sampler.install(samples)
    events = os.environ.get(EVENTS)
    if events:
        with notes.noting_errors(events, "noting garbage collections failed"):
            from . import python_events

            python_events.install(events)
