"""PyG's samplers behind our protocol: the real ones where installed, and operations that answer as documented.

The stand-ins are registered under the libraries' own names with their own schemas, so a call that does not fit them
fails here as it would there; what they return is what those libraries return, for a whole neighbourhood.
"""

from __future__ import annotations

import importlib.util
import itertools
import sys
from collections.abc import Iterator
from types import ModuleType

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from preprocessing.bundle import Topology
from preprocessing.errors import InputError, UsageError
from trainer.sampler import NeighborSampler, NumbaSampler, Sample
from trainer.sampler_backends import PygLibSampler, TorchSparseSampler, new_sampler
from trainer.settings import BatchSettings

MODULES = {"pyg-lib": "pyg_lib", "torch-sparse": "torch_sparse"}
PYG_SCHEMA = (
    "neighbor_sample(Tensor rowptr, Tensor col, Tensor seed, int[] num_neighbors, Tensor? node_time = None, "
    "Tensor? edge_time = None, Tensor? seed_time = None, Tensor? edge_weight = None, bool csc = False, "
    "bool replace = False, bool directed = True, bool disjoint = False, str temporal_strategy = 'uniform', "
    "bool return_edge_id = True) -> (Tensor, Tensor, Tensor, Tensor?, int[], int[])"
)
OLD_PYG_SCHEMA = PYG_SCHEMA.replace("Tensor? edge_weight = None, ", "")
TORCH_SPARSE_SCHEMA = (
    "neighbor_sample(Tensor colptr, Tensor row, Tensor input_node, int[] num_neighbors, bool replace, bool directed)"
    " -> (Tensor, Tensor, Tensor, Tensor)"
)


def topology(dtype: type = np.int32, nodes: int = 60, seed: int = 0) -> Topology:
    """Rows of 0 to 12 neighbours, a hub that hears all others, and the last node heard by it alone."""
    rng = np.random.default_rng(seed)
    rows = [rng.choice(nodes - 1, rng.integers(0, 13), replace=False) for _ in range(nodes)]
    rows[3], rows[nodes - 1] = np.arange(nodes), np.array([], dtype=np.int64)
    rows = [np.sort(row[row != node]) for node, row in enumerate(rows)]
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    weights = rng.exponential(size=indptr[-1]).astype(np.float32) + np.float32(0.01)
    return Topology(indptr, np.concatenate(rows).astype(dtype), weights)


def hops_and_edges(drawn: Sample) -> tuple[list[set[int]], set[tuple[int, int]]]:
    bounds = [0, *drawn.hop_ends]
    hops = [set(drawn.nodes[first:end].tolist()) for first, end in itertools.pairwise(bounds)]
    hears = np.repeat(np.arange(len(drawn.indptr) - 1), np.diff(drawn.indptr))
    return hops, set(zip(drawn.nodes[hears].tolist(), drawn.nodes[drawn.indices].tolist(), strict=True))


def check_whole(sampler: NeighborSampler, graph: Topology) -> None:
    """All neighbours at three hops: the numba sampler's subgraph."""
    seeds, fan_out = np.array([7, 59, 20]), [-1, -1, -1]
    drawn = sampler.sample(graph, seeds, fan_out, 5)
    expected = NumbaSampler().sample(graph, seeds, fan_out, 0)
    assert (drawn.nodes.dtype, drawn.indptr.dtype, drawn.indices.dtype) == (np.int64, np.int64, np.int32)
    assert drawn.nodes[:3].tolist() == seeds.tolist()
    assert drawn.hop_ends == expected.hop_ends
    assert hops_and_edges(drawn) == hops_and_edges(expected)
    assert len(drawn.indices) == len(expected.indices)
    assert drawn.indptr.tolist()[-1] == len(drawn.indices)


def check_cut(sampler: NeighborSampler, graph: Topology, replace: bool) -> None:
    """Rows as long as they should be, of real arcs, in hop order; the same again, and torch's generator left alone."""
    seeds, fan_out = np.array([3, 59, 20]), [4, 2]
    before = torch.default_generator.get_state()
    drawn, again, other = (sampler.sample(graph, seeds, fan_out, number) for number in (1, 1, 2))
    assert torch.equal(torch.default_generator.get_state(), before)
    assert np.array_equal(drawn.nodes, again.nodes)
    assert np.array_equal(drawn.indices, again.indices)
    assert not np.array_equal(drawn.nodes, other.nodes)
    assert len(set(drawn.nodes.tolist())) == len(drawn.nodes) == drawn.hop_ends[-1]
    assert len(drawn.indptr) == drawn.hop_ends[-2] + 1
    first_seen = drawn.hop_ends[0]
    for position in range(drawn.hop_ends[-2]):
        hop = int(np.searchsorted(drawn.hop_ends, position, side="right"))
        available = graph.neighbors(int(drawn.nodes[position])).tolist()
        entries = drawn.indices[drawn.indptr[position] : drawn.indptr[position + 1]]
        picked = drawn.nodes[entries].tolist()
        most = fan_out[hop] if replace and available else len(available)
        assert len(picked) == min(fan_out[hop], most)
        assert set(picked) <= set(available)
        repeated = [n for n in range(1, len(picked)) if picked[n] == picked[n - 1]]
        assert len(picked) - len(set(picked)) == len(repeated)
        assert replace or not repeated
        assert all(entry < drawn.hop_ends[hop + 1] for entry in entries)
        first_seen = max(first_seen, *(entry + 1 for entry in entries), 0)
    assert first_seen == drawn.hop_ends[-1]


@pytest.fixture(params=list(MODULES))
def installed(request: pytest.FixtureRequest) -> str:
    if importlib.util.find_spec(MODULES[request.param]) is None:
        pytest.skip(f"{request.param} is not installed")
    return str(request.param)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("replace", [False, True])
def test_an_installed_back_end_gives_our_subgraph(installed: str, dtype: type, replace: bool) -> None:
    sampler = new_sampler(BatchSettings(sampler=installed, replace=replace))
    assert sampler.name == installed
    check_whole(sampler, topology(dtype))
    check_cut(sampler, topology(dtype), replace)


def test_installed_pyg_lib_follows_weights() -> None:
    pytest.importorskip("pyg_lib", reason="pyg-lib is not installed")
    check_cut(PygLibSampler(weighted=True), topology(), False)
    star = Topology(np.array([0, 2, 2, 2]), np.array([1, 2], dtype=np.int32), np.array([1, 9], dtype=np.float32))
    sampler = PygLibSampler(weighted=True)
    share = np.mean([sampler.sample(star, np.array([0]), [1], seed).nodes[1] == 2 for seed in range(2_000)])
    assert share == pytest.approx(0.9, abs=0.04)


class Walk:
    """What both libraries do: a node expanded once, new nodes numbered as they come, and arcs as they are drawn."""

    def __init__(self, indptr: Tensor, indices: Tensor, seeds: Tensor, fan_out: list[int], replace: bool) -> None:
        self.nodes, self.hears, self.heard = seeds.tolist(), [], []
        self.nodes_a_hop, self.arcs_a_hop = [len(self.nodes)], []
        first = 0
        for width in fan_out:
            end, arcs = len(self.nodes), len(self.hears)
            for position in range(first, end):
                begin, stop = indptr[self.nodes[position]], indptr[self.nodes[position] + 1]
                self._expand(position, indices[begin:stop].tolist(), width, replace)
            first = end
            self.nodes_a_hop.append(len(self.nodes) - end)
            self.arcs_a_hop.append(len(self.hears) - arcs)

    def _expand(self, position: int, row: list[int], width: int, replace: bool) -> None:
        if width >= 0 and row and (replace or width < len(row)):
            places = torch.randint(len(row), (width,)) if replace else torch.randperm(len(row))[:width]
            row = [row[place] for place in places]
        for node in row:
            if node not in self.nodes:
                self.nodes.append(node)
            self.hears.append(position)
            self.heard.append(self.nodes.index(node))


@pytest.fixture(params=list(MODULES))
def stand_in(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    name = str(request.param)
    if importlib.util.find_spec(MODULES[name]) is not None:
        pytest.skip(f"{name} itself is installed, and tested")
    with registered(name, monkeypatch):
        yield name


def registered(name: str, monkeypatch: pytest.MonkeyPatch, schema: str = PYG_SCHEMA):
    monkeypatch.setitem(sys.modules, MODULES[name], ModuleType(MODULES[name]))
    library = torch.library._scoped_library("pyg" if name == "pyg-lib" else "torch_sparse", "FRAGMENT")

    class Registered:
        def __enter__(self) -> None:
            made = library.__enter__()
            if name == "pyg-lib":
                made.define(schema)
                made.impl("neighbor_sample", pyg_lib_operation, "CPU")
            else:
                made.define(TORCH_SPARSE_SCHEMA)
                made.impl("neighbor_sample", torch_sparse_operation, "CPU")

        def __exit__(self, *failure: object) -> None:
            library.__exit__(*failure)

    return Registered()


def pyg_lib_operation(
    rowptr: Tensor,
    col: Tensor,
    seed: Tensor,
    num_neighbors: list[int],
    node_time: Tensor | None = None,
    edge_time: Tensor | None = None,
    seed_time: Tensor | None = None,
    edge_weight: Tensor | None = None,
    csc: bool = False,
    replace: bool = False,
    directed: bool = True,
    disjoint: bool = False,
    temporal_strategy: str = "uniform",
    return_edge_id: bool = True,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, list[int], list[int]]:
    """pyg_lib/csrc/sampler/neighbor.cpp: row, col, node, edge id, and nodes and arcs a hop; swapped where ``csc``."""
    assert rowptr.dtype == col.dtype == seed.dtype, "checkAllSameType"
    assert (directed, disjoint, node_time, edge_time, seed_time) == (True, False, None, None, None)
    assert edge_weight is None or len(edge_weight) == len(col)
    walk = Walk(rowptr, col, seed, num_neighbors, replace)
    row, column, node = (torch.tensor(part, dtype=col.dtype) for part in (walk.hears, walk.heard, walk.nodes))
    edge = None if not return_edge_id else torch.zeros_like(row)
    pair = (column, row) if csc else (row, column)
    return *pair, node, edge, walk.nodes_a_hop, walk.arcs_a_hop


def torch_sparse_operation(
    colptr: Tensor, row: Tensor, input_node: Tensor, num_neighbors: list[int], replace: bool, directed: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """csrc/neighbor_sample.cpp: node, row (whom), column (who hears), edge id."""
    assert colptr.dtype == row.dtype == input_node.dtype == torch.int64, "data_ptr<int64_t>"
    assert directed
    walk = Walk(colptr, row, input_node, num_neighbors, replace)
    node, whom, who = (torch.tensor(part, dtype=torch.int64) for part in (walk.nodes, walk.heard, walk.hears))
    return node, whom, who, torch.zeros_like(who)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("replace", [False, True])
def test_what_an_operation_returns_becomes_our_sample(stand_in: str, dtype: type, replace: bool) -> None:
    sampler = new_sampler(BatchSettings(sampler=stand_in, replace=replace))
    assert sampler.name == stand_in
    check_whole(sampler, topology(dtype))
    check_cut(sampler, topology(dtype), replace)
    none = sampler.sample(topology(dtype), np.array([59]), [2, 2], 0)
    assert (none.nodes.tolist(), none.hop_ends, none.indptr.tolist()) == ([59], [1, 1, 1], [0, 0])


def test_memory_maps_are_read_where_they_are(stand_in: str, tmp_path, recwarn: pytest.WarningsRecorder) -> None:
    graph = topology()
    for name in ("indptr", "indices", "weights"):
        np.save(tmp_path / f"{name}.npy", getattr(graph, name))
    check_whole(new_sampler(BatchSettings(sampler=stand_in)), Topology.open(tmp_path))
    assert not recwarn.list


def test_pyg_lib_is_given_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("pyg_lib") is not None:
        pytest.skip("pyg-lib itself is installed, and tested")
    given: list[Tensor | None] = []
    plain = pyg_lib_operation
    monkeypatch.setitem(
        globals(),
        "pyg_lib_operation",
        lambda *a, **k: (given.append(k.get("edge_weight", a[7] if len(a) > 7 else None)), plain(*a, **k))[1],
    )
    graph = topology()
    with registered("pyg-lib", monkeypatch):
        PygLibSampler(weighted=True).sample(graph, np.array([3]), [2], 0)
        PygLibSampler().sample(graph, np.array([3]), [2], 0)
        bare = Topology(graph.indptr, graph.indices)
        with pytest.raises(InputError, match="no edge weights"):
            PygLibSampler(weighted=True).sample(bare, np.array([3]), [2], 0)
    assert given[0] is not None
    assert np.array_equal(given[0].numpy(), graph.weights)
    assert given[1] is None


def test_a_pyg_lib_without_weights_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("pyg_lib") is not None:
        pytest.skip("pyg-lib itself is installed, and tested")
    with registered("pyg-lib", monkeypatch, OLD_PYG_SCHEMA):
        assert PygLibSampler().name == "pyg-lib"
        with pytest.raises(UsageError, match="cannot sample by edge weights"):
            PygLibSampler(weighted=True)


@pytest.mark.parametrize("name", list(MODULES))
def test_one_that_is_absent_says_how_to_get_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, MODULES[name], None)
    with pytest.raises(UsageError, match=f"sampler {name} is not installed") as error:
        new_sampler(BatchSettings(sampler=name))
    assert "pip install" in error.value.remedy
    assert error.value.pointer == "/settings/batch/sampler"
    assert new_sampler(BatchSettings()).name == "numba"


def test_settings_become_the_sampler() -> None:
    assert new_sampler(BatchSettings(replace=True)) == NumbaSampler(replace=True)
    assert new_sampler(BatchSettings(sampler="numba", weighted=True)) == NumbaSampler(weighted=True)
    with pytest.raises(ValidationError, match=r"batch\.weighted is for batch\.sampler = numba or pyg-lib"):
        BatchSettings(sampler="torch-sparse", weighted=True)
    assert BatchSettings(sampler="pyg-lib", weighted=True, replace=True).weighted


def test_torch_sparse_takes_no_weights() -> None:
    with pytest.raises(TypeError):
        TorchSparseSampler(weighted=True)
