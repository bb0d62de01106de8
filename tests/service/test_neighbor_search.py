"""The planner, its scan and its indexes against a plain numpy brute force."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from embedding_fixtures import QUICK_MAP, write_set
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocessing.stage import Emitter
from service.search import exact, neighbors
from service.search.embedding_set import EmbeddingSet
from service.search.exact import inverse_norms, scan, unit
from service.search.index_settings import IndexSettings
from service.search.indexing import build_index
from service.search.neighbors import Space, nearest


def brute(vectors: npt.NDArray[Any], query: npt.NDArray[Any], k: int, excluded: set[int]) -> list[tuple[float, int]]:
    """One cosine at a time, sorted by score and then row."""
    scored = []
    for row, vector in enumerate(vectors.astype(np.float64)):
        if row in excluded:
            continue
        length = float(np.sqrt((vector**2).sum()) * np.sqrt((query.astype(np.float64) ** 2).sum()))
        scored.append((round(float((vector * query).sum()) / length, 7) if length else 0.0, row))
    return sorted(scored, key=lambda pair: (-pair[0], pair[1]))[:k]


def rows(*numbers: int) -> npt.NDArray[np.int64]:
    return np.array(sorted(numbers), dtype=np.int64)


def indexed(tmp_path: Path, vectors: npt.NDArray[Any], **chosen: Any) -> Space:
    path = write_set(tmp_path / "set", vectors)
    build_index(path, IndexSettings(**chosen, projection=QUICK_MAP), Emitter("index"))
    return EmbeddingSet(path).space()


@pytest.fixture(scope="module")
def cloud() -> npt.NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal((400, 16)).astype(np.float32)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_scan_is_brute_force_whatever_the_blocks(data: st.DataObject) -> None:
    nodes = data.draw(st.integers(1, 40))
    k = data.draw(st.integers(1, 45))
    # Whole numbers from few values make many exact ties, parallel vectors and zero vectors.
    numbers = data.draw(st.lists(st.integers(-2, 2), min_size=nodes * 3, max_size=nodes * 3))
    vectors = np.array(numbers, dtype=np.float32).reshape(nodes, 3)
    query = np.array(data.draw(st.lists(st.integers(1, 3), min_size=3, max_size=3)), dtype=np.float32)
    excluded = data.draw(st.sets(st.integers(0, nodes - 1)))
    block_bytes, exact.BLOCK_BYTES = exact.BLOCK_BYTES, 4 * 3 * data.draw(st.integers(1, 50))
    try:
        [found] = scan(vectors, inverse_norms(vectors), unit(query)[None], k, [rows(*excluded)])
    finally:
        exact.BLOCK_BYTES = block_bytes
    expected = brute(vectors, query, k, excluded)
    assert found.rows.tolist() == [row for _, row in expected]
    assert found.scores.tolist() == pytest.approx([score for score, _ in expected], abs=2e-7)


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_candidates_of_many_queries_are_ranked_as_those_of_one(data: st.DataObject) -> None:
    """Whatever an index found for each (−1: nothing), and whatever of it may not be returned."""
    nodes, queries, width = data.draw(st.integers(1, 30)), data.draw(st.integers(1, 7)), data.draw(st.integers(1, 12))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    vectors = rng.integers(-2, 3, (nodes, 3)).astype(data.draw(st.sampled_from([np.float16, np.float32, np.float64])))
    directions = unit(rng.integers(1, 4, (queries, 3)))
    found = np.stack([rng.permutation(np.r_[np.arange(nodes), np.full(width, -1)])[:width] for _ in range(queries)])
    allowed = (found >= 0) & (rng.random(found.shape) < 0.7)
    k = data.draw(st.integers(1, 14))
    together, exact.RANKED_AT_ONCE = exact.RANKED_AT_ONCE, data.draw(st.integers(1, 40))
    try:
        rankings = exact.rank_each(vectors, found, allowed, directions, k)
    finally:
        exact.RANKED_AT_ONCE = together
    for ranking, own, lets, direction in zip(rankings, found, allowed, directions, strict=True):
        expected = brute(vectors, direction, k, set(range(nodes)) - set(own[lets].tolist()))
        assert ranking.rows.tolist() == [row for _, row in expected]
        assert ranking.scores.tolist() == pytest.approx([score for score, _ in expected], abs=2e-7)
        alone = exact.rank(vectors, own[lets], direction, k)
        assert (ranking.rows.tolist(), ranking.scores.tolist()) == (alone.rows.tolist(), alone.scores.tolist())


def test_what_may_not_be_returned_stays_out_beside_vectors_without_numbers() -> None:
    vectors = np.array([[1, 0], [np.nan, 0], [0, 1], [1, 1]], dtype=np.float32)
    found = np.array([[0, 1, 2, 3], [3, 2, 1, 0]])
    allowed = np.array([[True, True, False, True], [True, False, True, False]])
    rankings = exact.rank_each(vectors, found, allowed, np.eye(2), 4)
    assert [ranking.rows.tolist() for ranking in rankings] == [[0, 3, 1], [3, 1]]


def test_scan_of_half_precision_vectors_agrees_with_their_values(cloud: npt.NDArray[np.float32]) -> None:
    half = cloud.astype(np.float16)
    [found] = scan(half, inverse_norms(half), unit(cloud[3])[None], 5, [rows()])
    assert found.rows.tolist() == [row for _, row in brute(half, cloud[3], 5, set())]


@pytest.mark.parametrize("kind", ["exact", "hnsw", "ivf"])
def test_every_index_answers_as_brute_force(tmp_path: Path, cloud: npt.NDArray[np.float32], kind: str) -> None:
    # Every cell and a wide beam: an approximate index has no reason left to miss anything.
    space = indexed(tmp_path, cloud, kind=kind, effort=400)
    queries = np.stack([unit(vector) for vector in cloud[:20]])
    answers = nearest(space, queries, 10, [rows(number) for number in range(20)])
    for number, answer in enumerate(answers):
        assert answer.rows.tolist() == [row for _, row in brute(cloud, cloud[number], 10, {number})]
        assert answer.strategy == kind
        assert answer.exact == (kind == "exact")
        assert answer.complete


def test_duplicate_vectors_come_in_row_order_from_every_index(tmp_path: Path) -> None:
    vectors = np.repeat(np.random.default_rng(1).standard_normal((10, 8)), 12, axis=0).astype(np.float32)
    for kind in ("exact", "hnsw", "ivf"):
        space = indexed(tmp_path / kind, vectors, kind=kind, effort=200)
        [answer] = nearest(space, unit(vectors[24])[None], 12, [rows()])
        assert answer.rows.tolist() == list(range(24, 36)), kind
        assert set(answer.scores.tolist()) == {1.0}


def test_excluding_many_nodes_leaves_the_next_ones(tmp_path: Path, cloud: npt.NDArray[np.float32]) -> None:
    space = indexed(tmp_path, cloud, kind="hnsw", effort=400)
    order = [row for _, row in brute(cloud, cloud[7], 400, set())]
    excluded = order[:50]
    [answer] = nearest(space, unit(cloud[7])[None], 10, [rows(*excluded)])
    assert answer.rows.tolist() == order[50:60]
    assert answer.strategy == "hnsw"


def test_queries_that_exclude_more_than_an_index_can_fetch_are_scanned(
    tmp_path: Path, cloud: npt.NDArray[np.float32], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbors, "FETCH_LIMIT", 64)
    space = indexed(tmp_path, cloud, kind="hnsw", effort=400)
    order = [row for _, row in brute(cloud, cloud[7], 400, set())]
    queries = np.stack([unit(cloud[7]), unit(cloud[7])])
    wide, narrow = nearest(space, queries, 10, [rows(*order[:100]), rows(*order[:5])])
    assert (wide.rows.tolist(), wide.strategy, wide.exact) == (order[100:110], "exact_fallback", True)
    assert (narrow.rows.tolist(), narrow.strategy, narrow.exact) == (order[5:15], "hnsw", False)


def test_an_index_that_comes_back_short_is_replaced_by_a_scan(tmp_path: Path, cloud: npt.NDArray[np.float32]) -> None:
    # One cell visited of six holds fewer than the 200 asked for, and faiss fills the rest with -1.
    space = indexed(tmp_path, cloud, kind="ivf", effort=1)
    [answer] = nearest(space, unit(cloud[0])[None], 200, [rows(0)])
    assert answer.strategy == "exact_fallback"
    assert answer.rows.tolist() == [row for _, row in brute(cloud, cloud[0], 200, {0})]


def test_more_neighbours_than_nodes_is_told(tmp_path: Path, cloud: npt.NDArray[np.float32]) -> None:
    few = cloud[:5]
    for kind in ("exact", "hnsw", "ivf"):
        [answer] = nearest(indexed(tmp_path / kind, few, kind=kind), unit(few[0])[None], 10, [rows(0)])
        assert sorted(answer.rows.tolist()) == [1, 2, 3, 4]
        assert not answer.complete


def test_a_set_without_index_is_scanned_and_says_so(tmp_path: Path, cloud: npt.NDArray[np.float32]) -> None:
    space = EmbeddingSet(write_set(tmp_path / "set", cloud)).space()
    [answer] = nearest(space, unit(cloud[0])[None], 3, [rows(0)])
    assert (answer.strategy, answer.exact) == ("exact_no_index", True)
    [asked] = nearest(space, unit(cloud[0])[None], 3, [rows(0)], exact=True)
    assert asked.strategy == "exact"


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_vectors_of_any_length_have_the_same_direction(scale: float) -> None:
    vector = np.array([3.0, 4.0]) * scale
    assert unit(vector).tolist() == pytest.approx([0.6, 0.8])
