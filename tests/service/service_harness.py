"""Shared by the service's tests: fake stages, an app in this process, and servers as processes of their own."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import structlog
from fastapi.testclient import TestClient

from preprocessing.artifact import build
from preprocessing.ids import IdMap
from service.api.app import create_app
from service.api.serve import serve
from service.jobs.plan import StagePlan, embedding_id, new_graph_id, plan_job
from service.settings import ServiceSettings
from service.store import Job, Store

# Errors alone, and without the pretty tracebacks, which take seconds.
structlog.configure(
    processors=[structlog.processors.format_exc_info, structlog.processors.KeyValueRenderer()],
    wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
)

READY = {"status": "ok", "store": True, "scheduler": True, "cluster": None, "causes": []}
"""What the probe says while all is well."""
FAKE_STAGE = Path(__file__).with_name("service_fake_stage.py")


def fake_plan(job: Job, store: Store, settings: ServiceSettings) -> list[StagePlan]:
    """The stages that the job's label ``fake`` lists as JSON: ``[[name, {what to do}], …]``."""
    return [
        StagePlan(name, [sys.executable, str(FAKE_STAGE)], _fake_spec(name, what, job, store, settings))
        for name, what in json.loads(job.labels.get("fake", "[]"))
    ]


def _fake_spec(name: str, what: dict[str, Any], job: Job, store: Store, settings: ServiceSettings) -> dict[str, Any]:
    spec = {"name": name, "ledger": str(settings.home / "ledger"), **what}
    if what.get("make") == "bundle":
        manifest = {"counts": {"nodes": 4, "arcs": 6}, "features": None, "labels": None, "warnings": ["one"]}
        manifest |= {"direction": "reverse", "settings": {"source": {"kind": "x"}, "feature_dtype": "float16"}}
        appended = settings.graphs / new_graph_id(job.id) / "bundle"
        path = str(appended) if name == "append" else store.graph(job.graph).bundle
        spec["make"] = {"path": path, "kind": "graph_bundle", "manifest": manifest}
    if what.get("make") == "embeddings":
        path = settings.embeddings / embedding_id(job.id)
        spec["make"] = {"path": str(path), "kind": "embedding_set", "manifest": {"counts": {"nodes": 4, "dim": 2}}}
    if what.get("leave") == "bundle":
        path = settings.graphs / new_graph_id(job.id) / "bundle" if name == "append" else store.graph(job.graph).bundle
        spec["leave"] = {"path": str(path), "kind": "graph_bundle"}
    if what.get("leave") == "embeddings":
        spec["leave"] = {"path": str(settings.embeddings / embedding_id(job.id)), "kind": "embedding_set"}
    return spec


def settings_in(folder: Path, **changes: Any) -> ServiceSettings:
    values = {
        "home": folder / "home",
        "data_roots": [folder / "data"],
        "poll_s": 0.05,
        "cancel_grace_s": 0.5,
        "retry_after_s": 0.05,
        "max_running": 1,
    }
    (folder / "data").mkdir(exist_ok=True)
    return ServiceSettings(**(values | changes))


@contextmanager
def running_app(settings: ServiceSettings) -> Iterator[TestClient]:
    """An app in this process; jobs still unfinished are cancelled when it closes."""
    with TestClient(create_app(settings, plan=fake_plan), raise_server_exceptions=False) as client:
        yield client
        store: Store = client.app.state.store
        for job in store.active_jobs():
            store.request_cancel(job.id)
        wait_for(lambda: not store.active_jobs(), "for jobs to be cancelled")


@contextmanager
def no_room(disk: Path) -> Iterator[None]:
    """Inside, the file system at ``disk`` is full to its last block."""
    ballast = disk / "ballast"
    try:
        with ballast.open("wb", buffering=0) as file:
            for size in (1 << 20, 1 << 12):
                with suppress(OSError):
                    while file.write(bytes(size)):
                        pass
        yield
    finally:
        ballast.unlink()


def add_graph(client: Any, folder: Path, name: str = "graph") -> str:
    (folder / "data" / f"{name}.npz").touch()
    answer = client.post("/v1/graphs", json={"source": {"kind": "npz", "path": f"{name}.npz"}})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def submit(client: Any, graph: str, *stages: tuple[str, dict[str, Any]], **fields: Any) -> str:
    asked = {"cores": 1, "gpus": 0, "memory_bytes": 1, "disk_bytes": 0}
    body = {"kind": "pipeline", "graph": graph, "labels": {"fake": json.dumps(stages)}, "resources": asked} | fields
    answer = client.post("/v1/jobs", json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def job_of(client: Any, job: str) -> dict[str, Any]:
    answer = client.get(f"/v1/jobs/{job}")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def wait_for(true: Callable[[], Any], what: str = "", seconds: float = 60.0) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = true()
        if value:
            return value
        time.sleep(0.1)
    raise AssertionError(f"waited {seconds} s in vain {what}")


def wait_end(client: Any, job: str) -> dict[str, Any]:
    def ended() -> dict[str, Any] | None:
        found = job_of(client, job)
        return found if found["status"] in {"succeeded", "failed", "cancelled"} else None

    return dict(wait_for(ended, f"for the end of {job}"))


def statuses(job: dict[str, Any]) -> list[str]:
    """Statuses in order, each once where only the phase changed."""
    found = [step["status"] for step in job["transitions"]]
    return [status for i, status in enumerate(found) if i == 0 or found[i - 1] != status]


def completed(settings: ServiceSettings, *jobs: str) -> list[str]:
    """``job stage`` for every time that a stage of these jobs ran to its end, in order."""
    path = settings.home / "ledger"
    lines = path.read_text().splitlines() if path.exists() else []
    return [line for line in lines if line.split()[0] in jobs]


def processes_of(job: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("RGRL_JOB") == job and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def runner_pid(settings: ServiceSettings, job: str) -> int:
    store = Store(settings)
    try:
        return int(wait_for(lambda: store.job(job).pid, "for a runner"))
    finally:
        store.close()


class Server:
    """A server in a process of its own; it can be killed and started again on the same home and port.

    Its jobs are fake stages, unless it is ``real``.
    """

    def __init__(self, settings: ServiceSettings, *, real: bool = False) -> None:
        self._options = ["real"] if real else []
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.settings = settings.model_copy(update={"port": port})
        self.client = httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=20.0)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        text = self.settings.model_dump_json()
        self.log = (self.settings.home.parent / "server.log").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, __file__, text, *self._options], stdout=self.log, stderr=self.log
        )
        wait_for(self.answers, "for the server")

    def answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.settings.home.parent / "server.log").read_text()[-3000:]
        try:
            return bool(self.client.get("/livez").status_code == 200)
        except httpx2.TransportError:
            return False

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        self.process.wait(timeout=20)
        self.log.close()

    def __enter__(self) -> Server:
        self.settings.home.parent.mkdir(exist_ok=True)
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()
        self.client.close()
        for process in psutil.process_iter():
            try:
                if process.environ().get("RGRL_HOME") == str(self.settings.home):
                    process.kill()
            except psutil.Error:
                continue


def tiny_bundle(path: Path, *, ids: list[int] | list[str] = [30, 10, 20, 40], top_k: int | None = 3) -> Path:  # noqa: B006
    """A directed graph of four nodes, written without the ingest stage: first→second, first→third, second→third."""
    with build(path, "graph_bundle", "tiny") as made:
        root = made.path
        ordered = sorted(ids)
        whole = np.array(ordered) if isinstance(ordered[0], int) else pa.array(ordered, pa.large_string())
        IdMap(whole).save(root)
        for folder, indptr, indices in (
            (root / "topology", [0, 0, 1, 3, 3], [0, 0, 1]),
            (root / "topology" / "symmetric", [0, 2, 4, 6, 6], [1, 2, 0, 2, 0, 1]),
        ):
            folder.mkdir(parents=True)
            np.save(folder / "indptr.npy", np.array(indptr, dtype=np.int64))
            np.save(folder / "indices.npy", np.array(indices, dtype=np.int32))
        made.publish(
            {
                "counts": {"nodes": 4, "arcs": 3, "edges": 3, "isolated": 1, "duplicate_edges": 0, "self_loops": 0},
                "direction": "directed",
                "id_type": "int64" if isinstance(ordered[0], int) else "string",
                "features": {"layout": "none", "columns": 0, "dtype": "float32", "density": 0.0},
                "labels": None,
                "settings": {"feature_dtype": "float32"},
                "warnings": [],
            }
        )
    if top_k is not None:
        with build(path / "ppr", "ppr_rows", "tiny") as made:
            for part, rows in enumerate(([0, 1], [2, 3])):
                table = pa.table(
                    {
                        "neighbors": pa.array(
                            [[row, (row + 1) % 3, -1] if row < 3 else [3, -1, -1] for row in rows],
                            pa.list_(pa.int32(), 3),
                        ),
                        "scores": pa.array(
                            [[0.75, 0.25, 0.0] if row < 3 else [1.0, 0.0, 0.0] for row in rows],
                            pa.list_(pa.float32(), 3),
                        ),
                        "count": pa.array([2 if row < 3 else 1 for row in rows], pa.int32()),
                        "exact": pa.array([row != 1 for row in rows]),
                    }
                )
                pq.write_table(table, made.path / f"part-{part:05d}.parquet", row_group_size=1)
            made.publish({"settings": {"top_k": top_k}, "bundle": "tiny"})
    return path


if __name__ == "__main__":
    os.environ.pop("RGRL_HOME", None)
    serve(ServiceSettings.model_validate_json(sys.argv[1]), plan=plan_job if "real" in sys.argv else fake_plan)
