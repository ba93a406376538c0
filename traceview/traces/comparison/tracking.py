"""The runs of a history in MLflow and Weights & Biases, through their own libraries."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traceview.base.errors import InputError, ToolNotFoundError

if TYPE_CHECKING:
    from traceview.traces.comparison.history import History

_ID = "traceview.run"
"""The tag by which a run that is there already is found."""
_Run = tuple[str, str, dict[str, str], dict[str, int | float]]
"""An id by name and time, the name, the other texts of a row, and its numbers."""
_BOUNDS = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "4",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
}
"""MLflow's own settings, of which the environment may have others: a server that does not answer
takes 10 s (two requests and a pause), where MLflow by itself tries for over ten minutes."""


def to_mlflow(history: History, uri: str) -> int:
    """Log each run to the MLflow server or store at `uri`, and count those that were not there.

    The experiment has the name of the folder. Raises ToolNotFoundError without MLflow, and
    InputError if the URI is empty, or MLflow refuses or does not answer within 10 s.
    """
    if not uri.strip():
        raise InputError("the URI of MLflow is empty", "name a server or a store")
    added = {name: value for name, value in _BOUNDS.items() if name not in os.environ}
    os.environ.update(added)
    try:
        return _logged("mlflow", history, lambda mlflow, *run: _to_mlflow(mlflow, uri, *run))
    finally:
        for name in added:
            del os.environ[name]


def to_wandb(history: History, project: str = "") -> int:
    """Log each run to a project of Weights & Biases, by default named as the folder; count them.

    A run that is there is resumed. Raises ToolNotFoundError without the library, and InputError
    if it refuses.
    """
    return _logged(
        "wandb", history, lambda wandb, name, run: _to_wandb(wandb, project or name, run)
    )


def _to_mlflow(mlflow: Any, uri: str, experiment: str, run: _Run) -> bool:
    key, name, texts, figures = run
    client = mlflow.MlflowClient(uri)
    found = client.get_experiment_by_name(experiment)
    where = found.experiment_id if found else client.create_experiment(experiment)
    if client.search_runs([where], f"tags.`{_ID}` = '{key}'", max_results=1):
        return False
    at_ms = int(datetime.fromisoformat(texts["recorded_utc"]).replace(tzinfo=UTC).timestamp() * 1e3)
    tags = {"mlflow.note.content": texts.get("first_finding", "")}
    made = client.create_run(where, at_ms, tags, name).info.run_id
    try:
        for figure, value in figures.items():
            client.log_metric(made, figure, value, at_ms)
        for column, text in texts.items():
            client.log_param(made, column, text)
        # Last, as a run that has it is not logged again.
        client.set_tag(made, _ID, key)
    except BaseException:
        client.set_terminated(made, "FAILED")
        raise
    client.set_terminated(made, end_time=at_ms)
    return True


def _to_wandb(wandb: Any, project: str, run: _Run) -> bool:
    key, name, texts, figures = run
    quiet = wandb.Settings(console="off", silent=True, x_disable_stats=True)
    settings = {"project": project, "name": name, "config": texts, "settings": quiet}
    with wandb.init(id=key, resume="allow", **settings) as made:
        made.log(figures)
    return True


def _logged(library: str, history: History, log: Callable[[Any, str, _Run], bool]) -> int:
    try:
        module = import_module(library)
    except ImportError as error:
        remedy = "install it: pip install 'traceview[tracking]'"
        raise ToolNotFoundError(f"{library} is not installed", remedy) from error
    title = Path(history.folder).resolve().name or "runs"
    try:
        return sum(log(module, title, run) for run in _runs(history))
    except Exception as error:
        raise InputError(f"{library} refused the runs: {error}".rstrip()) from error


def _runs(history: History) -> Iterator[_Run]:
    for row in history.runs.rows():
        texts = {name: value for name, value in row.items() if isinstance(value, str)}
        numbers = {name: v for name, v in row.items() if isinstance(v, (int, float))}
        name = texts.pop("run")
        key = hashlib.sha256(f"{name}\0{texts['recorded_utc']}".encode()).hexdigest()[:16]
        yield key, name, texts, numbers
