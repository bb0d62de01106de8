"""Rows made from those of the graph before a change: every claim against the dense inverse of the graph after it."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from ppr_cases import NAMED, check_claims, dense_ppr, graphs, real_adjacency, stored_rows, write_bundle

from preprocessing import kept_rows, parts
from preprocessing.artifact import read_manifest, verify
from preprocessing.bundle import NEIGHBORS, PPR, SCORES, Bundle
from preprocessing.errors import ArtifactError, UsageError
from preprocessing.ppr import preprocess
from preprocessing.settings import PprSettings
from preprocessing.stage import Emitter


@dataclass(frozen=True)
class Graph:
    """Ids in any order, and pairs of them, the smaller first."""

    ids: frozenset[int]
    edges: frozenset[tuple[int, int]]

    def matrix(self, weighted: bool = False) -> sp.csr_array:
        """The adjacency in the order of ids; a weight depends on its two ids alone."""
        place = {node: row for row, node in enumerate(sorted(self.ids))}
        matrix = sp.lil_array((len(place), len(place)))
        for a, b in self.edges:
            weight = 1 + (a * b % 3) / 2 if weighted else 1
            matrix[place[a], place[b]] = matrix[place[b], place[a]] = weight
        return matrix.tocsr()

    def write(self, path: Path, weighted: bool = False) -> Bundle:
        return write_bundle(path, self.matrix(weighted), ids=sorted(self.ids))

    def component(self, node: int) -> Graph:
        """What is connected with a node."""
        reached: set[int] = set()
        ahead = [node]
        while ahead:
            if (here := ahead.pop()) not in reached:
                reached.add(here)
                ahead += [b if a == here else a for a, b in self.edges if here in (a, b)]
        return Graph(frozenset(reached), frozenset(edge for edge in self.edges if edge[0] in reached))


def graph(ids: set[int], pairs: list[tuple[int, int]]) -> Graph:
    return Graph(frozenset(ids), frozenset((min(p), max(p)) for p in pairs if p[0] != p[1] and ids >= set(p)))


@st.composite
def changes(draw: st.DrawFn) -> tuple[Graph, Graph]:
    """A graph, and the same without a few nodes and edges and with a few others; ids have holes."""
    size, pairs = draw(graphs())
    named = draw(st.permutations(range(1, 3 * size, 3)))
    edges = [(named[a], named[b]) for a, b in pairs]
    gone = draw(st.sets(st.sampled_from(named), max_size=2))
    ids = (set(named) - gone) | draw(st.sets(st.integers(0, 3 * size), max_size=2))
    if not ids:
        ids = {0}
    kept = edges[draw(st.integers(0, min(3, len(edges)))) :]
    end = st.sampled_from(sorted(ids))
    return graph(set(named), edges), graph(ids, kept + draw(st.lists(st.tuples(end, end), max_size=3)))


def run(
    bundle: Bundle, ppr: dict[str, Any], old: Bundle | None = None, tolerance: float = 1e-4, **settings: Any
) -> dict[str, Any]:
    spec: dict[str, Any] = {"bundle": str(bundle.path), "settings": {"ppr": ppr, "threads": 1, **settings}}
    if old is not None:
        spec["previous"] = {"bundle": str(old.path), "tolerance": tolerance}
    summary: dict[str, Any] = dict(preprocess(spec, Emitter("preprocess"))["ppr"])
    return summary


@given(
    change=changes(),
    top_k=st.sampled_from([1, 2, 4]),
    self_loops=st.booleans(),
    include_self=st.booleans(),
    weighted=st.booleans(),
    unproved=st.booleans(),
    tolerance=st.sampled_from([0.0, 1e-4, 0.01, 0.1, 1.0]),
)
@settings(max_examples=60, deadline=None)
def test_every_claim_holds_in_the_new_graph(
    change: tuple[Graph, Graph],
    top_k: int,
    self_loops: bool,
    include_self: bool,
    weighted: bool,
    unproved: bool,
    tolerance: float,
) -> None:
    ppr: dict[str, Any] = {"top_k": top_k, "self_loops": self_loops, "include_self": include_self}
    if unproved:
        ppr |= {"exact_arcs": 0, "epsilon": 0.1, "epsilon_floor": 0.05}
    before, after = change
    with tempfile.TemporaryDirectory() as folder:
        old, new = before.write(Path(folder, "old"), weighted), after.write(Path(folder, "new"), weighted)
        run(old, ppr, shard_rows=5)
        summary = run(new, ppr, old, tolerance, shard_rows=7)
        verify(new.path / "ppr", PPR)
        (old_rows, _), (rows, kept) = stored_rows(old), stored_rows(new)
    check_claims(rows, dense_ppr(after.matrix(weighted), 0.15, self_loops), PprSettings(**ppr))
    assert summary["previous"]["kept"] == np.count_nonzero(kept)
    assert summary["previous"]["recomputed"] == np.count_nonzero(~kept)
    assert summary["previous"]["new"] == len(set(after.ids) - set(before.ids))
    assert sum(summary["previous"][why] for why in ("new", "moved", "unproved")) == np.count_nonzero(~kept)
    old_ids, new_ids = np.array(sorted(before.ids)), np.array(sorted(after.ids))
    assert np.isin(new_ids[kept], old_ids).all()
    origin = np.searchsorted(old_ids, new_ids[kept])
    assert (rows.error[kept] <= old_rows.error[origin] + 2.001 * tolerance + 1e-6 * rows.scores[kept].max(axis=1)).all()
    assert (rows.exact[kept] >= old_rows.exact[origin]).all()
    same = np.array([node in before.ids and before.component(node) == after.component(node) for node in new_ids])
    assert kept[same].all()
    if tolerance == 0:
        assert not kept[~same].any()


def two_parts(far: str) -> tuple[Graph, Graph]:
    """A named graph that nothing changes, ids from 100 on, and a path of ids below that loses and gains nodes."""
    size, pairs = NAMED[far]
    there = [(100 + 2 * a, 100 + 2 * b) for a, b in pairs]
    ids = {100 + 2 * node for node in range(size)}
    before = graph(ids | set(range(10, 30)), there + [(a, a + 1) for a in range(10, 29)])
    after = graph(ids | set(range(5, 28)), there + [(a, a + 1) for a in range(5, 27)] + [(5, 20)])
    return before, after


@pytest.mark.parametrize("far", ["star", "two cliques, a bridge and a loner", "open twins under two hubs"])
def test_rows_of_an_unchanged_component_are_the_same_bits(tmp_path: Path, far: str) -> None:
    before, after = two_parts(far)
    old, new = before.write(tmp_path / "old"), after.write(tmp_path / "new")
    run(old, {"top_k": 3}, shard_rows=6)
    run(new, {"top_k": 3}, old, tolerance=0)
    (old_rows, _), (rows, kept) = stored_rows(old), stored_rows(new)
    shift = len(after.ids) - len(before.ids)
    first = min(row for row, node in enumerate(sorted(after.ids)) if node >= 100)
    assert kept.tolist() == [node >= 100 for node in sorted(after.ids)]
    for name in set(rows._fields) - {"neighbors"}:
        assert getattr(rows, name)[first:].tolist() == getattr(old_rows, name)[first - shift :].tolist(), name
    neighbors = old_rows.neighbors[first - shift :]
    assert rows.neighbors[first:].tolist() == np.where(neighbors >= 0, neighbors + shift, -1).tolist()


def test_ties_that_a_change_may_break_are_computed_again(tmp_path: Path) -> None:
    """A star far from a change: its leaves are twins, which a row of two must choose among."""
    tail = [(a, a + 1) for a in range(60)]
    star = [(0, leaf) for leaf in range(100, 108)]
    nodes = {*range(61), *range(100, 108)}
    old = graph(nodes, tail + star).write(tmp_path / "old")
    new = graph(nodes, tail[:-1] + star).write(tmp_path / "new")
    run(old, {"top_k": 3})
    run(new, {"top_k": 3}, old, tolerance=1e-3)
    (old_rows, _), (rows, kept) = stored_rows(old), stored_rows(new)
    assert old_rows.tied[61:].all()
    assert not kept[61:].any()
    assert kept[5:40].all()
    assert rows.exact.all()


def cliques(count: int, missing: int) -> Graph:
    """A ring of cliques of six; the first has lost ``missing`` edges."""
    pairs = [(6 * c + a, 6 * c + b) for c in range(count) for a in range(6) for b in range(a)]
    ring = [(6 * c, 6 * ((c + 1) % count) + 1) for c in range(count)]
    return graph(set(range(6 * count)), pairs[missing:] + ring)


def test_a_run_that_failed_goes_on_without_looking_at_the_change_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = cliques(20, 0).write(tmp_path / "old")
    new, whole = (cliques(20, 3).write(tmp_path / name) for name in ("new", "whole"))
    run(old, {"top_k": 4})

    def fail_in_the_third(directory: Path, number: int, table: pa.Table) -> None:
        if number == 2:
            raise OSError("disk full")
        parts.write_part(directory, number, table)

    with monkeypatch.context() as patch:
        patch.setattr("preprocessing.row_shards.write_part", fail_in_the_third)
        with pytest.raises(OSError, match="disk full"):
            run(new, {"top_k": 4}, old, shard_rows=30)
    finished = {part.name: part.stat().st_ino for part in (new.path / ".ppr.partial").glob("part-*.parquet")}
    assert sorted(finished) == ["part-00000.parquet", "part-00001.parquet"]
    expected = run(whole, {"top_k": 4}, old, shard_rows=30)
    with monkeypatch.context() as patch:
        patch.delattr(kept_rows, "compare")
        assert run(new, {"top_k": 4}, old, shard_rows=30) == expected
    assert {name: (new.path / "ppr" / name).stat().st_ino for name in finished} == finished
    assert 0 < expected["previous"]["kept"] < 120
    assert sorted(read_manifest(new.path / "ppr", PPR)["files"]) == [
        NEIGHBORS,
        *(f"part-{number:05d}.parquet" for number in range(4)),
        SCORES,
    ]


def test_approximate_rows_are_another_artefact_than_a_full_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = cliques(20, 0).write(tmp_path / "old"), cliques(20, 3).write(tmp_path / "new")
    before = run(old, {"top_k": 4})
    kept = run(new, {"top_k": 4}, old, tolerance=1e-3)
    manifest = read_manifest(new.path / "ppr", PPR)
    assert manifest["previous"] == kept["previous"]
    assert kept["previous"]["content_hash"] == before["content_hash"]
    assert kept["previous"]["tolerance"] == 1e-3
    assert run(new, {"top_k": 4}, old, tolerance=1e-3) == kept
    fewer = run(new, {"top_k": 4}, old, tolerance=1e-9)
    assert fewer["previous"]["kept"] < kept["previous"]["kept"]
    full = run(new, {"top_k": 4})
    assert "previous" not in full
    assert full["content_hash"] not in {kept["content_hash"], fewer["content_hash"]}
    assert read_manifest(new.path / "ppr", PPR)["fingerprint"] != manifest["fingerprint"]
    # All rows are there: nothing is gained by some that are less exact.
    assert run(new, {"top_k": 4}, old) == full
    assert "none was taken from the bundle before" in capsys.readouterr().err


def test_what_cannot_be_of_use_is_refused(tmp_path: Path) -> None:
    old, new = cliques(4, 0).write(tmp_path / "old"), cliques(4, 1).write(tmp_path / "new")
    with pytest.raises(ArtifactError) as absent:
        run(new, {"top_k": 4}, old)
    assert absent.value.remedy == f"rgrl preprocess {old.path}"
    run(old, {"top_k": 4})
    with pytest.raises(UsageError, match="another teleport, top_k") as other:
        run(new, {"top_k": 5, "teleport": 0.2}, old)
    assert other.value.pointer == "/settings/ppr/teleport"
    assert other.value.given == "ppr.teleport = 0.2, ppr.top_k = 5"
    assert (other.value.expected or "").startswith("ppr.teleport = 0.15, ppr.top_k = 4, as before")
    assert not (new.path / "ppr").exists()
    with pytest.raises(UsageError, match="is the one to preprocess"):
        run(old, {"top_k": 4}, old)
    words = write_bundle(tmp_path / "words", cliques(4, 1).matrix(), ids=[f"n{row:02d}" for row in range(24)])
    with pytest.raises(UsageError, match="ids") as kinds:
        run(words, {"top_k": 4}, old)
    assert kinds.value.given == "int64 before, string now"


@pytest.mark.realdata
def test_a_real_graph_that_loses_an_edge_and_gains_one(
    real_data: Path, tmp_path: Path, record_property: pytest.RecordProperty
) -> None:
    matrix = real_adjacency(real_data / "cora.npz")
    size, rng = matrix.shape[0], np.random.default_rng(0)
    changed = matrix.tolil()
    rows, columns = matrix.nonzero()
    place, (a, b) = rng.integers(len(rows)), rng.choice(size, 2, replace=False)
    changed[rows[place], columns[place]] = changed[columns[place], rows[place]] = 0
    changed[a, b] = changed[b, a] = 1
    changed = changed.tocsr()
    changed.eliminate_zeros()
    old = write_bundle(tmp_path / "old", matrix, ids=list(range(size)))
    new = write_bundle(tmp_path / "new", changed, ids=list(range(size)))
    run(old, {}, shard_rows=1000)
    summary = run(new, {}, old, tolerance=1e-4, shard_rows=700)
    stored, kept = stored_rows(new)
    check_claims(stored, dense_ppr(changed, 0.15, True), PprSettings())
    record_property("kept_share", float(kept.mean()))
    assert summary["previous"]["kept"] == np.count_nonzero(kept) > 0.15 * size


def test_it_is_said_why_most_rows_were_not_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ring = [(node, (node + 1) % 50) for node in range(50)]
    old = graph(set(range(50)), ring).write(tmp_path / "old")
    run(old, {"top_k": 4})
    new = graph(set(range(53)), [*ring, (50, 0), (51, 0), (52, 0)]).write(tmp_path / "new")
    capsys.readouterr()
    told = run(new, {"top_k": 4}, old, tolerance=1e-6)["previous"]
    assert (told["new"], told["kept"] < told["recomputed"], told["moved"] > 0) == (3, True, True)
    err = capsys.readouterr().err
    for words in (
        f"{told['kept']} of 53 rows were kept",
        "3 are of new nodes",
        f"{told['moved']} may have moved",
        "1e-06",
    ):
        assert words in err
    whole = graph(set(range(50)), ring).write(tmp_path / "same")
    assert run(whole, {"top_k": 4}, old)["previous"]["kept"] == 50
    assert "rows were kept" not in capsys.readouterr().err
