"""Memory of PyTorch's caching allocator: the `[memory]` events of profile_memory=True."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from traceview.tables import NULL, Texts, constant, object_array
from traceview.trace.kineto.columns import ColumnParts
from traceview.trace.kineto.events import NO_ARGUMENTS, Events
from traceview.trace.kineto.owners import KinetoOwners, SettledOwners, gpu_numbers
from traceview.trace.kineto.values import MOST_BYTES, TimedEvents, integers
from traceview.trace.staged import Staged, same_text

_CUDA_DEVICES = (1, 20)
"""c10::DeviceType of CUDA (which ROCm uses too) and of HIP."""


@dataclass
class MemoryEvents:
    """Allocations and releases on GPUs, gathered chunk by chunk."""

    parts: ColumnParts = field(default_factory=ColumnParts)
    seen: bool = False

    def add(self, events: Events, owners: KinetoOwners) -> None:
        chosen = [event for event in events if event.name == "[memory]" and event.args]
        self.seen |= bool(chosen)
        args = [event.args or NO_ARGUMENTS for event in chosen]
        on_gpu = np.isin(integers([one.device_type for one in args]), _CUDA_DEVICES)
        chosen = [event for event, gpu in zip(chosen, on_gpu.tolist(), strict=True) if gpu]
        if not chosen:
            return
        for event in chosen:
            event.dur = event.ts
        timed = TimedEvents.of(chosen)
        size = timed.integers("allocated_bytes")
        kept = (size != NULL) & (size != 0)
        self.parts.add(
            time_ns=timed.start_ns[kept],
            thread=owners.of(timed.events)[kept],
            device=gpu_numbers(timed.integers("device_id"))[kept],
            bytes=size[kept].clip(-MOST_BYTES, MOST_BYTES),
            total=timed.integers("total_allocated")[kept],
        )


def memory_events(events: MemoryEvents, settled: SettledOwners) -> Staged:
    """The memory_events table in order of time.

    Memory allocated before the recording, computed from the first event of each GPU, comes first.
    """
    parts = events.parts
    time = parts.take("time_ns")
    order = np.argsort(time, kind="stable")
    time = time[order]
    device, bytes_ = parts.take("device", np.int32)[order], parts.take("bytes")[order]
    process = settled.process[parts.take("thread", np.int32)][order]
    before = parts.take("total")[order] - bytes_
    first = np.unique(device, return_index=True)[1]
    first = first[(before[first] > 0) & (before[first] < 1 << 50)]
    row = np.concatenate((first, np.arange(len(time))))
    size = np.concatenate((before[first], bytes_))
    place = np.argsort(time[row], kind="stable")
    row, size = row[place], size[place]
    return {
        "time_ns": time[row],
        "process": process[row],
        "device": device[row],
        "bytes": np.abs(size),
        "operation": Texts((size < 0).astype(np.int32), object_array(["allocation", "release"])),
        "memory": same_text("device", len(row)),
        "correlation_id": constant(NULL, len(row), np.int64),
    }
