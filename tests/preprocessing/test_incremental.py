"""What a change of the graph can do to a row of S, against dense inverses before and after."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from ppr_cases import adjacency, dense_ppr

from preprocessing.bundle import Bundle
from preprocessing.incremental import compare, row_bounds
from preprocessing.ingest import ingest
from preprocessing.stage import Emitter

Edges = list[tuple[int, int]]


def bundle(path: Path, ids: list[int], edges: Edges) -> Bundle:
    import pyarrow as pa
    import pyarrow.parquet as pq

    nodes, ends = path.with_suffix(".nodes.parquet"), path.with_suffix(".edges.parquet")
    pq.write_table(pa.table({"id": ids}), nodes)
    pq.write_table(pa.table({"source": [a for a, _ in edges], "target": [b for _, b in edges]}), ends)
    source = {"kind": "tables", "nodes": str(nodes), "edges": str(ends)}
    ingest({"out": str(path), "settings": {"source": source}}, Emitter("ingest"))
    return Bundle(path)


def dense(graph: Bundle, self_loops: bool) -> np.ndarray:
    topology = graph.symmetric
    matrix = sp.csr_array((np.ones(topology.num_arcs), topology.indices, topology.indptr), (graph.num_nodes,) * 2)
    return dense_ppr(matrix, 0.15, self_loops)


def random_edges(rng: np.random.Generator, nodes: list[int], count: int) -> Edges:
    pairs = rng.choice(nodes, (count, 2))
    return [(int(a), int(b)) for a, b in pairs if a != b]


@pytest.mark.parametrize("self_loops", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_no_entry_moves_by_more_than_its_rows_bound(tmp_path: Path, seed: int, self_loops: bool) -> None:
    rng = np.random.default_rng(seed)
    ids = sorted(rng.choice(1000, 60, replace=False).tolist())
    edges = random_edges(rng, ids, 110)
    kept_ids = ids[2:]
    new_ids = [*kept_ids, 2000, 2001]
    kept_edges = [(a, b) for a, b in edges if a in kept_ids and b in kept_ids]
    del kept_edges[: seed % 3]
    new_edges = kept_edges + random_edges(rng, new_ids, seed % 4) + [(2000, kept_ids[5])]
    old, new = bundle(tmp_path / "old", ids, edges), bundle(tmp_path / "new", sorted(new_ids), new_edges)
    change = compare(old, new, float(self_loops))
    bounds = row_bounds(change, new.symmetric, 0.15, float(self_loops), 1e-4, lambda *_: None)
    before, after = dense(old, self_loops), dense(new, self_loops)
    common = np.flatnonzero(change.old_row >= 0)
    assert common.tolist() == [new.ids.row(node) for node in kept_ids]
    assert np.isinf(bounds[change.old_row < 0]).all()
    rows = change.old_row[common]
    moved = np.abs(after[np.ix_(common, common)] - before[np.ix_(rows, rows)]).max(axis=1)
    # What a row loses to nodes that went, or gains at nodes that came, counts too.
    went, came = change.new_row < 0, change.old_row < 0
    moved = np.maximum(moved, before[np.ix_(rows, went)].max(axis=1))
    moved = np.maximum(moved, after[np.ix_(common, came)].max(axis=1))
    assert (moved <= bounds[common]).all()
    assert moved.max() > 0


def test_nothing_changed_bounds_nothing(tmp_path: Path) -> None:
    edges = [(0, 1), (1, 2), (2, 3), (5, 6)]
    old, new = bundle(tmp_path / "old", list(range(8)), edges), bundle(tmp_path / "new", list(range(8)), edges)
    change = compare(old, new, 1.0)
    assert not change.difference.any()
    assert not row_bounds(change, new.symmetric, 0.15, 1.0, 1e-4, lambda *_: None).any()


def test_the_difference_is_the_row_sum_of_the_matrices(tmp_path: Path) -> None:
    old = bundle(tmp_path / "old", [10, 20, 30, 40], [(10, 20), (20, 30), (20, 40)])
    new = bundle(tmp_path / "new", [10, 25, 30, 40], [(10, 25), (30, 40), (10, 40)])
    change = compare(old, new, 1.0)

    def transition(size: int, edges: Edges) -> np.ndarray:
        A = adjacency(size, edges).toarray() + np.eye(size)
        root = A.sum(axis=1) ** -0.5
        return root[:, None] * A * root

    # Rows 10, 20, 25, 30, 40; each graph without the other's node has it alone.
    before, after = transition(5, [(0, 1), (1, 3), (1, 4)]), transition(5, [(0, 2), (3, 4), (0, 4)])
    expected = np.abs(after - before).sum(axis=1)[[0, 2, 3, 4]]
    assert change.difference == pytest.approx(expected, rel=1e-12)
    assert change.old_row.tolist() == [0, -1, 2, 3]
    assert change.new_row.tolist() == [0, -1, 2, 3]


def test_far_away_rows_have_small_bounds(tmp_path: Path) -> None:
    """A cut at one end of a long path moves the other end by next to nothing, and its bound says so."""
    path = [(a, a + 1) for a in range(199)]
    old, new = bundle(tmp_path / "old", list(range(200)), path), bundle(tmp_path / "new", list(range(200)), path[1:])
    bounds = row_bounds(compare(old, new, 1.0), new.symmetric, 0.15, 1.0, 1e-4, lambda *_: None)
    assert bounds[0] > 0.1
    assert bounds[60:].max() < 2e-6
