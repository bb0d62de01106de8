"""Graphs from PyTorch Geometric: a ``Data`` object, or a data set by name.

Node ids are 0..N−1. ``edge_index``, ``edge_weight``, ``x``, ``y`` and masks of one split are read; everything else
(positions, masks of many splits) is reported and left. Data sets come through PyG, which downloads them and reads them
in its own formats.
"""

from __future__ import annotations

import hashlib
import inspect
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import scipy.sparse as sp
import torch
from torch_geometric import datasets
from torch_geometric.data import Data

from preprocessing.array_types import Float32Array
from preprocessing.errors import InputError
from preprocessing.features import FeatureDtype, FeatureSource, matrix_features
from preprocessing.ids import IdMap
from preprocessing.labels import LabelSetSource, LabelSource
from preprocessing.raw_graph import Notice, RawGraph, arcs_in_memory
from preprocessing.settings import PygSource
from preprocessing.splits import MASKS, SplitCodes, from_masks

__all__ = ["data_hash", "load_pyg", "read_pyg"]

BY_PART = ("PPI",)
"""Data sets of many graphs, which PyG loads a part of their split at a time."""


def load_pyg(settings: PygSource) -> Data:
    """The data set's graph, downloaded into ``settings.root`` where it is not there yet.

    PPI's graphs become one, side by side, and the parts that PyG tells apart its split.
    """
    family, _, name = settings.name.partition(":")
    if family in BY_PART:
        parts = ("train", "val", "test")
        return _side_by_side([list(_dataset(settings, family, name, split=part)) for part in parts])
    dataset = _dataset(settings, family, name)
    if len(dataset) != 1:
        raise InputError(
            "the data set is not one graph",
            where=settings.name,
            given=f"{len(dataset)} graphs",
            expected="one graph",
            remedy="pass one of its graphs to ingest_pyg",
        )
    return dataset[0]


def _side_by_side(parts: list[list[Data]]) -> Data:
    """The disjoint union of graphs, their masks telling the part that each is of."""
    graphs = [graph for part in parts for graph in part]
    sizes = torch.tensor([graph.num_nodes for graph in graphs])
    starts = (sizes.cumsum(0) - sizes).tolist()
    part_N = torch.repeat_interleave(
        torch.arange(len(parts)), torch.tensor([sum(graph.num_nodes for graph in part) for part in parts])
    )
    return Data(
        x=torch.cat([graph.x for graph in graphs]),
        y=torch.cat([graph.y for graph in graphs]),
        edge_index=torch.cat([graph.edge_index + start for graph, start in zip(graphs, starts, strict=True)], dim=1),
        **{mask: part_N == i for i, mask in enumerate(MASKS)},
    )


def _dataset(settings: PygSource, family: str, name: str, **chosen: str) -> Any:
    dataset_class = getattr(datasets, family)
    parameters = inspect.signature(dataset_class).parameters
    # WikiCS as published, for the direction policy is ours to apply.
    possible = {"root": settings.root, "name": name, "is_undirected": False, **chosen}
    arguments = {key: value for key, value in possible.items() if key in parameters}
    try:
        return dataset_class(**arguments)
    except OSError as error:
        raise InputError(
            f"the data set could not be fetched ({error})",
            where=settings.name,
            expected="a network, or the data set's files in the root folder",
            remedy=f"try again with a network, or put the files under {settings.root}",
        ) from error
    except (AssertionError, KeyError, ValueError) as error:
        raise InputError(
            f"PyG does not know this member of {family} ({error})",
            where=settings.name,
            given=name or "no name",
            expected=f"{family}:NAME",
            remedy="see the list of data sets in PyG's documentation",
        ) from error


def read_pyg(data: Data, dtype: FeatureDtype, where: str) -> RawGraph:
    """Read a ``Data`` object; ``InputError`` when it is no homogeneous graph or its tensors do not fit together."""
    if not isinstance(data, Data):
        raise _fault(where, "this is no homogeneous graph", type(data).__name__, "a torch_geometric.data.Data")
    if data.edge_index is None:
        raise _fault(where, "the graph has no edges", ", ".join(data.keys()), "edge_index [2, E]")
    nodes = int(data.num_nodes or 0)
    edge_index = _array(data.edge_index)
    if edge_index.ndim != 2 or len(edge_index) != 2 or edge_index.dtype.kind not in "iu":
        raise _fault(where, "wrong kind of edge_index", f"{edge_index.dtype} {edge_index.shape}", "integers [2, E]")
    outside = (edge_index < 0) | (edge_index >= nodes)
    if outside.any():
        end, edge = (int(i[0]) for i in np.nonzero(outside))
        raise _fault(
            where, f"edge_index[{end}, {edge}] names an unknown node", edge_index[end, edge], f"nodes 0 to {nodes - 1}"
        )
    labels, notices = _labels(data.y, nodes, where)
    weights = _weights(data.edge_weight, edge_index.shape[1], where)
    split = _split(data, nodes, where)
    masks = () if split is None else MASKS
    unread = ", ".join(sorted(set(data.keys()) - {*masks, "edge_index", "edge_weight", "x", "y", "num_nodes"}))
    if unread:
        notices.append(Notice("fields_unread", f"{where}: fields not used: {unread}"))
    return RawGraph(
        where,
        IdMap(np.arange(nodes, dtype=np.int64)),
        {"edges": arcs_in_memory(edge_index[0], edge_index[1], weights)},
        _features(data.x, nodes, dtype, where),
        labels,
        tuple(notices),
        split,
    )


def data_hash(data: Data) -> str:
    """sha256 of what ``read_pyg`` reads."""
    digest = hashlib.sha256(str(data.num_nodes).encode())
    for name in ("edge_index", "edge_weight", "x", "y", *MASKS):
        value = data.get(name)
        if isinstance(value, torch.Tensor):
            for array in _arrays(value):
                digest.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    return digest.hexdigest()


def _weights(edge_weight: Any, edges: int, where: str) -> Float32Array | None:
    if edge_weight is None:
        return None
    weights = _array(edge_weight).reshape(-1).astype(np.float32)
    if len(weights) != edges:
        raise _fault(where, "wrong kind of edge_weight", f"{len(weights)} numbers", f"{edges}, one an edge")
    bad = ~(np.isfinite(weights) & (weights > 0))
    if bad.any():
        at = int(np.argmax(bad))
        raise _fault(where, f"edge_weight[{at}] is no weight", weights[at], "finite positive numbers")
    return weights


def _features(x: Any, nodes: int, dtype: FeatureDtype, where: str) -> FeatureSource | None:
    if x is None:
        return None
    if not isinstance(x, torch.Tensor) or x.ndim != 2 or len(x) != nodes or x.shape[1] == 0 or x.is_complex():
        raise _fault(where, "wrong kind of x", getattr(x, "shape", type(x).__name__), f"numbers [{nodes}, F]")
    parts = _arrays(x)
    if len(parts) == 1:
        return matrix_features(parts[0], dtype, "x", where)
    values, places = parts
    return matrix_features(sp.csr_array((values, tuple(places)), shape=tuple(x.shape)), dtype, "x", where)


def _split(data: Data, nodes: int, where: str) -> SplitCodes | None:
    """The split of three masks [N]; none where they are not all there, or make many splits."""
    masks = {name: data.get(name) for name in MASKS}
    if not all(isinstance(mask, torch.Tensor) and mask.dtype == torch.bool for mask in masks.values()):
        return None
    if not all(mask.shape == (nodes,) for mask in masks.values()):
        return None
    return from_masks({name: _array(mask) for name, mask in masks.items()}, where)


def _labels(y: Any, nodes: int, where: str) -> tuple[LabelSource | LabelSetSource | None, list[Notice]]:
    """One class a node, a negative one meaning none, or truths [N, C] for any number of classes a node.

    Targets of another form are reported: the graph is good without them.
    """
    if y is None:
        return None, []
    values = _array(y) if isinstance(y, torch.Tensor) else np.empty(0)
    if values.ndim == 2 and len(values) == nodes and values.shape[1] > 1 and np.isin(values, (0, 1)).all():
        return LabelSetSource.of(values == 1), []
    values = values.reshape(-1)
    if len(values) != nodes or values.dtype.kind not in "iu":
        message = f"{where}: y is not used as labels: it is not one class a node"
        return None, [Notice("labels_unread", message)]
    return LabelSource.of(pa.array(values.astype(np.int64), mask=values < 0)), []


def _arrays(tensor: torch.Tensor) -> list[npt.NDArray[Any]]:
    """A dense tensor as one array, a sparse one as its values and their places [2, nonzeros]."""
    if tensor.layout == torch.strided:
        return [_array(tensor)]
    entries = tensor.to_sparse().coalesce()
    return [_array(entries.values()), _array(entries.indices())]


def _array(tensor: torch.Tensor) -> npt.NDArray[Any]:
    plain = tensor.detach().cpu()
    return (plain.float() if plain.dtype == torch.bfloat16 else plain).numpy()


def _fault(where: str, problem: str, given: object, expected: str) -> InputError:
    return InputError(problem, where=where, given=given, expected=expected, remedy="correct the Data object")
