"""Inputs by path or URI: the same bundle from this machine's files, a file:// URI, and an S3 server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

import numpy as np
import pyarrow as pa
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from preprocessing.bundle import Bundle
from preprocessing.errors import InputError, NotNowError, RgrlError
from preprocessing.ingest import ingest
from preprocessing.input_files import InputFile
from preprocessing.settings import NpzSource, TableSource
from preprocessing.stage import Emitter


def run(out: Path, **source: Any) -> Bundle:
    ingest({"out": str(out), "settings": {"source": source}}, Emitter("ingest"))
    return Bundle(out)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Edges in two Parquet parts, nodes as CSV, and a graph as .npz, under ``data``."""
    folder = tmp_path / "data"
    (folder / "edges").mkdir(parents=True)
    for part, ends in (("part-2", [[1, 2], [2, 3]]), ("part-10", [[3, 9], [9, 1]])):
        table = pa.table({"source": [a for a, _ in ends], "target": [b for _, b in ends]})
        pq.write_table(table, folder / "edges" / f"{part}.parquet")
    (folder / "my nodes.csv").write_text("id,x\n1,0.5\n2,1.5\n3,2.5\n9,3.5\n")
    adjacency = sp.csr_array(np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]], dtype=np.float32))
    arrays = {f"adj_{name}": getattr(adjacency, name) for name in ("data", "indices", "indptr")}
    np.savez(folder / "graph.npz", **arrays, adj_shape=np.array(adjacency.shape))
    return folder


class _Bucket(BaseHTTPRequestHandler):
    """Enough of S3 to look at, list and read objects, the files of a folder."""

    folder: Path

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        url = urlsplit(self.path)
        key = unquote(url.path).removeprefix("/bucket").strip("/")
        if not key:
            return self._send(200, self._listing(parse_qs(url.query)), body=body)
        if not (self.folder / key).is_file():
            return self._send(404, b"<Error><Code>NoSuchKey</Code></Error>", body=body)
        content = (self.folder / key).read_bytes()
        if "Range" in self.headers:
            first, last = self.headers["Range"].removeprefix("bytes=").split("-")
            return self._send(206, content[int(first) : int(last) + 1], body=body)
        return self._send(200, content, body=body)

    def _listing(self, query: dict[str, list[str]]) -> bytes:
        prefix = query.get("prefix", [""])[0]
        keys = [str(file.relative_to(self.folder)) for file in self.folder.rglob("*") if file.is_file()]
        keys = [key for key in keys if key.startswith(prefix)]
        entries = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{(self.folder / key).stat().st_size}</Size>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for key in keys
        )
        count = f"<KeyCount>{len(keys)}</KeyCount><IsTruncated>false</IsTruncated>"
        return f"<ListBucketResult>{count}{entries}</ListBucketResult>".encode()

    def _send(self, status: int, content: bytes, *, body: bool) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def bucket(data: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """URI of the folder ``data`` on an S3 server of this test, with a place for a path."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    handler = type("Bucket", (_Bucket,), {"folder": data})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"s3://bucket/{{}}?endpoint_override=127.0.0.1:{server.server_port}&scheme=http&region=eu-north-1"
        server.shutdown()
        thread.join()


def test_the_same_bundle_from_files_uris_and_s3(data: Path, bucket: str, tmp_path: Path) -> None:
    local = {"edges": str(data / "edges"), "nodes": str(data / "my nodes.csv")}
    uris = {name: "file://" + quote(path) for name, path in local.items()}
    s3 = {"edges": bucket.format("edges"), "nodes": bucket.format("my%20nodes.csv")}
    bundles = [
        run(tmp_path / f"bundle-{number}", kind="tables", **source) for number, source in enumerate((local, uris, s3))
    ]
    assert len({bundle.content_hash for bundle in bundles}) == 1
    assert bundles[0].topology.neighbors(0).tolist() == [1, 3]
    files = {
        run(tmp_path / f"npz-{number}", kind="npz", path=path).content_hash
        for number, path in enumerate((str(data / "graph.npz"), bucket.format("graph.npz")))
    }
    assert len(files) == 1


def test_faults_name_the_uri(data: Path, bucket: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file") as raised:
        run(tmp_path / "bundle", kind="tables", edges=bucket.format("absent.parquet"))
    assert raised.value.where == bucket.format("absent.parquet")
    (data / "edges" / "part-10.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match="no Parquet") as raised:
        run(tmp_path / "bundle", kind="tables", edges=bucket.format("edges"))
    assert raised.value.where == bucket.format("edges/part-10.parquet")
    with pytest.raises(InputError, match="the URI cannot be used"):
        InputFile.at("gopher://old/edges.parquet")
    assert not (tmp_path / "bundle").exists()


def test_a_changed_object_is_another_input(data: Path, bucket: str) -> None:
    file = InputFile.at(bucket.format("my%20nodes.csv"))
    before = file.stamp()
    assert before[0] == bucket.format("my%20nodes.csv")
    assert before[1] == (data / "my nodes.csv").stat().st_size
    (data / "my nodes.csv").write_text("id\n1\n")
    assert file.stamp() != before


def test_any_file_system_serves(data: Path) -> None:
    """A tree below a folder, and Arrow's own in memory: nothing but its interface is asked."""
    memory, _ = pa_fs.FileSystem.from_uri("mock:///")
    memory.create_dir("tables")
    for name in ("b.csv", "a.csv"):
        with memory.open_output_stream(f"tables/{name}") as file:
            file.write(b"source,target\n1,2\n")
    memory.create_dir("tables/nested.csv")
    tree = pa_fs.SubTreeFileSystem(str(data), pa_fs.LocalFileSystem())
    assert sorted(file.name for file in InputFile(memory, "tables", "mock:///tables").files()) == [
        "mock:///tables/a.csv",
        "mock:///tables/b.csv",
    ]
    assert InputFile(tree, "edges", "edges").is_folder()
    with InputFile(tree, "graph.npz", "graph").existing().open() as file:
        assert file.read(2) == b"PK"


@pytest.mark.parametrize(
    ("said", "kind", "word"),
    [
        ("AWS Error NETWORK_CONNECTION during HeadObject operation: curlCode: 7", NotNowError, "does not answer"),
        ("AWS Error UNKNOWN (HTTP status 503) during HeadObject operation", NotNowError, "does not answer"),
        ("AWS Error SLOW_DOWN during GetObject operation", NotNowError, "does not answer"),
        ("google::cloud::Status(UNAVAILABLE: Retry policy exhausted)", NotNowError, "does not answer"),
        ("AWS Error ACCESS_DENIED during HeadObject operation", InputError, "refuses"),
        ("google::cloud::Status(PERMISSION_DENIED: no)", InputError, "refuses"),
    ],
)
def test_a_place_that_does_not_answer_is_another_fault_than_one_that_refuses(
    said: str, kind: type[RgrlError], word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: str) -> None:
        raise OSError(said)

    away = InputFile(SimpleNamespace(get_file_info=fails), "bucket/e.parquet", "s3://bucket/e.parquet")
    with pytest.raises(kind, match=f"the file system {word}") as raised:
        away.exists()
    assert raised.value.where == "s3://bucket/e.parquet"
    monkeypatch.setattr("preprocessing.input_files.pa_fs.FileSystem", SimpleNamespace(from_uri=fails))
    with pytest.raises(kind):
        InputFile.at("s3://bucket/e.parquet")


@pytest.mark.parametrize("uri", ["s3://key:secret@bucket/edges.parquet", "s3://key@bucket/edges.parquet"])
def test_a_uri_holds_no_credentials(uri: str) -> None:
    with pytest.raises(ValueError, match="must not hold credentials"):
        TableSource(edges=uri)
    with pytest.raises(ValueError, match="must not hold credentials"):
        NpzSource(path=uri)
    assert TableSource(edges="s3://bucket/a@b.parquet").edges == "s3://bucket/a@b.parquet"


@pytest.mark.parametrize(
    ("uri", "asked"),
    [
        ("gs://bucket/edges", "gs://bucket/edges?retry_limit_seconds=30"),
        ("gcs://b/e?anonymous=true", "gcs://b/e?anonymous=true&retry_limit_seconds=30"),
        ("gs://b/e?retry_limit_seconds=5", "gs://b/e?retry_limit_seconds=5"),
        ("s3://b/e?region=x", "s3://b/e?region=x"),
        ("file:///data/edges", "file:///data/edges"),
    ],
)
def test_a_place_that_does_not_answer_is_asked_for_half_a_minute_at_most(
    uri: str, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []
    opener = SimpleNamespace(from_uri=lambda text: (heard.append(text), (None, "e"))[1])
    monkeypatch.setattr("preprocessing.input_files.pa_fs", SimpleNamespace(FileSystem=opener))
    assert InputFile.at(uri).name == uri
    assert heard == [asked]
