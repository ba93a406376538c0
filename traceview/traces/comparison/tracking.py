"""The runs of a history in MLflow and Weights & Biases, through their own libraries."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from traceview.base.errors import InputError, ToolNotFoundError

if TYPE_CHECKING:
    from traceview.traces.comparison.history import History

_ID = "traceview.run"
"""The tag by which a run that is there already is found."""


class _Run(NamedTuple):
    """A row of a history: its numbers, its texts, and an id by name and time."""

    name: str
    begun: datetime
    figures: Mapping[str, int | float]
    texts: Mapping[str, str]
    id: str


def _runs(history: History) -> Iterator[_Run]:
    for row in history.runs.rows():
        known = {name: value for name, value in row.items() if value is not None}
        texts = {name: value for name, value in known.items() if isinstance(value, str)}
        figures = {name: value for name, value in known.items() if not isinstance(value, str)}
        name, recorded = texts.pop("run"), texts["recorded_utc"]
        key = hashlib.sha256(f"{name}\0{recorded}".encode()).hexdigest()[:16]
        yield _Run(name, datetime.fromisoformat(recorded).replace(tzinfo=UTC), figures, texts, key)


def to_mlflow(history: History, uri: str, experiment: str = "") -> int:
    """Log each run of a history to MLflow, and give the number of those that were not there.

    `uri` is a server or store, such as `http://localhost:5000`; the experiment has the name of the
    folder. Raises ToolNotFoundError without MLflow, and InputError where it refuses.
    """
    return _told("mlflow", partial(_to_mlflow, history, uri, experiment))


def _to_mlflow(history: History, uri: str, experiment: str, mlflow: Any) -> int:
    client = mlflow.MlflowClient(uri)
    name = experiment or _title(history)
    found = client.get_experiment_by_name(name)
    where = found.experiment_id if found else client.create_experiment(name)
    added = 0
    for run in _runs(history):
        if client.search_runs([where], f"tags.`{_ID}` = '{run.id}'", max_results=1):
            continue
        at_ms = int(run.begun.timestamp() * 1e3)
        tags = {_ID: run.id, "mlflow.note.content": run.texts.get("first_finding", "")}
        made = client.create_run(where, at_ms, tags, run.name).info.run_id
        for key, value in run.figures.items():
            client.log_metric(made, key, value, at_ms)
        for key, text in run.texts.items():
            client.log_param(made, key, text)
        client.set_terminated(made, end_time=at_ms)
        added += 1
    return added


def to_wandb(history: History, project: str = "") -> int:
    """Log each run of a history to Weights & Biases, again over the same run, and count them.

    `project` is that of Weights & Biases, by default the name of the folder. With
    WANDB_MODE=offline they are written to ./wandb, for `wandb sync`. Raises ToolNotFoundError
    without the library, and InputError where it refuses.
    """
    return _told("wandb", partial(_to_wandb, history, project))


def _to_wandb(history: History, project: str, wandb: Any) -> int:
    runs = [*_runs(history)]
    for run in runs:
        quiet = wandb.Settings(console="off", silent=True, x_disable_stats=True)
        made = wandb.init(
            project=project or _title(history), name=run.name, id=run.id, resume="allow",
            config=dict(run.texts), settings=quiet,
        )  # fmt: skip
        made.log(dict(run.figures))
        made.finish()
    return len(runs)


def _title(history: History) -> str:
    return Path(history.folder).resolve().name or "runs"


def _told(library: str, log: Callable[[Any], int]) -> int:
    try:
        module = import_module(library)
    except ImportError as error:
        raise ToolNotFoundError(
            f"{library} is not installed", "install it: pip install 'traceview[tracking]'"
        ) from error
    try:
        return log(module)
    except Exception as error:
        raise InputError(f"{library} refused the runs: {error}".rstrip()) from error
