"""Recordings of a program, or of a block of this one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from traceview.traces.recorders import Recording
    from traceview.traces.recorders.options import Backend


def record(
    *command: str,
    out: str | Path | None = None,
    backend: Backend = "auto",
    whole: bool = False,
    steps: tuple[int, int] | None = None,
    range_name: str | None = None,
    force: bool = False,
    trace: str = "cuda,nvtx,cublas",
    graph_trace: Literal["node", "graph"] = "node",
    backtrace: Literal["none", "sync", "all"] = "sync",
    gpu_metrics: bool = False,
    shapes: bool = False,
    kernels: bool = True,
    sync_sites: bool = True,
    python_samples: bool = True,
    native_samples: bool | None = None,
    source_lines: bool = True,
    annotate: Literal["auto", "modules", "off"] = "auto",
    nsys_options: Sequence[str] = (),
    keep_env: bool = False,
    keep_rep: bool = False,
    note: Callable[[str], None] = lambda _: None,
) -> Recording:
    """Run SCRIPT [ARGS...] under a profiler and write the trace.

    Arguments:
        command: the script and its arguments.
        out: the file to write; by default `<script stem>.sqlite` in the current folder.
        backend: "nsys", "torch" (torch.profiler inside the program), or "auto": nsys where it
            works.
        whole: record a long program to its end, however large the file gets.
        steps: (first, end): keep the steps from `first` on, up to but without `end`.
        range_name: keep the first NVTX range of this name.
        keep_env: leave the environment and home paths in the trace.
        keep_rep: also keep the .nsys-rep file.
        note: gets each message for the user, one line per call.

    The arguments from `trace` to `nsys_options` select what is recorded, as the options of
    `traceview record` do.
    Raises InputError, OutputExistsError, ToolNotFoundError or RecordingError.
    """
    from traceview.base.errors import InputError
    from traceview.traces import recorders

    if not command:
        raise InputError("nothing to record", "pass a script and its arguments")
    return recorders.record(
        command,
        None if out is None else Path(out),
        backend=backend,
        options=recorders.RecordOptions(
            whole=whole,
            steps=steps,
            range_name=range_name,
            trace=trace,
            graph_trace=graph_trace,
            backtrace=backtrace,
            gpu_metrics=gpu_metrics,
            shapes=shapes,
            kernels=kernels,
            sync_sites=sync_sites,
            python_samples=python_samples,
            native_samples=native_samples,
            source_lines=source_lines,
            annotate=annotate,
            nsys_options=nsys_options,
        ),
        force=force,
        keep_env=keep_env,
        keep_rep=keep_rep,
        note=note,
    )


def recording(
    out: str | Path,
    *,
    force: bool = False,
    shapes: bool = False,
    sync_sites: bool = True,
    python_samples: bool = True,
    source_lines: bool = True,
    annotate: Literal["auto", "modules", "off"] = "auto",
    keep_env: bool = False,
) -> AbstractContextManager[Path]:
    """Record a block of this program with torch.profiler: `with recording("out.sqlite"):`.

    The trace is written when the block ends, also if it raises, and `load` reads it. The options
    are those of `record`. One block is recorded at a time; a profiler that the block itself starts
    ends the recording there, with a warning. Raises InputError or OutputExistsError if `out` cannot
    be written, ToolNotFoundError without torch, and RecordingError if a profiler is running.
    """
    from traceview.traces.recorders.block import BlockOptions, record_block

    options = BlockOptions(shapes, sync_sites, python_samples, source_lines, annotate, keep_env)
    return record_block(Path(out), options, force=force)
