"""Reports as an MLflow run: where ``MLFLOW_TRACKING_URI`` says, else in a database file beside the run's own files.

A file is SQLite, which ``mlflow-skinny`` reads and writes with sqlalchemy, alembic and cryptography: MLflow 3.17
refuses its older folders of text files.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trainer.copies import Report

__all__ = ["MlflowRun"]

EXPERIMENT = "rgrl"
PARAMS_A_CALL = 100
LONGEST_PARAM = 500


class MlflowRun:
    """A run of the experiment ``MLFLOW_EXPERIMENT_NAME``, else ``rgrl``, with ``settings`` as its parameters.

    A training run that is resumed goes on in the same one: it is found by the tag of its fingerprint and folder.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any], fingerprint: str) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        folder.mkdir(parents=True, exist_ok=True)
        self._metric = Metric
        uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{folder.absolute() / 'mlflow.db'}"
        self._client = client = MlflowClient(tracking_uri=uri)
        experiment = _experiment(client, os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT)
        place = f"{fingerprint}:{folder.absolute()}"
        earlier = client.search_runs([experiment], f"tags.rgrl_run = '{place}'", max_results=1)
        if earlier:
            self._id = earlier[0].info.run_id
            client.update_run(self._id, status="RUNNING")
            return
        self._id = client.create_run(experiment, tags={"rgrl_run": place}).info.run_id
        params = [Param(name, text[:LONGEST_PARAM]) for name, text in _flat(settings)]
        for first in range(0, len(params), PARAMS_A_CALL):
            client.log_batch(self._id, params=params[first : first + PARAMS_A_CALL])

    def write(self, report: Report) -> None:
        """All figures in one call."""
        step, moment, values = report
        finite = {name: value for name, value in values.items() if math.isfinite(value)}
        metrics = [self._metric(name, float(value), round(1000 * moment), step) for name, value in finite.items()]
        self._client.log_batch(self._id, metrics=metrics)

    def close(self, *, ended: bool) -> None:
        """``FINISHED``, or ``KILLED`` where the training run may still be resumed."""
        self._client.set_terminated(self._id, "FINISHED" if ended else "KILLED")


def _experiment(client: Any, name: str) -> str:
    found = client.get_experiment_by_name(name)
    return str(client.create_experiment(name) if found is None else found.experiment_id)


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", str(value)
