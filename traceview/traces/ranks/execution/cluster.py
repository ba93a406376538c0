"""Tasks on the workers of a Dask cluster, either a running one or a local one."""

from __future__ import annotations

import logging
import os
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from traceview.base.errors import InputError, ToolNotFoundError, TraceviewError
from traceview.base.memory import keep_freed_memory
from traceview.base.version import __version__
from traceview.traces.ranks.execution import task

LOCAL = "local"
_INSTALL = "install it with: pip install 'traceview[dask]'"
_CONNECT_S = "15s"
_LEFT = "its worker left the cluster while reading it, as when it is killed or lost"
_LEFT_REMEDY = "see the log of that worker; where memory ran out, give workers more"


class DaskCluster:
    """A client of a Dask scheduler. `note` receives failures that did not affect the answer."""

    def __init__(self, client: Any, *, is_local: bool, note: Callable[[str], None]) -> None:
        self._client = client
        self._is_local = is_local
        self._note = note

    def files(self, patterns: Sequence[str]) -> list[task.RankFile]:
        """The recordings of a job as the workers see them. Raises InputError if there are none."""
        if self._is_local:
            return task.rank_files(patterns)
        return task.files_on(self._client.run(task.recording_paths, list(patterns)), patterns)

    def check(self) -> None:
        """Raise TraceviewError if there are no workers, or they lack this traceview."""
        if not self._client.scheduler_info()["workers"]:
            raise TraceviewError(
                "the Dask cluster has no workers", "start some: dask worker ADDRESS"
            )
        try:
            versions = set(self._client.run(installed_version).values())
        except ModuleNotFoundError as error:
            versions = {f"none ({error})"}
        if versions != {__version__}:
            theirs = ", ".join(sorted(versions))
            raise TraceviewError(
                f"the Dask workers have traceview {theirs}, and this is {__version__}",
                f"install traceview {__version__} where the workers run",
            )

    def outcomes(
        self, function: Callable[[task.Item], task.Value], items: Sequence[task.Item]
    ) -> Iterator[tuple[int, task.Value | task.TaskFailure]]:
        """The place and the value or failure of each item, in order of completion.

        A task whose worker is lost is run again: by Dask, up to its setting
        `distributed.scheduler.allowed-failures`; on a local cluster once, alone, after the others.
        """
        every = self._round(function, items, range(len(items)))
        if not self._is_local:
            return every

        def alone(places: Sequence[int]) -> Iterator[tuple[int, task.Value | task.TaskFailure]]:
            for place in places:
                yield from self._round(function, items, [place])

        return task.with_second_try(every, alone, items, self._note)

    def _round(
        self,
        function: Callable[[task.Item], task.Value],
        items: Sequence[task.Item],
        places: Sequence[int],
    ) -> Iterator[tuple[int, task.Value | task.TaskFailure]]:
        from distributed import KilledWorker, as_completed

        futures = {}
        for place in places:
            item = items[place]
            workers = list(item.workers) if isinstance(item, task.RankFile) else []
            future = self._client.submit(
                task.attempt, function, item, pure=False, workers=workers or None
            )
            futures[future] = place
        try:
            for future in as_completed([*futures]):
                try:
                    outcome = future.result()
                except KilledWorker:
                    outcome = task.TaskFailure(_LEFT, _LEFT_REMEDY, crashed=True)
                yield futures[future], outcome
        finally:
            self._tell_lost({future.key: items[place] for future, place in futures.items()})
            self._client.cancel([*futures], force=True)

    def _tell_lost(self, items: Mapping[str, object]) -> None:
        """Note the items that were being read on workers that a non-local cluster has lost."""
        if self._is_local:
            return
        for _, event in self._client.get_events("all"):
            lost = [items[key] for key in event.get("processing-tasks", ()) if key in items]
            if event["action"] == "remove-worker" and lost:
                names = ", ".join(map(str, lost))
                self._note(f"Dask worker {event['worker']} was lost while it had {names} to read")


def installed_version() -> str:
    """The version of traceview on a worker."""
    return __version__


@contextmanager
def connected_client(
    scheduler: str, workers: int, note: Callable[[str], None]
) -> Iterator[DaskCluster]:
    """Connect to a scheduler: its address, the path of its scheduler file, `local` or `local:N`.

    A local cluster has N workers, or as many as `workers` says. Raises InputError for another N,
    ToolNotFoundError without Dask, and TraceviewError if there is no such scheduler.
    """
    try:
        import distributed
    except ImportError as error:
        raise ToolNotFoundError("--dask needs the package distributed", _INSTALL) from error
    with ExitStack() as stack:
        stack.enter_context(_silence())
        if is_local(scheduler):
            _, colon, number = scheduler.partition(":")
            if colon and not (number.isascii() and number.isdecimal() and int(number)):
                raise InputError(f"{scheduler} has no number of workers", "pass such as local:4")
            local = _local_cluster(distributed, int(number) if colon else workers)
            client = stack.enter_context(distributed.Client(stack.enter_context(local)))
            client.run(keep_freed_memory)
        else:
            client = stack.enter_context(_client(distributed, scheduler))
        cluster = DaskCluster(client, is_local=is_local(scheduler), note=note)
        cluster.check()
        yield cluster


def is_local(scheduler: str) -> bool:
    """Whether `scheduler` asks for a local cluster on this machine."""
    return scheduler.partition(":")[0] == LOCAL


def _client(distributed: Any, scheduler: str) -> Any:
    try:
        if Path(scheduler).is_file():
            return distributed.Client(scheduler_file=scheduler, timeout=_CONNECT_S)
        return distributed.Client(scheduler, timeout=_CONNECT_S)
    except (OSError, ValueError, TypeError) as error:
        raise TraceviewError(
            f"no Dask scheduler answers at {scheduler} ({error})",
            "pass its address, such as tcp://10.0.0.1:8786, the path of its scheduler file, or "
            "local",
        ) from error


@contextmanager
def _local_cluster(distributed: Any, workers: int) -> Iterator[Any]:
    """A cluster of single-threaded workers; they and their files are gone after the block."""
    import dask

    with tempfile.TemporaryDirectory(prefix="traceview-dask-") as folder, ExitStack() as stack:
        settings = {
            # A file whose worker dies is read again after the others, not beside them.
            "distributed.scheduler.allowed-failures": 0,
            "temporary-directory": folder,
        }
        stack.enter_context(dask.config.set(settings))
        stack.enter_context(_environment_kept())
        cluster = distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            # With a limit, Dask pauses a worker at its share of the memory, forever.
            memory_limit=None,
            dashboard_address="127.0.0.1:0",
            env={"TMPDIR": folder},
            silence_logs=logging.CRITICAL,
        )
        try:
            yield cluster
        finally:
            for nanny in cluster.workers.values():
                # Else the nanny would start another worker.
                nanny.close_gracefully()
                with suppress(ProcessLookupError, TypeError):
                    os.kill(nanny.pid, signal.SIGKILL)
            cluster.close()


@contextmanager
def _environment_kept() -> Iterator[None]:
    """Restore this process's environment after the block.

    Dask also sets its workers' variables, such as OMP_NUM_THREADS=1, in this process and leaves
    them: libraries imported later, and programs started later, would obey them.
    """
    before = dict(os.environ)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


@contextmanager
def _silence() -> Iterator[None]:
    """Keep Dask's log from stderr: what matters is in the report."""
    logger = logging.getLogger("distributed")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
