"""Reading embedding sets: vectors by external id, the space that neighbours are searched in, and the graph's edges.

Everything is memory-mapped and opened when first needed; a set may be read from many threads at once.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from preprocessing.array_types import Int64Array
from preprocessing.artifact import MANIFEST, read_manifest
from preprocessing.bundle import Bundle, Topology
from preprocessing.errors import ArtifactError
from preprocessing.ids import IdMap
from preprocessing.stored_array import open_array
from service.errors import BusyError
from service.search.knn_index import FAISS_FILE, KnnIndex
from service.search.neighbors import Space
from service.search.sorted_rows import contains
from service.verified import Seen, VerifiedFiles, served, written_to

if TYPE_CHECKING:
    from service.search.filters import Filters
    from service.search.new_nodes import NewNodeEncoder
    from service.store import Store

__all__ = ["EMBEDDING_SET", "PROJECTION", "EmbeddingSet", "EmbeddingSets", "open_vectors", "searched_files"]

EMBEDDING_SET, PROJECTION = "embedding_set", "projection"
# How long somebody who wants to write waits at most before readers are told; a look costs a microsecond a file.
WANTED_LOOK_S = 0.1
VECTORS, IDS = "vectors.npy", ("ids.npy", "ids.arrow")


@contextmanager
def damage_told(path: Path) -> Iterator[None]:
    """``ArtifactError`` for what a manifest lacks, or has in another shape, while inside."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ArtifactError(
            f"the artefact is damaged ({type(error).__name__})", remedy="make it again", where=str(path)
        ) from error


def _check_topology(stored: Topology, nodes: int, bundle: Path | None) -> None:
    if stored.num_nodes != nodes or stored.num_arcs != len(stored.indices):
        raise ArtifactError(
            "the graph's arrays are not of one size",
            given=f"{stored.num_nodes} nodes, {len(stored.indices)} arcs",
            expected=f"{nodes} nodes, {stored.num_arcs} arcs",
            remedy="make the bundle again",
            where=str(bundle),
        )


def _served(files: dict[str, str]) -> dict[str, str]:
    """The files of a set that a server reads, by name, with their hashes; ``KeyError`` where one is not told of."""
    needed = served(files)
    if VECTORS not in needed or needed.keys().isdisjoint(IDS):
        raise KeyError(VECTORS)
    return needed


def open_vectors(path: Path, manifest: dict[str, Any]) -> npt.NDArray[Any]:
    """The vectors [N, D] of the set at ``path``, mapped; ``ArtifactError`` unless they are as its manifest says."""
    file = path / VECTORS
    with damage_told(path):
        expected = (int(manifest["counts"]["nodes"]), int(manifest["counts"]["dim"]))
    vectors = open_array(file, "train again")
    if vectors.shape != expected or vectors.dtype.kind != "f" or not vectors.flags.c_contiguous:
        raise ArtifactError(
            "the vectors are not as the manifest says",
            given=f"{vectors.dtype} {vectors.shape}",
            expected=f"floating point {expected}",
            remedy="train again",
            where=str(file),
        )
    return vectors


def searched_files(path: Path) -> tuple[Path, ...]:
    """What a search of the set at ``path`` reads at random, most first."""
    return path / "index" / FAISS_FILE, path / VECTORS


class EmbeddingSet:
    """One embedding set, open for reading."""

    def __init__(self, path: Path, bundle: Path | None = None, verified: VerifiedFiles | None = None) -> None:
        """``bundle`` is the graph's; without it ``connected`` cannot be told. ``verified`` knows files that need not be
        hashed again. ``ArtifactError`` if there is no whole set.
        """
        self.path = path
        self.manifest = read_manifest(path, EMBEDDING_SET)
        self._verified = verified or VerifiedFiles()
        mapped = _watched(path)
        # First of all, so that what is checked is what is used; until nobody reads the set any more.
        self._lease = self._verified.leases.take(mapped)
        weakref.finalize(self, self._lease.end)
        self._files, self._graph_files = Seen(mapped), Seen()
        with damage_told(path):
            self._verified.check(path, _served(self.manifest["files"]))
        # A plain view of the mapped file: indexing a memmap costs more.
        self.vectors = open_vectors(path, self.manifest).view(np.ndarray)
        self.ids = IdMap.open(path)
        if len(self.ids) != self.nodes:
            raise ArtifactError(
                "the ids are not as many as the vectors", given=len(self.ids), expected=str(self.nodes), where=str(path)
            )
        self._bundle = bundle
        # A large graph takes its time to be read for the first time; who asks for vectors alone does not wait for it.
        self._lock, self._graph_lock = threading.Lock(), threading.Lock()
        self._space: Space | None = None
        self._topology: Topology | None = None
        self._new_nodes: NewNodeEncoder | None = None
        self._filters: Filters | None = None

    @property
    def nodes(self) -> int:
        """Number of vectors."""
        return int(self.vectors.shape[0])

    @property
    def dim(self) -> int:
        """Length of a vector."""
        return int(self.vectors.shape[1])

    @property
    def is_as_opened(self) -> bool:
        """Whether no file of the set has changed, and nobody waits to change one: to be asked before it is read."""
        return not self._lease.wanted and self._files.unchanged()

    @property
    def was_as_opened_lately(self) -> bool:
        """The same, but another file renamed into the place of a leased one is seen 20 ms later."""
        return not self._lease.wanted and self._files.unchanged(leased=self._lease.complete)

    def check_as_opened(self) -> None:
        """``ArtifactError`` unless ``is_as_opened``: to be asked before each part of a long answer is read."""
        if not self.is_as_opened:
            raise written_to(self.path)

    def check_unchanged(self) -> None:
        """``ArtifactError`` if a file was changed since the set was got: to be asked once an answer is made, which may
        be wrong then. Where there are leases that cannot be.
        """
        if self._lease.complete and not self._lease.wanted:
            return
        if not (self._files.unchanged() and self._graph_files.unchanged()):
            raise written_to(self.path)

    def is_wanted(self) -> bool:
        """Whether somebody waits to write to a file of the set or of its graph, who goes on once nobody reads it."""
        return self._lease.look()

    def space(self) -> Space:
        """What neighbours are searched in; the first call reads the index."""
        with self._lock:
            if self._space is None:
                self._space = self._open_space()
            return self._space

    @property
    def opened_space(self) -> Space | None:
        """``space`` where it has been read before."""
        return self._space

    def lookup(self, ids: Sequence[int | str] | pa.Array) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
        """Vectors [n, D] in the order of ``ids`` and which were found [n]; the others' vectors are zero."""
        rows = self.ids.rows(ids)
        found = rows >= 0
        if found.all():
            return self.vectors[rows].astype(np.float32, copy=False), found
        vectors = np.zeros((len(rows), self.dim), dtype=np.float32)
        vectors[found] = self.vectors[rows[found]]
        return vectors, found

    def vector(self, node: int | str) -> npt.NDArray[Any] | None:
        """The vector [D] of one node, or None; a view of the file."""
        row = self.ids.row(node)
        return None if row is None else self.vectors[row]

    def edges(self, *, wait: bool = True) -> Topology:
        """The graph's edges, in both directions, as they are now: to be asked for every request.

        ``ArtifactError`` if the graph's bundle is gone or is no longer the one the set was trained on; without ``wait``
        ``BusyError`` where they have to be read first, or again.
        """
        topology = self._topology
        if topology is not None and self._graph_is_as_opened():
            return topology
        if not wait:
            raise BusyError("the graph's edges have to be read first")
        with self._graph_lock:
            self._let_go_of_changed_files()
            if self._topology is None:
                with damage_told(self._bundle or self.path):
                    stored = self._open_bundle().symmetric
                _check_topology(stored, self.nodes, self._bundle)
                # Plain views of the mapped files: slicing a memmap costs five times as much.
                self._topology = Topology(stored.indptr.view(np.ndarray), stored.indices.view(np.ndarray))
            return self._topology

    def connected(self, one: Int64Array, other: Int64Array) -> npt.NDArray[np.bool_]:
        """Whether ``one[i]`` and ``other[i]`` share an edge, [n]; errors as ``edges``."""
        topology = self.edges()
        answer = np.zeros(len(one), dtype=np.bool_)
        for pair, (left, right) in enumerate(zip(one.tolist(), other[:, None], strict=True)):
            answer[pair] = contains(topology.neighbors(left), right)[0]
        return answer

    def new_nodes(self) -> NewNodeEncoder:
        """What embeds nodes that the graph has not; errors as its own, and as ``edges``."""
        # Few servers are asked for it, and scipy takes its time to load.
        from service.search.new_nodes import NewNodeEncoder

        with self._graph_lock:
            self._let_go_of_changed_files()
            if self._new_nodes is None:
                self._new_nodes = NewNodeEncoder(self.path / "model", self._open_bundle())
            return self._new_nodes

    def filters(self) -> Filters:
        """What tells which nodes a filter lets through; errors as ``edges``."""
        from service.search.filters import Filters

        with self._graph_lock:
            self._let_go_of_changed_files()
            if self._filters is None:
                self._filters = Filters(self._open_bundle())
            return self._filters

    def check(self, part: Path, manifest: dict[str, Any]) -> None:
        """``ArtifactError`` unless the files of a ``part`` of the set are as its manifest says."""
        with damage_told(part):
            self._lease.add(f"{part}/{name}" for name in manifest["files"])
            self._verified.check(part, manifest["files"])

    def graph(self) -> Bundle:
        """The graph; errors as ``edges``."""
        with self._graph_lock:
            self._let_go_of_changed_files()
            return self._open_bundle()

    def _open_space(self) -> Space:
        if not (self.path / "index").exists():
            return Space(self.vectors, None, None)
        with damage_told(self.path / "index"):
            index = KnnIndex.open(self.path / "index", self.vectors.shape, self._verified)
        return Space(self.vectors, "exact" if index is None else index.kind, index)

    def _let_go_of_changed_files(self) -> None:
        """Forget what is mapped of the graph if a file of it is another than when it was opened: it is opened anew."""
        if not self._graph_is_as_opened():
            self._topology, self._new_nodes, self._filters = None, None, None
            self._graph_files = Seen()

    def _graph_is_as_opened(self) -> bool:
        return self._graph_files.unchanged(leased=self._lease.complete)

    def _open_bundle(self) -> Bundle:
        if self._bundle is None:
            raise ArtifactError("the set's graph is not known", expected="a graph bundle", where=str(self.path))
        bundle = Bundle(self._bundle)
        with damage_told(self.path):
            trained_on = self.manifest["bundle"]["content_hash"]
        if bundle.content_hash != trained_on:
            raise ArtifactError(
                "the graph has changed since the embedding set was trained",
                given=f"content {bundle.content_hash}",
                expected=f"content {trained_on}",
                remedy="train again, or ask for what needs no graph: no filter, and connected nodes let in",
                where=str(self._bundle),
            )
        with damage_told(self._bundle):
            names = (name for name in bundle.manifest["files"] if name.endswith((".npy", ".arrow")))
            files = tuple(f"{self._bundle}/{name}" for name in names)
            if not self._graph_files.files:
                self._lease.add(files)
            seen = Seen(files)
            self._verified.check(self._bundle, served(bundle.manifest["files"]))
            if not self._graph_files.files:
                self._graph_files = seen
        return bundle


@dataclass(frozen=True)
class _Ref:
    """What an id or alias means, as of one generation of the store."""

    identity: str
    path: Path
    bundle: Path


class EmbeddingSets:
    """The sets held open, least recently used out first; a set that was indexed again is opened anew.

    References are resolved by the store once, and again after any write that could change what they mean.
    """

    def __init__(self, store: Store, verified: VerifiedFiles, capacity: int = 8) -> None:
        """``store`` resolves ids and aliases; a set whose files ``verified`` does not know is read once as a whole."""
        self._store = store
        self._verified = verified
        self._capacity = capacity
        self._generation = -1
        self._refs: dict[str, _Ref] = {}
        self._open: OrderedDict[str, EmbeddingSet] = OrderedDict()
        # The open ones, and those that somebody reads still.
        self._alive: weakref.WeakSet[EmbeddingSet] = weakref.WeakSet()
        self._lock = threading.Lock()
        # Opening reads files; it is apart so that nobody who only asks what is open waits for it.
        self._opening = threading.Lock()
        self._closed = threading.Event()

    def lease(self) -> None:
        """From now on have who wants to write to a file of an open set wait until the set is let go of."""
        self._verified.leases.given = True
        self._closed.clear()
        threading.Thread(target=self._watch, name="leases", daemon=True).start()

    def close(self) -> None:
        """Let go of all sets, and take no more leases; readers that hold a set finish."""
        self._verified.leases.given = False
        self._closed.set()
        with self._lock:
            self._open.clear()

    def get(self, ref: str, *, search: bool = False) -> tuple[str, EmbeddingSet]:
        """Id and open set of an id or alias, with ``search`` its index too.

        The store's ``NotFoundError``, or ``ArtifactError`` for a set that cannot be opened.
        """
        while True:
            generation = self._store.generation
            try:
                identity, embeddings = self.held(ref) or self._open_anew(self._resolve(ref, generation))
                if search:
                    embeddings.space()
            except ArtifactError:
                # Deleted while it was being opened: the alias names another by now, or the store says that it is gone.
                if self._store.generation == generation:
                    raise
            else:
                return identity, embeddings

    def held(self, ref: str) -> tuple[str, EmbeddingSet] | None:
        """What ``get`` would answer, where that is known in memory; it waits for nothing."""
        generation = self._store.generation
        with self._lock:
            known = self._refs.get(ref) if self._generation == generation else None
            held = None if known is None else self._open.get(known.identity)
            if known is None or held is None or not held.was_as_opened_lately:
                return None
            self._open.move_to_end(known.identity)
            return known.identity, held

    def forget(self, embedding_id: str) -> None:
        """Let go of a set, as before its files are deleted; readers that hold it finish."""
        with self._lock:
            self._open.pop(embedding_id, None)

    def _resolve(self, ref: str, generation: int) -> _Ref:
        row = self._store.embedding(ref)
        path = Path(row.path)
        known = _Ref(row.id, path, Path(self._store.graph(row.graph).bundle))
        with self._lock:
            if self._generation < generation:
                self._refs, self._generation = {}, generation
            # What was read before the latest change serves this one request alone.
            if self._generation == generation:
                self._refs[ref] = known
        return known

    def _open_anew(self, ref: _Ref) -> tuple[str, EmbeddingSet]:
        with self._opening:
            with self._lock:
                held = self._open.get(ref.identity)
            if held is None or not held.is_as_opened:
                held = EmbeddingSet(ref.path, ref.bundle, self._verified)
            with self._lock:
                self._open[ref.identity] = held
                self._alive.add(held)
                self._open.move_to_end(ref.identity)
                while len(self._open) > self._capacity:
                    self._open.popitem(last=False)
        return ref.identity, held

    def _watch(self) -> None:
        while not self._closed.wait(WANTED_LOOK_S):
            self._let_go_of_wanted()

    def _let_go_of_wanted(self) -> None:
        with self._lock:
            wanted = [held for held in self._alive if held.is_wanted()]
            left = [identity for identity, held in self._open.items() if held in wanted]
            for identity in left:
                del self._open[identity]
        kept = len(wanted) - len(left)
        wanted.clear()
        if kept:
            # By a reader, or by a request that failed: its error and its frames hold each other.
            gc.collect()


def _watched(path: Path) -> tuple[str, ...]:
    """What is mapped, or may come to be, and what tells of an index that is no file, or is not built yet.

    A file that is cut short would end the process that reads past its end.
    """
    index = path / "index" / FAISS_FILE
    ids = (file for file in (path / name for name in IDS) if file.exists())
    decided = () if index.exists() else (path / "index" / MANIFEST,)
    return tuple(map(str, (path / VECTORS, *ids, index, *decided)))
