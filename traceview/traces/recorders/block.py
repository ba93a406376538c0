"""Record a block of the running program with torch.profiler."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
import warnings
from _thread import start_new_thread
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Literal

from traceview.base.errors import RecordingError, ToolNotFoundError, TraceviewError
from traceview.base.outputs import check_trace_output
from traceview.base.records import record
from traceview.base.version import __version__
from traceview.traces.recorders import checks as surroundings
from traceview.traces.recorders import options, torch_recording
from traceview.traces.recorders.injected.traceview_injected import (
    notes,
    python_events,
    sync_call_sites,
    sync_hooks,
    triton_kernels,
)
from traceview.traces.recorders.injected.traceview_injected.annotations import install as add_ranges
from traceview.traces.recorders.injected.traceview_injected.python_sampler import Sampler
from traceview.traces.recorders.injected.traceview_injected.torch_profile import nvtx_calls, session
from traceview.traces.recorders.job import GATHERED, rank_facts, rank_output, work_folder
from traceview.traces.trace.nsys.ranges import NOTED
from traceview.traces.trace.rank_identity import RankIdentity


@record
class BlockOptions:
    """Options of recording a block: see RecordOptions."""

    shapes: bool = False
    sync_sites: bool = True
    python_samples: bool = True
    source_lines: bool = True
    annotate: Literal["auto", "modules", "off"] = "auto"
    keep_env: bool = False


@contextmanager
def record_block(out: Path, options: BlockOptions, *, force: bool = False) -> Iterator[Path]:
    """Record the block and write it to `out`, even if the block raises.

    Yields the path written: where a launcher started several ranks, each writes its own file.

    Raises InputError or OutputExistsError if `out` cannot be written, ToolNotFoundError without
    torch, and RecordingError if another profiler is running or torch.profiler leaves no trace.
    """
    output = rank_output((str(_script()),), out, os.environ)
    out = output.path
    check_trace_output(out, force=force)
    try:
        import torch
    except ImportError as error:
        raise ToolNotFoundError(
            f"torch cannot be imported ({error})", "install torch, or use traceview record"
        ) from error
    if getattr(torch.autograd.profiler, "_is_profiler_enabled", False):
        raise RecordingError(
            "a profiler is running in this process already", "record one block at a time"
        )
    with work_folder(out) as folder:
        recorded = _Block(torch, folder / GATHERED, options, output.rank)
        try:
            yield out
        except BaseException:
            try:
                recorded.write(out)
            except TraceviewError as error:
                # Only a warning: the block has raised an error already.
                what = f"the block was not recorded: {error}"
                warnings.warn(what, RuntimeWarning, stacklevel=3)
            raise
        recorded.write(out)


class _Block:
    """A block that is being recorded."""

    def __init__(
        self, torch: ModuleType, gathered: Path, options: BlockOptions, rank: RankIdentity | None
    ) -> None:
        gathered.mkdir()
        self._rank = rank
        self._gathered, self._options = gathered, options
        self._started = datetime.now(UTC)
        self._session = session.TorchSession(torch, str(gathered), shapes=options.shapes)
        sync_call_sites.keeps_source = options.source_lines
        # The requested hooks, each once per process. Outside blocks they record nothing.
        _once("nvtx", lambda: nvtx_calls.wrap(torch, self._session.ranges))
        _once("kernels", lambda: _kernels.append(_KernelFolder()))
        if options.sync_sites:
            _once("sync", sync_hooks.install)
        python_events.install(str(gathered))
        if options.annotate != "off":
            _once("annotate", lambda: add_ranges(options.annotate))
        self._sampler = Sampler(str(gathered)) if options.python_samples else None
        self._session.start()
        if self._sampler:
            start_new_thread(self._sampler.run, ())

    def write(self, out: Path) -> None:
        """Stop and write the recording."""
        if self._sampler:
            self._sampler.stop()
        self._session.stop()
        remarks = options.gathered_notes(self._gathered)
        if not (self._gathered / session.TRACE).is_file():
            reason = remarks[0] if remarks else "torch.profiler left no trace"
            raise RecordingError(f"nothing was recorded: {reason}", "record the whole program")
        for line in remarks:
            warnings.warn(line, RuntimeWarning, stacklevel=4)
        if _kernels:
            _kernels[0].copy_to(self._gathered)
        torch_recording.write_recording(
            self._gathered,
            out,
            self._facts(),
            folders=(Path.cwd(), _script().parent),
            source_lines=self._options.source_lines,
            keep_env=self._options.keep_env,
        )

    def _facts(self) -> dict[str, str]:
        marked = {NOTED: "marked"} if self._options.sync_sites else {}
        return {
            **surroundings.describe(Path(sys.executable), _script()),
            # nvidia-smi also lists this process, in a container under another id.
            **surroundings.gpu_state("after", processes=False),
            "traceview_version": __version__,
            "backend": "torch",
            "command_line": shlex.join(sys.orig_argv),
            "started_utc": self._started.isoformat(timespec="seconds"),
            **rank_facts(self._rank, keep_host=self._options.keep_env),
            **marked,
        }


def _script() -> Path:
    """Path of the program; in a notebook, which has none, `notebook` in the working folder."""
    return Path(sys.argv[0] if sys.argv and sys.argv[0] else "notebook").absolute()


class _KernelFolder:
    """Kernels compiled since the first recorded block; their hooks stay installed after it."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="traceview-kernels-")
        triton_kernels.install(self._folder.name)

    def copy_to(self, gathered: Path) -> None:
        notes.started(str(gathered))
        for path in Path(self._folder.name).glob("*.json"):
            (gathered / path.name).write_bytes(path.read_bytes())


_kernels: list[_KernelFolder] = []
_hooked: set[str] = set()


def _once(name: str, install: Callable[[], object]) -> None:
    if name not in _hooked:
        _hooked.add(name)
        install()
