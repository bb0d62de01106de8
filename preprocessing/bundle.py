"""Reading a graph bundle: everything after ingest goes through here.

Row order is the order of the external ids, ascending (integers by value, strings by their UTF-8 bytes), so the same
tables give the same bundle whatever the order of their rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from preprocessing.array_types import Float32Array, Float64Array, Int64Array, IntArray
from preprocessing.artifact import read_manifest
from preprocessing.attributes import Attribute, open_attribute
from preprocessing.errors import ArtifactError
from preprocessing.ids import IdMap
from preprocessing.stored_array import open_array

__all__ = [
    "BUNDLE",
    "DEGREE_WEIGHTS",
    "PARTS",
    "PPR",
    "Bundle",
    "DegreeWeights",
    "DenseFeatures",
    "LabelSets",
    "Labels",
    "PprRows",
    "SparseFeatures",
    "Split",
    "Topology",
]

BUNDLE, PPR, DEGREE_WEIGHTS = "graph_bundle", "ppr_rows", "degree_weights"
NEIGHBORS, SCORES = "neighbors.npy", "scores.npy"
PARTS = ("train", "validation", "test")


@dataclass(frozen=True)
class Topology:
    """CSR adjacency without self-loops or duplicates; row i lists the nodes that i hears from, ascending.

    ``weights`` [arcs] are positive; None where every arc weighs 1.
    """

    indptr: Int64Array
    indices: IntArray
    weights: Float32Array | None = None

    @classmethod
    def open(cls, directory: Path) -> Topology:
        """The arrays in ``directory``, memory-mapped; ``ArtifactError`` when one is absent or damaged."""
        weights = directory / "weights.npy"
        return cls(
            open_array(directory / "indptr.npy", "make the bundle again"),
            open_array(directory / "indices.npy", "make the bundle again"),
            open_array(weights, "make the bundle again") if weights.exists() else None,
        )

    @property
    def num_nodes(self) -> int:
        """N, isolated nodes among them."""
        return len(self.indptr) - 1

    @property
    def num_arcs(self) -> int:
        """Stored entries: twice the edges of an undirected graph."""
        return int(self.indptr[-1])

    def degrees(self) -> Int64Array:
        """Entries a row, [N]."""
        return np.diff(self.indptr)

    def strengths(self) -> Float64Array:
        """Sum of weights a row, [N]; the degrees where no arc has a weight."""
        if self.weights is None:
            return self.degrees().astype(np.float64)
        sums = np.zeros(self.num_nodes)
        filled = self.degrees() > 0
        if filled.any():
            sums[filled] = np.add.reduceat(self.weights, self.indptr[:-1][filled], dtype=np.float64)
        return sums

    def neighbors(self, row: int) -> IntArray:
        """The nodes that ``row`` hears from, ascending."""
        return self.indices[self.indptr[row] : self.indptr[row + 1]]


@dataclass(frozen=True)
class DenseFeatures:
    """values [N, F], float16 or float32, memory-mapped."""

    values: npt.NDArray[Any]

    @property
    def shape(self) -> tuple[int, int]:
        """(N, F)."""
        return self.values.shape[0], self.values.shape[1]


@dataclass(frozen=True)
class SparseFeatures:
    """The same in CSR: columns ascending in a row, no stored zeros, memory-mapped."""

    indptr: Int64Array
    indices: npt.NDArray[np.int32]
    values: npt.NDArray[Any]
    shape: tuple[int, int]


@dataclass(frozen=True)
class Labels:
    """codes [N] int64, −1 where a node has none, into ``names``."""

    codes: Int64Array
    names: list[str]


@dataclass(frozen=True)
class LabelSets:
    """Any number of labels a node: members [N, C] of ``names``; labelled [N], false where nothing is known."""

    members: npt.NDArray[np.bool_]
    labelled: npt.NDArray[np.bool_]
    names: list[str]


@dataclass(frozen=True)
class Split:
    """A published split: rows of the nodes that train, validate and test, ascending."""

    train: Int64Array
    validation: Int64Array
    test: Int64Array


@dataclass(frozen=True)
class PprRows:
    """Top-K rows of S, largest first, memory-mapped: neighbors [N, K] int32 or int64 (−1 past the row's count) and
    scores [N, K], each a lower bound of S.
    """

    neighbors: IntArray
    scores: Float32Array
    settings: dict[str, Any]
    folder: Path

    @cached_property
    def count(self) -> npt.NDArray[np.int32]:
        """How many neighbours a row has, [N]."""
        count: npt.NDArray[np.int32] = np.minimum(self._column("count"), self.neighbors.shape[1])
        return count

    @cached_property
    def exact(self) -> npt.NDArray[np.bool_]:
        """Which rows are proved to be a top-K set, [N]."""
        k, exact = self.neighbors.shape[1], self._column("exact")
        if k == int(self.settings["top_k"]):
            return exact
        # A proof of K is one of its first k where no later score, with the error it may have, reaches the k-th.
        scores = open_array(self.folder / SCORES, "make the bundle again")
        proved: npt.NDArray[np.bool_] = exact & (
            (self._column("count") <= k) | (scores[:, k - 1] - scores[:, k] >= self._column("error"))
        )
        return proved

    def _column(self, name: str) -> npt.NDArray[Any]:
        parts = sorted(self.folder.glob("part-*.parquet"))
        column: npt.NDArray[Any] = pq.read_table(parts, columns=[name], memory_map=True)[name].to_numpy()
        return column


@dataclass(frozen=True)
class DegreeWeights:
    """degree [N], weight [N], probability [N] (sums to 1)."""

    degree: Int64Array
    weight: Float64Array
    probability: Float64Array
    settings: dict[str, Any]


class Bundle:
    """A graph bundle on disk, opened for reading; arrays are memory-mapped where their format allows."""

    def __init__(self, path: Path | str) -> None:
        """``ArtifactError`` when ``path`` holds no whole bundle."""
        self.path = Path(path)
        self.manifest = read_manifest(self.path, BUNDLE)

    @property
    def num_nodes(self) -> int:
        """N, isolated nodes among them."""
        return int(self.manifest["counts"]["nodes"])

    @property
    def content_hash(self) -> str:
        """sha256 over the hashes of the bundle's files."""
        return str(self.manifest["content_hash"])

    @cached_property
    def ids(self) -> IdMap:
        """External ids by row, and rows by external id."""
        return IdMap.open(self.path)

    @cached_property
    def topology(self) -> Topology:
        """The adjacency that messages follow, by the direction policy of ingest."""
        return Topology.open(self.path / "topology")

    @cached_property
    def symmetric(self) -> Topology:
        """The undirected adjacency: degrees, PPR and ``connected`` are meant on it."""
        directory = self.path / "topology" / "symmetric"
        return Topology.open(directory) if directory.is_dir() else self.topology

    @property
    def relations(self) -> tuple[str, ...]:
        """Names of the relations that ``topology`` is the union of; none where the graph has one kind of edges."""
        return tuple(self.manifest.get("relations", {}))

    def relation(self, name: str) -> Topology:
        """One relation's adjacency, by the direction policy of ingest; ``ArtifactError`` when there is none such."""
        if name not in self.relations:
            raise ArtifactError(
                "the bundle has no such relation",
                given=name,
                expected="one of " + ", ".join(self.relations) if self.relations else "a bundle of several relations",
                where=str(self.path),
            )
        return Topology.open(self.path / "topology" / name)

    @cached_property
    def features(self) -> DenseFeatures | SparseFeatures | None:
        """Node features, or None for a graph of topology alone."""
        directory = self.path / "features"
        match self.manifest["features"]["layout"]:
            case "none":
                return None
            case "dense":
                return DenseFeatures(open_array(directory / "dense.npy", "make the bundle again"))
            case _:
                return SparseFeatures(
                    open_array(directory / "indptr.npy", "make the bundle again"),
                    open_array(directory / "indices.npy", "make the bundle again"),
                    open_array(directory / "values.npy", "make the bundle again"),
                    (self.num_nodes, int(self.manifest["features"]["columns"])),
                )

    @cached_property
    def labels(self) -> Labels | None:
        """One label a node at most, for evaluation only; training never calls this."""
        column = self._column("labels.parquet", "label")
        return None if column is None or pa.types.is_list(column.type) else Labels(*_encoded(column))

    @cached_property
    def label_sets(self) -> LabelSets | None:
        """The same for a graph whose nodes have any number of labels each, which has no ``labels``."""
        column = self._column("labels.parquet", "label")
        if column is None or not pa.types.is_list(column.type):
            return None
        codes, names = _encoded(column.flatten())
        rows = np.repeat(np.arange(len(column)), column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False))
        members = np.zeros((len(column), len(names)), dtype=np.bool_)
        members[rows, codes] = True
        return LabelSets(members, column.is_valid().to_numpy(zero_copy_only=False), names)

    @cached_property
    def split(self) -> Split | None:
        """The published split, where the graph came with one."""
        column = self._column("splits.parquet", "split")
        if column is None:
            return None
        return Split(*(np.flatnonzero(pc.equal(column, part).fill_null(False)) for part in PARTS))

    @property
    def attributes(self) -> tuple[str, ...]:
        """Names of the columns kept for filters."""
        return tuple(self.manifest.get("attributes", {}))

    def attribute(self, name: str) -> Attribute:
        """One of ``attributes``, memory-mapped."""
        return open_attribute(self.path, name, self.manifest["attributes"][name])

    def ppr(self, top_k: int | None = None) -> PprRows:
        """PPR rows, the first ``top_k`` of each (default: all there are); ``ArtifactError`` if there are not enough."""
        manifest = self._derived(PPR, "ppr")
        stored = int(manifest["settings"]["top_k"])
        k = stored if top_k is None else top_k
        if k > stored:
            raise ArtifactError(
                "the bundle's PPR rows are too short",
                given=f"top_k = {k}",
                expected=f"at most the {stored} stored",
                remedy=f"rgrl preprocess {self.path} --top-k {k}",
                where=str(self.path / "ppr"),
            )
        folder = self.path / "ppr"
        neighbors, scores = (open_array(folder / name, "make the bundle again")[:, :k] for name in (NEIGHBORS, SCORES))
        return PprRows(neighbors, scores, manifest["settings"], folder)

    def degree_weights_manifest(self) -> dict[str, Any]:
        """What preprocess says of the anchor weights it wrote; ``ArtifactError`` when there are none."""
        return self._derived(DEGREE_WEIGHTS, "degree_weights")

    def degree_weights(self) -> DegreeWeights:
        """Anchor weights as written by preprocess."""
        manifest = self.degree_weights_manifest()
        table = pq.read_table(sorted((self.path / "degree_weights").glob("part-*.parquet")), memory_map=True)
        return DegreeWeights(
            table["degree"].to_numpy(),
            table["weight"].to_numpy(),
            table["probability"].to_numpy(),
            manifest["settings"],
        )

    def _column(self, file: str, name: str) -> pa.Array | None:
        path = self.path / file
        return pq.read_table(path, columns=[name])[name].combine_chunks() if path.exists() else None

    def _derived(self, kind: str, name: str) -> dict[str, Any]:
        try:
            return read_manifest(self.path / name, kind)
        except ArtifactError as error:
            error.remedy = f"rgrl preprocess {self.path}"
            raise


def _encoded(column: pa.Array) -> tuple[Int64Array, list[str]]:
    """Codes, −1 for null, into the distinct values as text, in natural order."""
    encoded = column.cast(pa.string()).dictionary_encode()
    names = [str(name) for name in encoded.dictionary.to_pylist()]
    order = sorted(names, key=_natural)
    position = np.array([order.index(name) for name in names] or [0], dtype=np.int64)
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return np.where(codes < 0, -1, position[codes]), order


def _natural(name: str) -> tuple[int, int, str]:
    """Numbers by value before words by letter: class 2 comes before class 10."""
    return (0, int(name), name) if name.lstrip("-").isdigit() else (1, 0, name)
