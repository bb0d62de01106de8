"""The figures that come with the real graphs, from every file of theirs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from preprocessing.bundle import Bundle, DenseFeatures, SparseFeatures
from preprocessing.ingest import ingest
from preprocessing.stage import Emitter

pytestmark = pytest.mark.realdata

# file, relation: nodes, undirected edges, isolated, self-loops, features, their layout, classes
FILES: dict[tuple[str, str | None], tuple[int, int, int, int, int, str, int]] = {
    ("amazon_computers", None): (13_752, 245_861, 281, 0, 767, "dense", 10),
    ("amazon_photo", None): (7_650, 119_081, 115, 1, 745, "dense", 8),
    ("coauthor_cs", None): (18_333, 81_894, 0, 0, 6_805, "sparse", 15),
    ("coauthor_physics", None): (34_493, 247_962, 0, 0, 8_415, "sparse", 5),
    ("cora", None): (2_708, 5_278, 0, 0, 1_433, "sparse", 7),
    ("citeseer", None): (3_312, 4_536, 48, 124, 3_703, "sparse", 6),
    ("imdb_multiplex", "mdm"): (3_550, 5_119, 1_035, 0, 2_000, "sparse", 3),
    ("imdb_multiplex", "mam"): (3_550, 31_439, 256, 0, 2_000, "sparse", 3),
}


def run(out: Path, source: dict[str, Any]) -> Bundle:
    ingest({"out": str(out), "settings": {"source": source}}, Emitter("ingest"))
    return Bundle(out)


def matrix(bundle: Bundle) -> sp.csr_array:
    features = bundle.features
    if isinstance(features, DenseFeatures):
        return sp.csr_array(features.values)
    assert isinstance(features, SparseFeatures)
    return sp.csr_array((features.values, features.indices, features.indptr), shape=features.shape)


@pytest.mark.parametrize("name", FILES)
def test_npz_files(real_data: Path, tmp_path: Path, name: tuple[str, str | None]) -> None:
    nodes, edges, isolated, loops, columns, layout, classes = FILES[name]
    file = real_data / f"{name[0]}.npz"
    bundle = run(tmp_path / "bundle", {"kind": "npz", "path": str(file), "relation": name[1]})
    counts = bundle.manifest["counts"]
    assert (counts["nodes"], counts["edges"], counts["isolated"], counts["self_loops"]) == (
        nodes,
        edges,
        isolated,
        loops,
    )
    assert counts["arcs"] == 2 * edges == bundle.topology.num_arcs
    features = bundle.manifest["features"]
    assert (features["columns"], features["layout"], bundle.manifest["labels"]["classes"]) == (columns, layout, classes)
    with np.load(file) as arrays:
        group = "adj" if name[1] is None else f"adj_{name[1]}"
        ones = np.ones(len(arrays[f"{group}_indices"]))
        given = sp.csr_array((ones, arrays[f"{group}_indices"], arrays[f"{group}_indptr"]), shape=(nodes, nodes))
        symmetric = ((given + given.T) != 0).astype(int)
        symmetric.setdiag(0)
        assert symmetric.sum() == 2 * edges
        written = sp.csr_array(
            (np.ones(2 * edges, int), bundle.topology.indices, bundle.topology.indptr), shape=(nodes, nodes)
        )
        assert abs(symmetric - written).sum() == 0
        attributes = (arrays["attr_data"], arrays["attr_indices"], arrays["attr_indptr"])
        assert abs(sp.csr_array(attributes, shape=(nodes, columns)) - matrix(bundle)).sum() == 0
        assert bundle.labels is not None
        assert (np.array(bundle.labels.names, int)[bundle.labels.codes] == arrays["labels"]).all()


def test_tables_of_page_likes(real_data: Path, tmp_path: Path) -> None:
    folder = real_data / "musae_facebook"
    source = {"kind": "tables", "nodes": str(folder / "nodes.parquet"), "edges": str(folder / "edges.parquet")}
    bundle = run(tmp_path / "bundle", {**source, "label": "page_type"})
    counts = bundle.manifest["counts"]
    assert (counts["nodes"], counts["edges"], counts["self_loops"], counts["isolated"]) == (22_470, 170_823, 179, 0)
    assert bundle.manifest["features"]["columns"] == 4_714
    assert bundle.manifest["labels"] == {"classes": 4, "labelled": 22_470}
    table = pq.read_table(folder / "nodes.parquet").to_pylist()
    values = matrix(bundle)
    assert bundle.labels is not None
    for row in range(0, len(table), 997):
        node = table[row]
        at = bundle.ids.row(node["id"])
        assert values[[at]].indices.tolist() == sorted(set(node["words"]))
        assert bundle.labels.names[bundle.labels.codes[at]] == node["page_type"]


def test_edges_alone_of_co_authors(real_data: Path, tmp_path: Path) -> None:
    edges = real_data / "dblp_2010_edges.parquet"
    bundle = run(tmp_path / "bundle", {"kind": "tables", "edges": str(edges)})
    counts = bundle.manifest["counts"]
    # 25,539 of the 326,186 authors have no co-author, so that no edge names them.
    assert (counts["nodes"], counts["edges"], counts["isolated"]) == (326_186 - 25_539, 807_700, 0)
    given = pq.read_table(edges)
    source, target = (given[name].to_numpy() for name in ("src", "dst"))
    degree = np.bincount(source, minlength=326_186) + np.bincount(target, minlength=326_186)
    assert (bundle.topology.degrees() == degree[degree > 0]).all()
    assert (bundle.ids.column().to_numpy() == np.flatnonzero(degree)).all()
