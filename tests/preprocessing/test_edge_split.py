"""The split of a bundle's edges: parts, what stays of every adjacency, and what a kill leaves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from preprocessing import edge_split as module
from preprocessing.artifact import read_manifest, verify
from preprocessing.bundle import BUNDLE, Bundle, Topology
from preprocessing.edge_split import split_edges
from preprocessing.errors import ArtifactError, InputError, UsageError
from preprocessing.ingest import ingest
from preprocessing.link_table import NEGATIVES, PARTS, read_links
from preprocessing.stage import Emitter

NODES = 60


class Warned(Emitter):
    """Keeps the warnings."""

    def __init__(self) -> None:
        super().__init__("split-edges")
        self.codes: list[str] = []

    def warning(self, code: str, _message: str) -> None:
        self.codes.append(code)


def edge_table(path: Path, edges: int, seed: int, *, weighted: bool = False) -> str:
    rng = np.random.default_rng(seed)
    columns = {"source": rng.integers(NODES, size=edges), "target": rng.integers(NODES, size=edges)}
    if weighted:
        columns["weight"] = rng.uniform(1, 2, size=edges)
    pq.write_table(pa.table(columns), path)
    return str(path)


def make(folder: Path, direction: str = "undirected", *, weighted: bool = False, relations: bool = False) -> Bundle:
    features = np.random.default_rng(5).normal(size=(NODES, 3))
    pq.write_table(
        pa.table({"id": np.arange(NODES), "x": features[:, 0], "y2": features[:, 1], "label": np.arange(NODES) % 2}),
        folder / "nodes.parquet",
    )
    source: dict[str, Any] = {"kind": "tables", "nodes": str(folder / "nodes.parquet")}
    if relations:
        source["relations"] = {n: edge_table(folder / f"{n}.parquet", 70, i) for i, n in enumerate(("likes", "knows"))}
    else:
        source["edges"] = edge_table(folder / "edges.parquet", 140, 0, weighted=weighted)
    ingest({"out": folder / "bundle", "settings": {"source": source, "direction": direction}}, Emitter("ingest"))
    return Bundle(folder / "bundle")


def split(bundle: Bundle, out: Path, emitter: Emitter | None = None, **settings: Any) -> Bundle:
    split_edges({"bundle": bundle.path, "out": out, "settings": settings}, emitter or Emitter("split-edges"))
    verify(out, BUNDLE)
    return Bundle(out)


def arcs(graph: Topology) -> dict[tuple[int, int], float]:
    weights = np.ones(graph.num_arcs) if graph.weights is None else graph.weights
    return {
        (row, int(graph.indices[arc])): float(weights[arc])
        for row in range(graph.num_nodes)
        for arc in range(graph.indptr[row], graph.indptr[row + 1])
    }


def pair_sets(bundle: Bundle) -> dict[tuple[str, str | None], set[tuple[int, int]]]:
    return {key: set(map(tuple, pairs.tolist())) for key, pairs in read_links(bundle).items()}


@pytest.mark.parametrize(
    ("direction", "weighted", "relations"),
    [("undirected", False, False), ("undirected", True, False), ("directed", True, False), ("reverse", False, True)],
)
def test_parts_and_what_is_left_of_every_adjacency(
    tmp_path: Path, direction: str, weighted: bool, relations: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK_ARCS", 13)
    whole = make(tmp_path, direction, weighted=weighted, relations=relations)
    training = split(whole, tmp_path / "split", train_share=0.6, validation_share=0.1)
    links = pair_sets(training)

    edges = {(a, b) for a, b in arcs(whole.symmetric) if a < b}
    assert [len(links[part, None]) for part in PARTS] == [
        round(0.6 * len(edges)),
        round(0.1 * len(edges)),
        len(edges) - round(0.6 * len(edges)) - round(0.1 * len(edges)),
    ]
    assert set.union(*(links[part, None] for part in PARTS)) == edges
    for kind in NEGATIVES:
        drawn = [links[part, kind] for part in PARTS]
        assert list(map(len, drawn)) == [len(links[part, None]) for part in PARTS]
        assert len(set.union(*drawn)) == len(edges)
        assert set.union(*drawn).isdisjoint(edges)
        assert all(a < b for pairs in drawn for a, b in pairs)

    graphs = [("topology", whole.topology, training.topology), ("symmetric", whole.symmetric, training.symmetric)]
    graphs += [(name, whole.relation(name), training.relation(name)) for name in whole.relations]
    for _, before, after in graphs:
        kept = {arc: weight for arc, weight in arcs(before).items() if tuple(sorted(arc)) in links["train", None]}
        assert arcs(after) == kept
        assert 0 < len(kept) < before.num_arcs
        assert after.indices.dtype == before.indices.dtype

    counts = training.manifest["counts"]
    assert set(counts) == set(whole.manifest["counts"])
    assert (counts["nodes"], counts["arcs"]) == (NODES, training.topology.num_arcs)
    assert counts["edges"] == (training.topology.num_arcs if direction != "undirected" else len(links["train", None]))
    assert counts["isolated"] == NODES - len({node for pair in links["train", None] for node in pair})
    assert set(training.manifest["relations"]) == set(whole.relations)


def test_the_rest_of_the_bundle_is_the_same(tmp_path: Path) -> None:
    whole = make(tmp_path)
    training = split(whole, tmp_path / "split")
    assert training.features is not None
    assert whole.features is not None
    assert np.array_equal(training.features.values, whole.features.values)
    assert training.labels is not None
    assert training.labels.names == ["0", "1"]
    assert training.ids.external([7]) == ["7"]
    # One file of two names, not a copy.
    assert (training.path / "features/dense.npy").stat().st_nlink == 2
    with pytest.raises(ArtifactError, match="no artefact"):
        training.ppr()


def test_the_same_seed_makes_the_same_bytes_and_another_others(tmp_path: Path) -> None:
    whole = make(tmp_path)
    files = [
        split(whole, tmp_path / f"split{number}", seed=seed, threads=threads).manifest["files"]
        for number, (seed, threads) in enumerate([(0, 1), (0, 2), (1, 1)])
    ]
    assert files[0] == files[1] != files[2]


def test_a_split_is_split_again_and_stays_whole(tmp_path: Path) -> None:
    first = split(make(tmp_path), tmp_path / "first")
    second = split(first, tmp_path / "second")
    verify(first.path, BUNDLE)
    parts = pair_sets(second)
    assert set.union(*(parts[part, None] for part in PARTS)) == pair_sets(first)["train", None]
    with pytest.raises(ArtifactError, match="no pairs"):
        read_links(Bundle(tmp_path / "bundle"))


def test_asked_again(tmp_path: Path) -> None:
    whole = make(tmp_path)
    made = split(whole, tmp_path / "split").manifest["created_at"]
    assert split(whole, tmp_path / "split").manifest["created_at"] == made
    with pytest.raises(UsageError, match="exists already"):
        split(whole, tmp_path / "split", seed=1)


@pytest.mark.parametrize("step", ["_share_file", "_filter", "random_pairs", "hard_pairs", "write_links"])
def test_a_kill_leaves_nothing_that_the_next_run_does_not_mend(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = make(tmp_path)
    expected = split(whole, tmp_path / "unharmed").manifest["files"]
    work: Callable[..., Any] = getattr(module, step)

    def dies(*arguments: Any) -> None:
        work(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(module, step, dies)
        split(whole, tmp_path / "split")
    assert not (tmp_path / "split").exists()
    assert split(whole, tmp_path / "split").manifest["files"] == expected
    verify(whole.path, BUNDLE)


def complete(folder: Path, nodes: int) -> Bundle:
    ends = [(a, b) for a in range(nodes) for b in range(a)]
    pq.write_table(pa.table({"source": [a for a, _ in ends], "target": [b for _, b in ends]}), folder / "e.parquet")
    source = {"kind": "tables", "edges": str(folder / "e.parquet")}
    ingest({"out": folder / "complete", "settings": {"source": source}}, Emitter("ingest"))
    return Bundle(folder / "complete")


def test_a_complete_graph_has_no_negatives(tmp_path: Path) -> None:
    emitter = Warned()
    links = read_links(split(complete(tmp_path, 7), tmp_path / "split", emitter))
    assert emitter.codes == ["few_negatives", "few_negatives"]
    assert [len(links[part, None]) for part in PARTS] == [10, 4, 7]
    assert [len(links[part, kind]) for part in PARTS for kind in NEGATIVES] == [0] * 6


def test_too_few_edges(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="too few edges"):
        split(complete(tmp_path, 2), tmp_path / "split")
    assert list(tmp_path.glob(".split*")) == []


def test_a_file_system_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(module.errno.EXDEV, "another device")

    monkeypatch.setattr(module.os, "link", refuse)
    whole = make(tmp_path)
    split(whole, tmp_path / "split")
    assert (tmp_path / "split" / "labels.parquet").stat().st_nlink == 1
    assert (
        read_manifest(tmp_path / "split", BUNDLE)["files"]["labels.parquet"]
        == whole.manifest["files"]["labels.parquet"]
    )
