"""Tables from S3 and exports to it, against moto's server: what a job reads there, and each fault as one error."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient
from moto.server import ThreadedMotoServer
from service_harness import settings_in

from preprocessing.artifact import read_manifest
from preprocessing.bundle import BUNDLE
from preprocessing.errors import InputError, NotNowError, UsageError
from preprocessing.ids import IdMap
from preprocessing.ingest import ingest
from preprocessing.stage import Emitter
from service.api.app import create_app
from trainer import export as exporting
from trainer.export import export

REGION = "eu-north-1"
AWAY = "endpoint_override=127.0.0.1:1&scheme=http"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[pa_fs.S3FileSystem]:
    """An empty bucket, which file systems find by the environment, as jobs do."""
    for name, value in (
        ("AWS_ENDPOINT_URL", endpoint),
        ("AWS_REGION", REGION),
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
    ):
        monkeypatch.setenv(name, value)
    files = pa_fs.S3FileSystem(endpoint_override=endpoint, region=REGION, allow_bucket_creation=True)
    files.create_dir("bucket")
    yield files
    _moto(endpoint, "reset-auth", "inf")
    _moto(endpoint, "reset")


@pytest.fixture
def denied(endpoint: str, s3: pa_fs.S3FileSystem) -> None:
    """From now on, keys that nobody made open nothing."""
    _moto(endpoint, "reset-auth", "0")


def _moto(endpoint: str, what: str, body: str = "") -> None:
    assert httpx2.post(f"{endpoint}/moto-api/{what}", content=body).status_code == 200


def tables(folder: Path) -> dict[str, Path]:
    rng = np.random.default_rng(4)
    nodes = pa.table({"id": np.arange(30), "x": rng.standard_normal(30).astype(np.float32)})
    edges = pa.table({"source": np.arange(30), "target": (np.arange(30) * 7 + 1) % 30})
    (folder / "edges").mkdir(parents=True)
    pq.write_table(nodes, folder / "nodes.parquet")
    for part in range(2):
        pq.write_table(edges[part * 15 : part * 15 + 15], folder / "edges" / f"part-{part}.parquet")
    return {path.relative_to(folder).as_posix(): path for path in folder.rglob("*.parquet")}


def ended(client: TestClient, graph: str) -> dict[str, Any]:
    job = client.post("/v1/jobs", json={"kind": "ingest", "graph": graph}).json()
    while job["status"] not in {"succeeded", "failed"}:
        time.sleep(0.1)
        job = client.get(f"/v1/jobs/{job['id']}").json()
    return dict(job)


def test_the_server_ingests_what_lies_in_s3(s3: pa_fs.S3FileSystem, tmp_path: Path) -> None:
    settings = settings_in(tmp_path, data_uris="s3://bucket/graphs")
    for name, path in tables(settings.data_roots[0]).items():
        with s3.open_output_stream(f"bucket/graphs/{name}") as file:
            file.write(path.read_bytes())
    sources = [{"nodes": f"{place}nodes.parquet", "edges": f"{place}edges"} for place in ("", "s3://bucket/graphs/")]
    with TestClient(create_app(settings)) as client:
        manifests = []
        for source in sources:
            answer = client.post("/v1/graphs", json={"source": {"kind": "tables", **source}})
            job = ended(client, answer.json()["id"])
            assert job["status"] == "succeeded", job["error"]
            manifests.append(read_manifest(Path(client.get(f"/v1/graphs/{job['graph']}").json()["bundle"]), BUNDLE))
        assert len({manifest["content_hash"] for manifest in manifests}) == 1
        absent = {"kind": "tables", "edges": "s3://bucket/graphs/none.parquet"}
        job = ended(client, client.post("/v1/graphs", json={"source": absent}).json()["id"])
        assert (job["status"], job["attempt"]) == ("failed", 1)
        assert job["error"]["code"] == "input_invalid"
        assert "there is no such file" in job["error"]["message"]


def read(uri: str, out: Path) -> None:
    ingest({"out": str(out), "settings": {"source": {"kind": "tables", "edges": uri}}}, Emitter("ingest"))


def test_what_cannot_be_read_is_one_error(s3: pa_fs.S3FileSystem, tmp_path: Path) -> None:
    for uri, kind, said in (
        ("s3://bucket/none.parquet", InputError, "there is no such file"),
        ("s3://nowhere/edges.parquet", InputError, "there is no such bucket"),
        (f"s3://bucket/edges.parquet?{AWAY}", NotNowError, "does not answer .*Could not connect"),
    ):
        with pytest.raises(kind, match=said) as raised:
            read(uri, tmp_path / "bundle")
        assert raised.value.where == uri
        assert raised.value.remedy
        assert not (tmp_path / "bundle").exists()


def test_what_may_not_be_read_is_one_error(denied: None, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"refuses .*(ACCESS_DENIED|403)"):
        read("s3://bucket/edges.parquet", tmp_path / "bundle")


@pytest.fixture
def exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], dict[str, Any]]:
    """Export a set of 40 nodes to a URI."""

    class Embeddings:
        ids = IdMap(np.arange(40))
        vectors = np.arange(320, dtype=np.float32).reshape(40, 8)

        def __init__(self, _path: Path) -> None: ...

        def tables(self) -> Iterator[pa.Table]:
            for start in range(0, 40, 15):
                rows = self.vectors[start : start + 15]
                vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), 8)
                yield pa.table({"id": np.arange(40)[start : start + 15], "vector": vectors})

    monkeypatch.setattr(exporting, "EmbeddingSet", Embeddings)
    return lambda out: dict(export({"embeddings": str(tmp_path), "out": out}, Emitter("export")))


def test_exports_go_to_s3(s3: pa_fs.S3FileSystem, exported: Callable[[str], dict[str, Any]]) -> None:
    for name in ("all.parquet", "all.csv"):
        uri = f"s3://bucket/exports/{name}"
        assert exported(uri) == {"out": uri, "nodes": 40, "dim": 8}
        with pytest.raises(UsageError, match="exists already"):
            exported(uri)
    table = pq.read_table("bucket/exports/all.parquet", filesystem=s3)
    assert table["id"].to_pylist() == list(range(40))
    assert np.array(table["vector"].to_pylist()).ravel().tolist() == list(range(320))
    with s3.open_input_stream("bucket/exports/all.csv") as file:
        header, *rows = csv.reader(io.StringIO(file.read().decode()))
    assert header == ["id", *(f"v{i}" for i in range(8))]
    assert [float(value) for row in rows for value in row[1:]] == list(range(320))


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("s3://bucket/all.xlsx", "Parquet or CSV"),
        ("s3://bucket/folder", "Parquet or CSV"),
        ("s3://nowhere/all.parquet", "cannot be written .*(NO_SUCH_BUCKET|bucket does not exist)"),
        ("gopher://old/all.parquet", "the URI cannot be used"),
    ],
)
def test_what_cannot_be_written_is_one_error(
    s3: pa_fs.S3FileSystem, exported: Callable[[str], dict[str, Any]], uri: str, said: str
) -> None:
    with pytest.raises((UsageError, InputError), match=said) as raised:
        exported(uri)
    assert raised.value.expected
    assert s3.get_file_info(pa_fs.FileSelector("bucket", recursive=True)) == []


def test_what_may_not_be_written_is_one_error(denied: None, exported: Callable[[str], dict[str, Any]]) -> None:
    with pytest.raises((UsageError, InputError), match=r"ACCESS_DENIED|403"):
        exported("s3://bucket/all.parquet")


@pytest.mark.parametrize("name", ["all.parquet", "all.csv"])
def test_an_export_that_fails_half_way_leaves_no_object(
    s3: pa_fs.S3FileSystem, exported: Callable[[str], dict[str, Any]], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Whatever ends it: closing the stream would show what there is of it."""

    def progress(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Emitter, "progress", progress)
    with pytest.raises(KeyboardInterrupt):
        exported(f"s3://bucket/{name}")
    assert s3.get_file_info(pa_fs.FileSelector("bucket", recursive=True)) == []
