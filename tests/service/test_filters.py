"""Filters against plain Python, and searches under a filter against brute force."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from embedding_fixtures import QUICK_MAP, write_set
from filter_cases import NODES, attributed_bundle, fulfils, node_values
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from preprocessing.bundle import Bundle, LabelSets
from preprocessing.errors import InputError
from preprocessing.stage import Emitter
from service.search import exact, filters, neighbors
from service.search.embedding_set import EmbeddingSet
from service.search.exact import unit
from service.search.filter_schemas import MAX_CONDITIONS, MAX_DEPTH, MAX_VALUES, Filter
from service.search.filters import Filters
from service.search.index_settings import IndexSettings
from service.search.indexing import build_index
from service.search.matches import Matches
from service.search.neighbors import Space, nearest

VALUES = [node_values(node) for node in range(NODES)]
NUMBERS = st.one_of(
    st.integers(-6, 12),
    st.floats(-6, 12),
    st.sampled_from([0.25, 1.5, 2**53, 2**53 + 1, 2**53 + 2, -1e308, 10**400, -(10**400)]),
    st.sampled_from([2**63 - 1, 2**63, -(2**63), -(2**63) + 1, float(2**63)]),
)
TEXTS = st.sampled_from(["Zürich", "Ankara", "", "Łódź", "北京", "Bern", "𝄞", "0", "1", "2"])


def matches(kind: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.one_of(
        st.fixed_dictionaries({"value": kind}), st.fixed_dictionaries({"any": st.lists(kind, min_size=1, max_size=4)})
    ).map(lambda match: {"match": match})


def conditions(key: str, *kinds: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    null = st.booleans().map(lambda absent: {"is_null": absent})
    return st.one_of(null, *kinds).map(lambda what: {"key": key, **what})


RANGES = st.dictionaries(st.sampled_from(["gt", "gte", "lt", "lte"]), NUMBERS, min_size=1).map(lambda r: {"range": r})
WHOLE = st.one_of(st.integers(-6, 12), st.sampled_from([2.0, 2**53 + 1, 2**63 - 1, -(2**63), -(2**63) + 1, 10**30]))
CONDITIONS = st.one_of(
    conditions("degree", matches(WHOLE), RANGES),
    conditions("age", matches(WHOLE), RANGES),
    conditions("height", matches(NUMBERS), RANGES),
    conditions("member", matches(st.booleans())),
    conditions("city", matches(TEXTS)),
    conditions("label", matches(TEXTS)),
)


def depth_of(part: dict[str, Any]) -> int:
    return 0 if "key" in part else 1 + max((depth_of(one) for clauses in part.values() for one in clauses), default=0)


FILTERS = st.recursive(
    CONDITIONS,
    lambda part: st.dictionaries(
        st.sampled_from(["must", "should", "must_not"]), st.lists(part, max_size=3), min_size=1
    ),
    max_leaves=6,
).filter(lambda part: 1 <= depth_of(part) <= MAX_DEPTH)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return attributed_bundle(tmp_path_factory.mktemp("graph"))


def rows_of(asked: Filters, wanted: dict[str, Any]) -> list[int]:
    return asked.matches(Filter.model_validate(wanted)).rows.tolist()


@settings(max_examples=300, deadline=None)
@given(wanted=FILTERS, block=st.integers(1, NODES))
def test_filters_are_plain_python(bundle: Bundle, wanted: dict[str, Any], block: int) -> None:
    block_rows, filters.BLOCK_ROWS = filters.BLOCK_ROWS, block
    try:
        found = Filters(bundle).matches(Filter.model_validate(wanted))
    finally:
        filters.BLOCK_ROWS = block_rows
    expected = [node for node, values in enumerate(VALUES) if fulfils(values, wanted)]
    assert (found.rows.tolist(), found.count) == (expected, len(expected))


def test_labels_may_be_given_as_numbers(bundle: Bundle) -> None:
    wanted = {"must": [{"key": "label", "match": {"any": [2, "0"]}}]}
    expected = [node for node, values in enumerate(VALUES) if values["label"] in {"0", "2"}]
    assert rows_of(Filters(bundle), wanted) == expected


def test_one_of_several_labels_is_enough(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    members = np.random.default_rng(0).random((NODES, 3)) < 0.3
    labelled = np.arange(NODES) % 4 > 0
    members[~labelled] = False
    monkeypatch.setattr(Bundle, "labels", None)
    monkeypatch.setattr(Bundle, "label_sets", LabelSets(members, labelled, ["a", "b", "c"]))
    asked = Filters(bundle)
    wanted = {"must": [{"key": "label", "match": {"any": ["a", "c", "nobody's"]}}]}
    assert rows_of(asked, wanted) == [node for node in range(NODES) if members[node, 0] or members[node, 2]]
    wanted = {"must": [{"key": "label", "is_null": True}]}
    assert rows_of(asked, wanted) == list(range(0, NODES, 4))


@pytest.mark.parametrize(
    ("condition", "pointer", "told"),
    [
        ({"key": "nobody", "is_null": True}, "key", "one of degree, label, city, age, height, member"),
        ({"key": "age", "match": {"value": "7"}}, "match/value", "a whole number"),
        ({"key": "age", "match": {"value": 7.5}}, "match/value", "a whole number"),
        ({"key": "age", "match": {"value": True}}, "match/value", "a whole number"),
        ({"key": "degree", "match": {"any": [1, False]}}, "match/any/1", "a whole number"),
        ({"key": "height", "match": {"value": False}}, "match/value", "a number"),
        ({"key": "member", "match": {"value": 1}}, "match/value", "true or false"),
        ({"key": "city", "match": {"any": ["Bern", 3]}}, "match/any/1", "a text"),
        ({"key": "label", "match": {"value": True}}, "match/value", "a text"),
        ({"key": "city", "range": {"gt": 1}}, "range", "an integer or a number"),
        ({"key": "member", "range": {"gt": 0}}, "range", "an integer or a number"),
    ],
)
def test_what_the_attributes_cannot_answer_is_pointed_at(
    bundle: Bundle, condition: dict[str, Any], pointer: str, told: str
) -> None:
    nested = {"should": [{"key": "age", "is_null": False}, {"must_not": [condition]}]}
    with pytest.raises(InputError) as error:
        Filters(bundle).matches(Filter.model_validate(nested))
    assert error.value.pointer == f"/filter/should/1/must_not/0/{pointer}"
    assert told in str(error.value.expected)


def test_a_graph_of_many_attributes_tells_some(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters, "NAMES_TOLD", 4)
    with pytest.raises(InputError) as error:
        rows_of(Filters(bundle), {"must": [{"key": "nobody", "is_null": True}]})
    assert error.value.expected == "one of degree, label, city, age and 2 more"


def deep(depth: int) -> dict[str, Any]:
    inner = {"must": [{"key": "age", "is_null": True}]}
    return inner if depth == 1 else {"must": [deep(depth - 1)]}


def test_filters_are_bounded() -> None:
    one = {"key": "age", "is_null": True}
    many = {"must": [one] * (MAX_CONDITIONS // 2), "should": [one] * (MAX_CONDITIONS // 2)}
    values = {"must": [{"key": "age", "match": {"any": [1] * MAX_VALUES}}]}
    for fits in (deep(MAX_DEPTH), many, values):
        Filter.model_validate(fits)
    values["must"][0]["match"]["any"] = [1] * (MAX_VALUES + 1)
    for beyond, told in (
        (deep(MAX_DEPTH + 1), f"more than {MAX_DEPTH} deep"),
        (many | {"must_not": [one]}, f"more than {MAX_CONDITIONS} conditions"),
        (values, f"at most {MAX_VALUES} items"),
    ):
        with pytest.raises(ValidationError, match=told):
            Filter.model_validate(beyond)


def test_a_repeated_filter_reads_nothing_and_the_oldest_go(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Filters(bundle)
    first, second, third = (
        Filter.model_validate({"must": [{"key": "age", "range": {"gte": low}}]}) for low in (-3, -2, -1)
    )
    monkeypatch.setattr(filters, "MASK_BYTES", 2 * NODES)
    kept = asked.matches(first)
    assert kept.nbytes == NODES
    asked.matches(second)
    assert asked.matches(first) is kept
    asked.matches(third)
    assert asked.matches(first) is kept
    monkeypatch.setattr(filters, "MASK_BYTES", NODES - 1)
    asked.matches(second)
    assert asked.matches(first) is not kept


def brute(vectors: npt.NDArray[Any], query: npt.NDArray[Any], k: int, allowed: list[int]) -> list[int]:
    """One cosine at a time, by score and then row."""
    scored = []
    for row in allowed:
        length = float(np.linalg.norm(vectors[row].astype(np.float64)) * np.linalg.norm(query))
        cosine = float(vectors[row].astype(np.float64) @ query) / length if length else 0.0
        scored.append((-round(cosine, 7), row))
    return [row for _, row in sorted(scored)[:k]]


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_scan_of_matches_is_brute_force(data: st.DataObject) -> None:
    nodes, k = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 45))
    # Whole numbers from few values make many exact ties, parallel vectors and zero vectors.
    numbers = data.draw(st.lists(st.integers(-2, 2), min_size=nodes * 3, max_size=nodes * 3))
    vectors = np.array(numbers, dtype=np.float32).reshape(nodes, 3)
    queries = np.array(data.draw(st.lists(st.lists(st.integers(1, 3), min_size=3, max_size=3), min_size=1, max_size=3)))
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=nodes, max_size=nodes)))
    excluded = [sorted(data.draw(st.sets(st.integers(0, nodes - 1)))) for _ in queries]
    block_bytes, exact.BLOCK_BYTES = exact.BLOCK_BYTES, 4 * 3 * data.draw(st.integers(1, 50))
    left_out = [np.array(rows, dtype=np.int64) for rows in excluded]
    try:
        found = nearest(Space(vectors, "exact", None), unit(queries), k, left_out, among=Matches(mask))
    finally:
        exact.BLOCK_BYTES = block_bytes
    for query, rows, answer in zip(queries, excluded, found, strict=True):
        allowed = [row for row in np.flatnonzero(mask).tolist() if row not in rows]
        assert answer.rows.tolist() == brute(vectors, query, k, allowed)
        assert (answer.strategy, answer.exact, answer.complete) == ("exact_filtered", True, len(allowed) >= k)


POINTS, CLUSTERS = 6000, 20


@pytest.fixture(scope="module")
def cloud() -> npt.NDArray[np.float32]:
    """Points about centres, point i about centre i mod 20."""
    rng = np.random.default_rng(2)
    centres = rng.standard_normal((CLUSTERS, 24))
    return (centres[np.arange(POINTS) % CLUSTERS] + rng.standard_normal((POINTS, 24))).astype(np.float32)


@pytest.fixture(scope="module", params=["hnsw", "ivf"])
def space(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, cloud: Any) -> Space:
    path = write_set(tmp_path_factory.mktemp("sets") / request.param, cloud)
    # Of 93 cells as few as find the nearest of all; matches alone lie in more.
    effort = 5 if request.param == "ivf" else None
    build_index(path, IndexSettings(kind=request.param, effort=effort, projection=QUICK_MAP), Emitter("index"))
    return EmbeddingSet(path).space()


@pytest.fixture
def no_scan_is_cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small sets stand for large ones, where the index is asked even for few matches."""
    monkeypatch.setattr(neighbors, "FEW_MATCHES", 0)
    monkeypatch.setattr(neighbors, "ROWS_A_CANDIDATE", 0)


@pytest.mark.usefixtures("no_scan_is_cheap")
@pytest.mark.parametrize("selectivity", [0.5, 0.2, 0.05])
@pytest.mark.parametrize("how", ["random", "like the query", "unlike the query"])
def test_recall_under_a_filter(space: Space, cloud: npt.NDArray[np.float32], selectivity: float, how: str) -> None:
    hits, strategies = 0, set()
    asked = range(40, 60)
    for number in asked:
        cosines = unit(cloud) @ unit(cloud[number])
        if how == "random":
            mask = np.random.default_rng(number).random(POINTS) < selectivity
        else:
            order = np.argsort(-cosines if how == "like the query" else cosines)
            mask = np.zeros(POINTS, dtype=np.bool_)
            mask[order[: int(selectivity * POINTS)]] = True
        mask[number] = True
        [answer] = nearest(space, unit(cloud[number])[None], 10, [np.array([number])], among=Matches(mask))
        strategies.add(answer.strategy)
        cosines[number], cosines[~mask] = -2, -2
        truth = np.argsort(-cosines, kind="stable")[:10]
        assert mask[answer.rows].all()
        assert (number not in answer.rows, len(answer.rows), answer.complete) == (True, 10, True)
        hits += len(set(truth.tolist()) & set(answer.rows.tolist()))
    assert hits / (10 * len(asked)) >= 0.95
    by_index = f"{space.kind}_filtered"
    assert (by_index in strategies) == (how != "unlike the query")
    assert strategies <= {by_index, "exact_fallback"}


def test_recall_of_more_neighbours_than_effort_keeps(tmp_path: Path, cloud: npt.NDArray[np.float32]) -> None:
    path = write_set(tmp_path / "set", cloud)
    build_index(path, IndexSettings(kind="hnsw", projection=QUICK_MAP), Emitter("index"))
    space = EmbeddingSet(path).space()
    [answer] = nearest(space, unit(cloud[3])[None], 1000, [np.array([3])], effort=16)
    truth = np.argsort(-(unit(cloud) @ unit(cloud[3])), kind="stable")[1:1001]
    assert answer.strategy == "hnsw"
    assert len(set(truth.tolist()) & set(answer.rows.tolist())) >= 950


def test_few_matches_are_scanned_at_once(space: Space, cloud: npt.NDArray[np.float32]) -> None:
    mask = np.zeros(POINTS, dtype=np.bool_)
    mask[[5, 17, 400, 5999]] = True
    query, none = unit(cloud[17])[None], [np.array([17])]
    [answer] = nearest(space, query, 10, none, among=Matches(mask))
    assert (answer.strategy, answer.exact, answer.complete) == ("exact_filtered", True, False)
    assert answer.rows.tolist() == brute(cloud, unit(cloud[17]), 10, [5, 400, 5999])
    [asked] = nearest(space, query, 2, none, among=Matches(mask), exact=True)
    assert (asked.strategy, asked.rows.tolist(), asked.complete) == ("exact", answer.rows[:2].tolist(), True)
    [nobody] = nearest(space, query, 2, none, among=Matches(np.zeros(POINTS, dtype=np.bool_)))
    assert (len(nobody.rows), nobody.complete) == (0, False)


@pytest.mark.usefixtures("no_scan_is_cheap")
def test_exclusions_and_a_filter_at_once(space: Space, cloud: npt.NDArray[np.float32]) -> None:
    mask = np.arange(POINTS) % 2 == 0
    order = brute(cloud, unit(cloud[8]), 50, np.flatnonzero(mask).tolist())
    excluded = np.sort([*order[:15], *range(1, 31, 2)])
    [answer] = nearest(space, unit(cloud[8])[None], 10, [excluded], among=Matches(mask))
    assert answer.strategy == f"{space.kind}_filtered"
    assert len(set(answer.rows.tolist()) & set(order[15:25])) >= 9
    assert not set(answer.rows.tolist()) & set(excluded.tolist())


@pytest.mark.usefixtures("no_scan_is_cheap")
def test_fewer_matches_than_neighbours_asked_for(space: Space, cloud: npt.NDArray[np.float32]) -> None:
    mask = np.arange(POINTS) < 5
    [answer] = nearest(space, unit(cloud[2])[None], 10, [np.array([2, 3000])], among=Matches(mask))
    assert answer.rows.tolist() == brute(cloud, unit(cloud[2]), 10, [0, 1, 3, 4])
    assert (answer.exact, answer.complete) == (True, False)
