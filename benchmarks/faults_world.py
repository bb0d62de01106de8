"""What faults.py works on: a home on a small disk of its own, two embedding sets, real tables, and the server."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import numpy as np
import pyarrow as pa
from faults_books import Truth

from preprocessing.artifact import build, read_manifest
from preprocessing.bundle import BUNDLE
from preprocessing.ids import IdMap
from preprocessing.stage import Emitter
from service.identifiers import new_id
from service.jobs.processes import job_processes
from service.search.embedding_set import EMBEDDING_SET
from service.search.index_settings import IndexKind, IndexSettings, ProjectionSettings
from service.search.indexing import build_index
from service.settings import ServiceSettings
from service.store import Store
from service.store.embeddings import insert_embedding, point_alias, set_part

DISK_MIB, DIM = 96, 16
SERVER = Path(__file__).with_name("faults_server.py")


def make_set(folder: Path, store: Store, ref: str, nodes: int, kind: IndexKind) -> Truth:
    """A set and its ring of a graph under ``folder``, registered under the alias ``ref``; string ids where exact."""
    rng = np.random.default_rng(nodes)
    vectors = rng.standard_normal((nodes, DIM)).astype(np.float32)
    numbers = np.sort(rng.choice(10 * nodes, nodes, replace=False)).astype(np.int64)
    names = [f"n{number:07d}" for number in numbers] if kind == "exact" else [str(number) for number in numbers]
    ids = IdMap(pa.array(names, pa.large_string()) if kind == "exact" else numbers)
    with build(folder / "graph", BUNDLE, ref) as making:
        (making.path / "topology").mkdir()
        rows = np.sort((np.arange(nodes)[:, None] + [-2, -1, 1, 2]) % nodes, axis=1)
        np.save(making.path / "topology" / "indptr.npy", np.arange(0, rows.size + 1, 4, dtype=np.int64))
        np.save(making.path / "topology" / "indices.npy", rows.astype(np.int32).reshape(-1))
        ids.save(making.path)
        counts = {"nodes": nodes, "arcs": rows.size, "edges": rows.size // 2}
        making.publish({"counts": counts, "direction": "undirected", "features": {"layout": "none"}})
    manifest = read_manifest(folder / "graph", BUNDLE)
    with build(folder / "set", EMBEDDING_SET, ref) as making:
        np.save(making.path / "vectors.npy", vectors)
        ids.save(making.path)
        bundle = {"path": "", "content_hash": manifest["content_hash"]}
        making.publish({"counts": {"nodes": nodes, "dim": DIM}, "bundle": bundle})
    # Without the map, which nobody asks for here and whose kernels take most of a minute to compile.
    unmapped = IndexSettings(kind=kind, projection=ProjectionSettings(method="none"))
    build_index(folder / "set", unmapped, Emitter("index"))
    graph = store.add_graph(
        name=ref,
        source=None,
        bundle=folder / "graph",
        manifest=manifest,
        direction="undirected",
        feature_dtype="float32",
    )
    index = read_manifest(folder / "set" / "index", "knn_index")
    identity = new_id("emb")
    with store.writing() as connection:
        counts = {"nodes": nodes, "dim": DIM}
        insert_embedding(connection, identity, graph=graph.id, job="job_0", path=folder / "set", counts=counts)
        set_part(connection, identity, "index", {name: index[name] for name in ("index", "counts", "recall", "effort")})
        point_alias(connection, ref, identity)
    return Truth(ref, names, vectors, kind == "exact")


def write_tables(file: Path, nodes: int = 200) -> None:
    """A ring of ``nodes`` with binary features, as npz."""
    rng = np.random.default_rng(1)
    adjacency = np.zeros((nodes, nodes), dtype=bool)
    for step in (1, 2, 3):
        adjacency[np.arange(nodes), (np.arange(nodes) + step) % nodes] = True
    arrays = {}
    for name, matrix in (("adj", adjacency), ("attr", rng.random((nodes, 12)) < 0.3)):
        arrays |= {
            f"{name}_data": np.ones(matrix.sum(), np.float32),
            f"{name}_indices": np.nonzero(matrix)[1],
            f"{name}_indptr": np.concatenate([[0], np.cumsum(matrix.sum(axis=1))]),
            f"{name}_shape": np.array(matrix.shape),
        }
    np.savez(file, **arrays)


@contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """A disk of ``DISK_MIB`` at ``folder`` and True, where we may mount one."""
    folder.mkdir()
    mounted = not subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", folder], check=False, capture_output=True
    ).returncode
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", folder], check=True)


class Server:
    """The server's process; ``epoch`` is odd while it is down by our hand, and grows with every kill."""

    def __init__(self, scratch: Path, settings: ServiceSettings) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.settings = settings.model_copy(update={"port": self.port})
        self.books, self.log = scratch / "books", scratch / "server.log"
        self.books.mkdir()
        (self.books / "ledger").touch()
        self.epoch, self.starts = 1, 0
        self.process: subprocess.Popen[bytes] | None = None
        limits = httpx2.Limits(max_keepalive_connections=0)
        self._client = httpx2.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=30.0, limits=limits)

    def client(self) -> httpx2.Client:
        """The one client of all threads. It keeps no connection: a restart would cut it by no fault of the server's."""
        return self._client

    def launch(self) -> None:
        """Begin to start."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-P", str(SERVER), self.settings.model_dump_json()],
                stdout=log,
                stderr=log,
                env=os.environ | {"RGRL_TEST_BOOKS": str(self.books)},
            )
        self.starts += 1

    def start(self) -> None:
        """Start, and wait for the first answer; SystemExit when it does not come."""
        self.launch()
        end = time.monotonic() + 60
        while not self.answers():
            assert self.process is not None
            if self.process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"the server did not come back:\n{self.log.read_text()[-3000:]}")
            time.sleep(0.05)
        self.epoch += 1

    def answers(self) -> bool:
        """Whether it answers now."""
        try:
            return bool(self._client.get("/livez").status_code == 200)
        except httpx2.TransportError:
            return False

    def kill(self) -> None:
        """SIGKILL."""
        assert self.process is not None
        self.epoch += self.epoch % 2 == 0
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """SIGTERM, and its exit."""
        assert self.process is not None
        self.epoch += self.epoch % 2 == 0
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=30)

    def workers(self) -> list:
        """Live processes of its jobs."""
        return list(job_processes(self.settings.home))

    @contextmanager
    def full_disk(self, mounted: bool) -> Iterator[None]:
        """No room for a byte more in the home while inside."""
        assert self.process is not None
        if not mounted:
            no_limit = resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
            try:
                yield
            finally:
                resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, no_limit)
            return
        ballast = self.settings.home.parent / "ballast"
        try:
            for size in (1 << 20, 1 << 12):
                with ballast.open("ab", buffering=0) as file:
                    try:
                        while file.write(bytes(size)):
                            pass
                    except OSError:
                        continue
            yield
        finally:
            ballast.unlink(missing_ok=True)


@contextmanager
def damaged(file: Path, content: bytes | None, manifest: Path) -> Iterator[None]:
    """``file`` replaced by ``content`` (None: gone) while inside, and the set opened anew at both ends."""
    whole = file.read_bytes()
    try:
        _put(file, content)
        if file != manifest:
            _put(manifest, manifest.read_bytes())
        yield
    finally:
        _put(file, whole)
        if file != manifest:
            _put(manifest, manifest.read_bytes())


@contextmanager
def damaged_in_place(file: Path, content: bytes) -> Iterator[None]:
    """``content`` written into ``file`` itself while inside, under whoever has it open, or mapped."""
    whole = file.read_bytes()
    try:
        _overwrite(file, content)
        yield
    finally:
        _overwrite(file, whole)


def _overwrite(file: Path, content: bytes) -> None:
    with file.open("r+b") as opened:
        opened.write(content)
        opened.truncate()


def _put(file: Path, content: bytes | None) -> None:
    if content is None:
        file.unlink()
        return
    new = file.with_name(f".{file.name}.new")
    new.write_bytes(content)
    shutil.copymode(file, new) if file.exists() else None
    new.replace(file)
