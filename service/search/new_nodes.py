"""Vectors of nodes that an encoder never saw: those that append and embed would give them in the grown graph.

Nothing is written: the graph is read as it is, with the new nodes and their edges beside it. An edge changes how much a
known node hears of each of its others, so the new nodes' surroundings are computed anew, hop by hop (``surroundings``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from preprocessing.array_types import Float32Array, Int64Array
from preprocessing.bundle import Bundle
from preprocessing.errors import ArtifactError, InputError
from preprocessing.ids import IdMap
from service.search.encoder import open_encoders, read_config, read_tensors
from service.search.new_features import FeatureTransform, Rows, new_features
from service.search.new_node_schemas import NewEdge, NewNode
from service.search.surroundings import EdgeBudget, GrownGraph, surroundings
from trainer.settings import FeatureSettings

__all__ = ["NewNodeEncoder"]

UNION = ""
"""Where all relations are one graph."""


@dataclass(frozen=True)
class _Arcs:
    """Who hears whom, [A] each, by rows of the grown graph."""

    hears: Int64Array
    heard: Int64Array


class NewNodeEncoder:
    """The encoder of one embedding set and the graph it was made of, for calls from many threads."""

    def __init__(self, model: Path, bundle: Bundle) -> None:
        """``model`` is the set's folder of that name.

        ``ArtifactError`` where it is damaged; ``InputError`` where its features mean nothing for other nodes.
        """
        config = read_config(model)
        if bundle.features is None:
            raise _impossible("the features were hashed from the graph itself, and a new node has none")
        self._features = bundle.features
        self._transform = _transform(model, config)
        self._encoders = open_encoders(model, config)
        self._relations = bundle.relations
        self._direction = str(bundle.manifest["direction"])
        self._ids = bundle.ids
        self._graphs = {UNION: bundle.topology}
        if config["views"] == "relations":
            self._graphs = {name: bundle.relation(name) for name in bundle.relations}
        trained, graph = (config["in_dim"], config["relations"]), (self._features.shape[1], list(bundle.relations))
        if trained != graph or not self._graphs:
            raise ArtifactError(
                "the encoder is of another graph",
                given=f"{trained[0]} feature columns and relations {trained[1]}",
                expected=f"{graph[0]} feature columns and relations {graph[1]}",
                remedy="train again",
                where=str(model),
            )
        self._weighted = bundle.topology.weights is not None

    def embed(self, nodes: Sequence[NewNode], edges: Sequence[NewEdge], max_edges: int) -> Float32Array:
        """Vectors of ``nodes``, [M, D].

        ``InputError`` with a pointer for what append would refuse: a node that the graph has, or that comes twice; an
        edge to nobody, or of no relation; features that the graph could not hold. ``LimitError`` before more than
        ``max_edges`` edges are read.
        """
        features = new_features(nodes, self._features)
        arcs = self._arcs(_numbers(nodes, self._ids), edges)
        asked = np.arange(len(self._ids), len(self._ids) + len(nodes))
        budget, parts = EdgeBudget(max_edges), []
        for (name, topology), encoder in zip(self._graphs.items(), self._encoders, strict=True):
            graph = GrownGraph(topology, arcs[name].hears, arcs[name].heard)
            around = surroundings(graph, asked, encoder.num_layers, budget)
            rows = Rows(features, self._features, around.nodes[len(asked) :], self._transform)
            # What overflows is found below.
            with np.errstate(all="ignore"):
                parts.append(encoder.embed(around, rows))
        vectors: Float32Array = np.mean(parts, axis=0)
        broken = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
        if len(broken):
            raise InputError(
                "the vector of a new node is not finite",
                expected="features about as large as those of the graph's nodes",
                pointer=f"/nodes/{broken[0]}/features",
            )
        return vectors

    def _arcs(self, numbers: Mapping[str, int], edges: Sequence[NewEdge]) -> dict[str, _Arcs]:
        """The arcs of every graph."""
        for place, edge in enumerate(edges):
            self._check(edge, f"/edges/{place}")
        ends = self._ends(numbers, edges)
        arcs = {}
        for name in self._graphs:
            of_graph = np.array([name in (UNION, edge.relation) for edge in edges], dtype=np.bool_)
            source, target = ends[of_graph].T
            match self._direction:
                case "directed":
                    arcs[name] = _Arcs(target, source)
                case "reverse":
                    arcs[name] = _Arcs(source, target)
                case _:
                    arcs[name] = _Arcs(np.concatenate([source, target]), np.concatenate([target, source]))
        return arcs

    def _check(self, edge: NewEdge, pointer: str) -> None:
        if edge.relation not in (self._relations or (None,)):
            raise InputError(
                "the graph has no such relation" if edge.relation is not None else "the edge is of no relation",
                expected="one of " + ", ".join(self._relations) if self._relations else "edges of no relation",
                remedy="name a relation of the graph" if self._relations else "leave the relation out",
                pointer=f"{pointer}/relation",
            )
        if edge.weight is not None and not self._weighted:
            raise InputError(
                "the edge has a weight and the graph's have none",
                expected="an edge without a weight",
                pointer=f"{pointer}/weight",
            )

    def _ends(self, numbers: Mapping[str, int], edges: Sequence[NewEdge]) -> Int64Array:
        """Source and target of every edge, [E, 2], as rows of the grown graph."""
        names = [end for edge in edges for end in (edge.source, edge.target)]
        rows = np.array([numbers.get(str(name), -1) for name in names], dtype=np.int64)
        others = np.flatnonzero(rows < 0)
        rows[others] = self._ids.rows([names[place] for place in others])
        if (unknown := np.flatnonzero(rows < 0)).size:
            raise InputError(
                "the end of an edge is no node",
                expected="the id of a new node of this request, or of a node of the graph",
                pointer=f"/edges/{unknown[0] // 2}/{('source', 'target')[unknown[0] % 2]}",
            )
        ends = rows.reshape(-1, 2)
        known = np.flatnonzero((ends < len(self._ids)).all(axis=1))
        if known.size:
            raise InputError(
                "both ends of an edge are nodes of the graph",
                expected="edges of the new nodes",
                remedy="leave the edge out; rgrl append adds edges between known nodes",
                pointer=f"/edges/{known[0]}",
            )
        return ends


def _numbers(nodes: Sequence[NewNode], ids: IdMap) -> dict[str, int]:
    """Rows of new nodes in the grown graph, by name."""
    known = np.flatnonzero(ids.rows([node.id for node in nodes]) >= 0)
    if known.size:
        raise InputError(
            "the graph has this node already",
            expected="ids that the graph has not",
            remedy="look its vector up, or name the new node otherwise",
            pointer=f"/nodes/{known[0]}/id",
        )
    numbers: dict[str, int] = {}
    for place, node in enumerate(nodes):
        if numbers.setdefault(str(node.id), len(ids) + place) != len(ids) + place:
            raise InputError(
                "the id comes twice", expected="an id of its own for each new node", pointer=f"/nodes/{place}/id"
            )
    return numbers


def _transform(model: Path, config: Mapping[str, Any]) -> FeatureTransform:
    try:
        settings = FeatureSettings.model_validate(config["features"])
    except (KeyError, ValidationError) as error:
        raise ArtifactError(
            "the features' settings are not known here", remedy="train again", where=str(model / "config.json")
        ) from error
    if settings.zeroed > 0:
        raise _impossible("features.zeroed left out entries by the place of a node in its graph")
    if settings.transform != "standardize":
        return FeatureTransform(binarize=settings.transform == "binarize")
    tensors = read_tensors(model / "standardization.safetensors")
    if {name: tensor.shape for name, tensor in tensors.items()} != {
        name: (config.get("in_dim"),) for name in ("shift_F", "scale_F")
    }:
        raise ArtifactError(
            "the means and deviations of the features are not those of its columns",
            remedy="train again",
            where=str(model),
        )
    return FeatureTransform(shift_F=tensors["shift_F"], scale_F=tensors["scale_F"])


def _impossible(why: str) -> InputError:
    return InputError(
        f"this embedding set cannot embed new nodes: {why}",
        expected="a set that was trained on the features of nodes",
        remedy="train on a graph with node features and features.zeroed = 0, or append the nodes and train again",
    )
