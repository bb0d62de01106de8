"""Graphs, bundles and the dense oracle for the tests of PPR: none of it shares code with what it checks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp
from hypothesis import strategies as st

from preprocessing.array_file import read_only
from preprocessing.artifact import build, fingerprint
from preprocessing.bundle import BUNDLE, Bundle, Topology
from preprocessing.hubs import hub_arcs, order_by_reach
from preprocessing.ids import IdMap
from preprocessing.locality import renumber
from preprocessing.push import push_rows
from preprocessing.row_solver import RowSolver
from preprocessing.settings import PprSettings
from preprocessing.workspace import Arcs, Rows, Rule, Workspace

Edges = list[tuple[int, int]]
Matrix = npt.NDArray[np.float64]
ROUNDING = 1e-13
"""Of the dense inverse, whose condition is at most 2/t."""
TIE = 2.0**-24

NAMED: dict[str, tuple[int, Edges]] = {
    "one node": (1, []),
    "no edge": (5, []),
    "one edge": (2, [(0, 1)]),
    "star": (8, [(3, leaf) for leaf in range(8) if leaf != 3]),
    "clique": (6, [(a, b) for a in range(6) for b in range(a)]),
    "path": (9, [(a, a + 1) for a in range(8)]),
    "cycle": (7, [(a, (a + 1) % 7) for a in range(7)]),
    "two cliques, a bridge and a loner": (
        10,
        [(a, b) for a in range(4) for b in range(a)] + [(a, b) for a in range(4, 9) for b in range(4, a)] + [(2, 6)],
    ),
    "open twins under two hubs": (8, [(hub, leaf) for hub in (0, 1) for leaf in range(2, 7)] + [(6, 7)]),
}


@st.composite
def sparse_graphs(draw: st.DrawFn) -> tuple[int, Edges]:
    """Up to 24 nodes, with several components, isolated nodes and leaves."""
    size = draw(st.integers(1, 24))
    node = st.integers(0, size - 1)
    return size, draw(st.lists(st.tuples(node, node), max_size=3 * size))


@st.composite
def twin_graphs(draw: st.DrawFn) -> tuple[int, Edges]:
    """A few hubs, and leaves that hang on equal sets of them: rows with ties of several twin classes."""
    hubs = draw(st.integers(1, 4))
    hub = st.integers(0, hubs - 1)
    sets = draw(st.lists(st.sets(hub, max_size=3), min_size=1, max_size=3))
    leaves = draw(st.lists(st.sampled_from(sets), min_size=2, max_size=8))
    edges = draw(st.lists(st.tuples(hub, hub), max_size=4))
    return hubs + len(leaves), edges + [(end, hubs + leaf) for leaf, ends in enumerate(leaves) for end in sorted(ends)]


def graphs() -> st.SearchStrategy[tuple[int, Edges]]:
    return st.one_of(sparse_graphs(), twin_graphs())


def adjacency(size: int, edges: Edges) -> sp.csr_array:
    """Undirected, 0 or 1, without self-loops."""
    pairs = np.array(edges, dtype=np.int64).reshape(-1, 2)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    rows, columns = np.concatenate([pairs, pairs[:, ::-1]]).T
    matrix = sp.coo_array((np.ones(len(rows)), (rows, columns)), (size, size)).tocsr()
    matrix.data[:] = 1
    matrix.sort_indices()
    return matrix


def random_adjacency(size: int, edges: int, seed: int) -> sp.csr_array:
    pairs = np.random.default_rng(seed).integers(0, size, (edges, 2))
    return adjacency(size, [(int(a), int(b)) for a, b in pairs])


def real_adjacency(file: Path) -> sp.csr_array:
    """The `adj_*` part of a gnn-benchmark file, made undirected."""
    with np.load(file, allow_pickle=False) as parts:
        matrix = sp.csr_array((parts["adj_data"], parts["adj_indices"], parts["adj_indptr"]), parts["adj_shape"])
    rows, columns = matrix.nonzero()
    return adjacency(matrix.shape[0], list(zip(rows.tolist(), columns.tolist(), strict=True)))


def weighted(matrix: sp.csr_array, seed: int) -> sp.csr_array:
    """The same edges with a weight each, some of them equal."""
    upper = sp.triu(matrix).tocoo()
    weights = np.random.default_rng(seed).choice([0.25, 1, 1.5, 7, 1e3], len(upper.data))
    half = sp.coo_array((weights, (upper.row, upper.col)), matrix.shape)
    whole = (half + half.T).tocsr()
    whole.sort_indices()
    return whole


def topology(matrix: sp.csr_array, dtype: type[np.integer] = np.int32) -> Topology:
    weights = None if (matrix.data == 1).all() else matrix.data.astype(np.float32)
    return Topology(matrix.indptr.astype(np.int64), matrix.indices.astype(dtype), weights)


def sources_of(*nodes: int) -> npt.NDArray[np.int64]:
    """Row numbers as the kernels take them."""
    array = np.array(nodes, dtype=np.int64)
    array.flags.writeable = False
    return array


def dense_ppr(matrix: sp.csr_array, teleport: float, self_loops: bool) -> Matrix:
    """S = t(I − (1−t)T)^{-1} with T = D^{-1/2} A D^{-1/2}; a node without neighbours has a zero row in T."""
    A = matrix.toarray() + (np.eye(matrix.shape[0]) if self_loops else 0)
    degree = A.sum(axis=1)
    scale = np.divide(1, np.sqrt(degree), out=np.zeros(len(A)), where=degree > 0)
    T = scale[:, None] * A * scale[None, :]
    return teleport * np.linalg.inv(np.eye(len(A)) - (1 - teleport) * T)


def check_claims(rows: Rows, S: Matrix, rule: PprSettings) -> None:
    """Everything that a row says of itself, against the dense matrix."""
    for source, truth in enumerate(S):
        count = int(rows.counts[source])
        kept, scores = rows.neighbors[source, :count], rows.scores[source, :count]
        assert (rows.neighbors[source, count:] == -1).all()
        assert (rows.scores[source, count:] == 0).all()
        assert len(set(kept.tolist())) == count
        assert rule.include_self or source not in kept
        assert (np.diff(scores) <= ROUNDING).all()
        short = truth[kept] - scores
        assert (short >= -ROUNDING).all()
        assert (short <= rows.error[source] + ROUNDING).all()
        omitted = np.setdiff1d(np.arange(len(truth)), kept if rule.include_self else [*kept, source])
        worst_kept = truth[kept].min(initial=np.inf) if count == rule.top_k else 0.0
        beaten_by = truth[omitted].max(initial=0.0) - worst_kept
        assert beaten_by <= max(rows.gap[source], 0.0) + ROUNDING
        assert rows.exact[source] == (rows.gap[source] <= 0)
        if rows.tied[source]:
            assert count == rule.top_k
            assert beaten_by >= -TIE * worst_kept - 2 * rows.error[source] - ROUNDING
        if rows.exact[source]:
            assert beaten_by <= ROUNDING
            assert count == min(rule.top_k, np.count_nonzero(truth > ROUNDING) - (not rule.include_self))


def arcs_of(graph: Topology, settings: PprSettings) -> Arcs:
    """The graph as the kernels want it, without new numbers."""
    indices, degree = graph.indices.copy(), graph.strengths() + float(settings.self_loops)
    weights = np.empty(0, dtype=np.float32) if graph.weights is None else graph.weights.copy()
    for hub in np.flatnonzero(graph.degrees() > hub_arcs(settings)):
        row = slice(graph.indptr[hub], graph.indptr[hub + 1])
        order_by_reach(indices[row], weights[row] if len(weights) else weights, read_only(degree))
    return Arcs.of(Topology(graph.indptr, indices, weights if len(weights) else None), settings)


def push_all(graph: Topology, settings: PprSettings) -> Rows:
    """Every row, in one thread."""
    arcs, rule = arcs_of(graph, settings), Rule.of(settings)
    rows = Rows.empty(graph.num_nodes, settings.top_k)
    assert push_rows(arcs, Workspace.of(arcs), rule, sources_of(*range(graph.num_nodes)), rows, 0) == graph.num_nodes
    return rows


def fill(graph: Topology, settings: PprSettings, first: int = 0, end: int | None = None) -> Rows:
    """The rows of a range of nodes as the stage makes them."""
    rows = Rows.empty((graph.num_nodes if end is None else end) - first, settings.top_k)
    with RowSolver(renumber(graph, settings, 2), settings, 2) as solver:
        assert sum(solver.fill(np.arange(first, first + len(rows.counts)), rows)) == len(rows.counts)
    return rows


def write_bundle(
    path: Path, matrix: sp.csr_array, heard: sp.csr_array | None = None, ids: list[Any] | None = None
) -> Bundle:
    """A bundle of topology alone; ``heard`` is the directed adjacency, where it is another; ``ids`` ascend."""
    with build(path, BUNDLE, fingerprint(matrix.indptr.tolist(), matrix.indices.tolist())) as made:
        folders = {"topology": matrix} if heard is None else {"topology": heard, "topology/symmetric": matrix}
        for name, part in folders.items():
            (made.path / name).mkdir()
            np.save(made.path / name / "indptr.npy", part.indptr.astype(np.int64))
            np.save(made.path / name / "indices.npy", part.indices.astype(np.int32))
            if (part.data != 1).any():
                np.save(made.path / name / "weights.npy", part.data.astype(np.float32))
        if ids is not None:
            column = pa.array(ids, pa.large_string()) if isinstance(ids[0], str) else np.array(ids, dtype=np.int64)
            IdMap(column).save(made.path)
        made.publish({"counts": {"nodes": matrix.shape[0]}, "features": {"layout": "none"}})
    return Bundle(path)


def stored_rows(bundle: Bundle) -> tuple[Rows, npt.NDArray[np.bool_]]:
    """The rows as the parts say, and which of them say that they were kept."""
    table = pq.read_table(sorted((bundle.path / "ppr").glob("part-*.parquet")))
    assert table["node"].to_pylist() == list(range(bundle.num_nodes))
    column = {name: np.array(table[name].to_pylist()) for name in table.column_names}
    names = {"counts": "count", "visits": "count"}
    rows = Rows(**{field: column[names.get(field, field)] for field in Rows._fields})
    return rows, column.get("kept", np.zeros(bundle.num_nodes, dtype=np.bool_))
