"""Arcs to CSR: against sets, whatever the buckets and blocks, with weights, and after a kill."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from preprocessing import topology
from preprocessing.arc_buckets import WORKING_COPIES, ArcBuckets
from preprocessing.bundle import Topology
from preprocessing.errors import InputError
from preprocessing.topology import Direction, EdgeCounts, _Entries, _RowFiles, write_topology

SIZE = 6
ARCS = st.lists(st.tuples(st.integers(0, SIZE - 1), st.integers(0, SIZE - 1)), max_size=40)
BIG, ENTRY = 1 << 20, 8


def nothing(*_: int) -> None:
    return None


def blocks(pairs: np.ndarray, length: int) -> list[np.ndarray]:
    return [pairs[first : first + length] for first in range(0, len(pairs), length)]


def loaded(folder: Path) -> Topology:
    weights = folder / "weights.npy"
    return Topology(
        np.load(folder / "indptr.npy"),
        np.load(folder / "indices.npy"),
        np.load(weights) if weights.exists() else None,
    )


def built(
    folder: Path,
    pairs: np.ndarray,
    direction: Direction,
    *,
    size: int = SIZE,
    memory: int = BIG,
    block: int = 7,
    weights: np.ndarray | None = None,
) -> tuple[Topology, Topology, EdgeCounts]:
    with ArcBuckets(folder / "buckets", size, len(pairs), memory, weighted=weights is not None) as buckets:
        for number, part in enumerate(blocks(pairs, block)):
            chosen = None if weights is None else weights[number * block : (number + 1) * block]
            buckets.add(part[:, 0], part[:, 1], chosen)
        counts = write_topology(buckets, folder / "topology", direction, nothing)
    own = loaded(folder / "topology")
    return own, own if direction == "undirected" else loaded(folder / "topology" / "symmetric"), counts


def rows(csr: Topology) -> list[list[int]]:
    return [csr.neighbors(row).tolist() for row in range(csr.num_nodes)]


def heard(arcs: list[tuple[int, int]], direction: Direction) -> list[list[int]]:
    """Whom each node hears from, by the definition and with sets."""
    hears: list[set[int]] = [set() for _ in range(SIZE)]
    for source, target in arcs:
        if source != target:
            if direction in ("directed", "undirected"):
                hears[target].add(source)
            if direction in ("reverse", "undirected"):
                hears[source].add(target)
    return [sorted(row) for row in hears]


@pytest.mark.parametrize("memory", [BIG, 40 * ENTRY * WORKING_COPIES, ENTRY * WORKING_COPIES])
@pytest.mark.parametrize("direction", ["undirected", "directed", "reverse"])
@given(arcs=ARCS, index=st.sampled_from([np.int32, np.int64]))
def test_csr_and_counts_are_those_of_sets(
    memory: int, index: type, direction: Direction, arcs: list[tuple[int, int]]
) -> None:
    pairs = np.array(arcs, dtype=np.int64).reshape(-1, 2)
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(topology, "index_dtype", lambda _: np.dtype(index))
        own, symmetric, counts = built(Path(folder), pairs, direction, memory=memory)
    assert rows(own) == heard(arcs, direction)
    assert rows(symmetric) == heard(arcs, "undirected")
    assert own.indices.dtype == index
    assert own.indptr.dtype == np.int64
    distinct = {arc for arc in arcs if arc[0] != arc[1]}
    unordered = {frozenset(arc) for arc in distinct}
    assert counts.given == len(arcs)
    assert counts.self_loops == sum(source == target for source, target in arcs)
    assert counts.given - counts.self_loops - counts.duplicate_edges == len(distinct)
    assert counts.reciprocal_edges == len(distinct) - len(unordered)
    assert counts.edges == len(unordered if direction == "undirected" else distinct)
    assert counts.arcs == sum(map(len, heard(arcs, direction)))
    assert counts.isolated == SIZE - len({node for arc in distinct for node in arc})


@pytest.mark.parametrize("direction", ["undirected", "directed", "reverse"])
@given(arcs=ARCS, data=st.data())
def test_weights_of_repeats_add_up_and_the_larger_direction_wins(
    direction: Direction, arcs: list[tuple[int, int]], data: st.DataObject
) -> None:
    # Eighths: sums are exact, so an oracle may add in any order.
    eighths = data.draw(st.lists(st.integers(1, 80), min_size=len(arcs), max_size=len(arcs)))
    weights = np.array(eighths, dtype=np.float32) / 8
    pairs = np.array(arcs, dtype=np.int64).reshape(-1, 2)
    total = np.zeros((SIZE, SIZE))
    for (source, target), weight in zip(arcs, weights, strict=True):
        if source != target:
            total[source, target] += weight
    expected = {"directed": total.T, "reverse": total, "undirected": np.maximum(total, total.T)}
    with tempfile.TemporaryDirectory() as folder:
        own, symmetric, _ = built(Path(folder), pairs, direction, weights=weights)
    for csr, dense in ((own, expected[direction]), (symmetric, expected["undirected"])):
        assert csr.weights is not None
        found = np.zeros((SIZE, SIZE))
        for row in range(SIZE):
            found[row, csr.neighbors(row)] = csr.weights[csr.indptr[row] : csr.indptr[row + 1]]
        assert np.array_equal(found, dense)
        assert csr.strengths() == pytest.approx(dense.sum(axis=1))


def test_bytes_do_not_depend_on_order_blocks_or_memory(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, 300, (4000, 2))
    pairs[::3, 0] = 7
    weights = rng.random(4000).astype(np.float32)
    shuffled = rng.permutation(4000)
    seen = set()
    for number, (order, memory, block) in enumerate(
        [(np.arange(4000), BIG, 4000), (shuffled, 5000, 100), (shuffled[::-1], 300, 4000)]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        built(folder, pairs[order], "directed", size=300, memory=memory, block=block, weights=weights[order])
        seen.add(tuple(file.read_bytes() for file in sorted((folder / "topology").rglob("*.npy"))))
    assert len(seen) == 1


def test_a_row_larger_than_the_memory_is_still_a_row(tmp_path: Path) -> None:
    star = np.stack([np.zeros(1000, dtype=np.int64), np.arange(1, 1001)], axis=1)
    own, _, counts = built(tmp_path, star, "undirected", size=1001, memory=100)
    assert own.neighbors(0).tolist() == list(range(1, 1001))
    assert counts.edges == 1000


def test_undirected_rows_are_kept_once(tmp_path: Path) -> None:
    built(tmp_path, np.array([[0, 1]]), "undirected", size=3)
    assert sorted(path.name for path in (tmp_path / "topology").iterdir()) == ["indices.npy", "indptr.npy"]


def test_a_killed_build_goes_on_at_its_block_and_at_its_bucket(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    pairs = rng.integers(0, 200, (3000, 2))
    weights = rng.random(3000).astype(np.float32)
    settings: dict[str, Any] = {"memory": 4000, "weighted": True}
    (tmp_path / "whole").mkdir()
    whole = built(tmp_path / "whole", pairs, "reverse", size=200, memory=4000, block=500, weights=weights)

    folder = tmp_path / "killed"

    def parts(numbers: range) -> Iterator[tuple[np.ndarray, ...]]:
        for number in numbers:
            part = slice(number * 500, (number + 1) * 500)
            yield pairs[part, 0], pairs[part, 1], weights[part]

    with ArcBuckets(folder, 200, 3000, **settings) as first:
        for part in parts(range(3)):
            first.add(*part)
        # Killed while the fourth block was written: entries past the journal.
        first._keys[0].append(np.arange(5, dtype=np.uint64))
        first._weights[0].append(np.ones(5, dtype=np.float32))

    def dying(done: int, total: int) -> None:
        if done == total // 2:
            raise KeyboardInterrupt

    with ArcBuckets(folder, 200, 3000, **settings) as again:
        assert again.blocks == 3
        for part in parts(range(3, 6)):
            again.add(*part)
        with pytest.raises(KeyboardInterrupt):
            write_topology(again, tmp_path / "topology", "reverse", dying)
    done: list[int] = []
    with ArcBuckets(folder, 200, 3000, **settings) as last:
        counts = write_topology(last, tmp_path / "topology", "reverse", lambda bucket, _: done.append(bucket))
    assert done[0] == last.layout.buckets // 2 + 1
    assert counts == whole[2]
    for name in ("indptr.npy", "indices.npy", "weights.npy"):
        for part in (".", "symmetric"):
            made, expected = tmp_path / "topology" / part / name, tmp_path / "whole" / "topology" / part / name
            assert made.read_bytes() == expected.read_bytes()


def test_positions_past_two_to_the_31(tmp_path: Path) -> None:
    """Offsets faked: rows appended after 3·10^9 entries that are only said to be there (a sparse file)."""
    before = 3_000_000_000
    files = _RowFiles.open(tmp_path, 4, 0, weighted=False)
    files.indptr[1] = before
    files.indices._length = before
    # Rows 1 and 3 of three rows, a column, and no direction bit: outgoing.
    keys = np.array([0 << 4 | 2 << 1, 2 << 4 | 1 << 1, 2 << 4 | 3 << 1], dtype=np.uint64)
    files.append("outgoing", _Entries.of(1, 3, keys, None), 4)
    assert files.indptr.tolist() == [0, before, before + 1, before + 1, before + 3]
    assert files.finish() == before + 3
    files.close()


def test_indices_are_int32_below_two_to_the_31_nodes() -> None:
    assert topology.index_dtype(2**31 - 1) == np.int32
    assert topology.index_dtype(2**31) == np.int64


@pytest.mark.parametrize("nodes", [2**31 - 1, 2**31, 2**33])
def test_entries_of_the_largest_rows_fit_into_64_bits(tmp_path: Path, nodes: int) -> None:
    with ArcBuckets(tmp_path, nodes, 10**9, 1 << 34, weighted=False) as buckets:
        buckets.add(np.array([nodes - 1]), np.array([nodes - 2]))
        layout = buckets.layout
        [(first, _, keys, _)] = list(buckets.pieces(layout.buckets - 1))
    shift, mask = np.uint64(layout.bits), np.uint64((1 << layout.bits) - 1)
    assert [(first + int(key >> shift), int(key & mask) >> 1, int(key & np.uint64(1))) for key in keys] == [
        (nodes - 1, nodes - 2, 0),
        (nodes - 2, nodes - 1, 1),
    ]


@pytest.mark.parametrize("direction", ["undirected", "directed", "reverse"])
def test_weights_of_repeats_that_add_up_to_infinity_are_refused(tmp_path: Path, direction: Direction) -> None:
    pairs, weights = np.array([[0, 1], [0, 1], [2, 3]]), np.array([3e38, 3e38, 1], dtype=np.float32)
    with pytest.raises(InputError, match="add up to more than float32 holds"):
        built(tmp_path, pairs, direction, weights=weights)
