"""A trained encoder in numpy: what ``trainer.encoders`` computes for some nodes, where there is no torch.

An embedding set keeps its encoder in ``model/``: ``config.json`` says what it is built of, ``encoder.safetensors`` are
its weights. The formulas are those of ``trainer/encoders``, in float32, by the fixed statistics that embeddings are
made with.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load_file

from preprocessing.array_types import Float32Array
from preprocessing.artifact import read_plain
from preprocessing.errors import ArtifactError
from service.search.surroundings import Surroundings
from trainer.settings import EncoderSettings

__all__ = ["Encoder", "FeatureRows", "open_encoders", "read_config", "read_tensors"]

EPSILON = 1e-5
"""What BatchNorm and LayerNorm add to a variance: torch's default, which the trainer leaves as it is."""

Tensors = Mapping[str, Float32Array]


class FeatureRows(Protocol):
    """Features of the nodes that are looked at, in their order."""

    def times(self, weight_FD: Float32Array, rows: int) -> Float32Array:
        """Those of the first ``rows`` nodes times a weight, [rows, D]."""


class Encoder(ABC):
    """Layers of the widths that the settings name; the last is the embedding's."""

    def __init__(self, settings: EncoderSettings, tensors: Tensors) -> None:
        """``tensors`` are named and shaped as ``_shapes`` says."""
        self.num_layers = len(settings.layers)
        self.settings, self._tensors = settings, tensors

    def embed(self, around: Surroundings, x: FeatureRows) -> Float32Array:
        """The embeddings of the nodes that ``around`` is around, [ends[0], D]."""
        weight_E, own_R = self.adjacency(around)
        state_nD = np.empty((0, 0), dtype=np.float32)
        own: tuple[Float32Array, ...] = ()
        for number in range(self.num_layers):
            rows, columns = around.ends[self.num_layers - 1 - number], around.ends[self.num_layers - number]
            weight = self.heard_weight(number)
            told_nD = x.times(weight, columns) if number == 0 else state_nD @ weight
            entries = around.indptr[rows]
            parts = (weight_E[:entries], around.indices[:entries], around.indptr[: rows + 1])
            heard_RD = sp.csr_array(parts, shape=(rows, columns)) @ told_nD
            heard_RD += own_R[:rows, None] * told_nD[:rows]
            state_nD, own = self.advance(number, heard_RD, [kept[:rows] for kept in own], x)
        return state_nD

    @abstractmethod
    def adjacency(self, around: Surroundings) -> tuple[Float32Array, Float32Array]:
        """What arcs weigh, [E], and what the nodes that hear weigh to themselves, [R]."""

    @abstractmethod
    def heard_weight(self, number: int) -> Float32Array:
        """W of layer ``number``, from 0: its nodes hear A X W of others."""

    @abstractmethod
    def advance(
        self, number: int, heard_RD: Float32Array, own: Sequence[Float32Array], x: FeatureRows
    ) -> tuple[Float32Array, tuple[Float32Array, ...]]:
        """R nodes after layer ``number``: what others hear of them next, and what they keep themselves."""

    def tensor(self, number: int, name: str) -> Float32Array:
        """One of layer ``number``."""
        return self._tensors[f"layers.{number}.{name}"]

    def prelu(self, number: int, x_RD: Float32Array) -> Float32Array:
        """What is negative is multiplied by the layer's slope."""
        return np.where(x_RD > 0, x_RD, x_RD * self.tensor(number, "activation.weight"))


class GcnEncoder(Encoder):
    """PReLU(BatchNorm(A X W + b)) a layer, A normalised symmetrically, with self-loops."""

    def adjacency(self, around: Surroundings) -> tuple[Float32Array, Float32Array]:
        """``1 / sqrt((d_i + w)(d_j + w))``, and ``w / (d_i + w)`` of themselves."""
        settings = self.settings
        loop = np.float32(settings.embedding_self_loop_weight or settings.self_loop_weight)
        root_n = 1 / np.sqrt(around.degrees.astype(np.float32) + loop)
        root_R = root_n[: len(around.indptr) - 1]
        return np.repeat(root_R, np.diff(around.indptr)) * root_n[around.indices], loop * np.square(root_R)

    def heard_weight(self, number: int) -> Float32Array:
        """That of the layer."""
        return self.tensor(number, "weight")

    def advance(
        self, number: int, heard_RD: Float32Array, own: Sequence[Float32Array], x: FeatureRows
    ) -> tuple[Float32Array, tuple[Float32Array, ...]]:
        """A node keeps nothing of its own: its self-loop is in A."""
        del own, x
        scale_D = self.tensor(number, "norm.weight") / np.sqrt(self.tensor(number, "norm.running_var") + EPSILON)
        centre_D = self.tensor(number, "bias") - self.tensor(number, "norm.running_mean")
        shift_D = self.tensor(number, "norm.bias") + centre_D * scale_D
        return self.prelu(number, heard_RD * scale_D + shift_D), ()


class SageEncoder(Encoder):
    """h = PReLU(LayerNorm(A U W + U W' + b)), A the mean over neighbours."""

    def adjacency(self, around: Surroundings) -> tuple[Float32Array, Float32Array]:
        """``1 / d_i``; nobody hears of itself."""
        degree_R = np.diff(around.indptr)
        return np.repeat(1 / np.maximum(degree_R, 1).astype(np.float32), degree_R), np.zeros(len(degree_R), np.float32)

    def heard_weight(self, number: int) -> Float32Array:
        """That of the layer for what is heard."""
        return self.tensor(number, "weight_heard")

    def hidden(self, number: int, heard_RD: Float32Array, input_W: Float32Array) -> Float32Array:
        """h of the layer, given what is heard and U W'."""
        sum_RD = heard_RD + input_W + self.tensor(number, "bias")
        sum_RD -= sum_RD.mean(axis=1, keepdims=True)
        sum_RD /= np.sqrt(np.square(sum_RD).mean(axis=1, keepdims=True) + EPSILON)
        return self.prelu(number, sum_RD * self.tensor(number, "norm.weight") + self.tensor(number, "norm.bias"))


class SageResidualEncoder(SageEncoder):
    """u₁ = h₁(X), u_l = u_{l−1} + h_l(u_{l−1})."""

    def advance(
        self, number: int, heard_RD: Float32Array, own: Sequence[Float32Array], x: FeatureRows
    ) -> tuple[Float32Array, tuple[Float32Array, ...]]:
        """A node keeps u."""
        weight = self.tensor(number, "weight_own")
        if number == 0:
            output_RD = self.hidden(0, heard_RD, x.times(weight, len(heard_RD)))
        else:
            (input_RD,) = own
            output_RD = input_RD + self.hidden(number, heard_RD, input_RD @ weight)
        return output_RD, (output_RD,)


class SageSkipEncoder(SageEncoder):
    """Layer l hears h₁ + … + h_{l−1} + X S_l; the embedding is the last h."""

    def advance(
        self, number: int, heard_RD: Float32Array, own: Sequence[Float32Array], x: FeatureRows
    ) -> tuple[Float32Array, tuple[Float32Array, ...]]:
        """A node keeps its input of the layer, and the sum of its outputs so far."""
        weight = self.tensor(number, "weight_own")
        input_W = x.times(weight, len(heard_RD)) if number == 0 else own[0] @ weight
        hidden_RD = self.hidden(number, heard_RD, input_W)
        if number + 1 == self.num_layers:
            return hidden_RD, ()
        sum_RD = own[1] + hidden_RD if number > 0 else hidden_RD
        input_RD = sum_RD + x.times(self._tensors[f"skips.{number}"], len(heard_RD))
        return input_RD, (input_RD, sum_RD)


_KINDS: Mapping[str, type[Encoder]] = {
    "gcn": GcnEncoder,
    "sage_residual": SageResidualEncoder,
    "sage_skip": SageSkipEncoder,
}


def read_config(directory: Path) -> dict[str, Any]:
    """What the model in ``directory`` is built of; ``ArtifactError`` where there is none."""
    file = directory / "config.json"
    try:
        config = json.loads(read_plain(file))
    except (OSError, ValueError) as error:
        raise _damaged(file, f"the encoder's settings cannot be read ({error})") from error
    if not isinstance(config, dict):
        raise _damaged(file, "the encoder's settings are no settings")
    return config


def read_tensors(file: Path) -> dict[str, Float32Array]:
    """The tensors of a safetensors file; ``ArtifactError`` where it cannot be read."""
    try:
        return load_file(file)
    except (OSError, SafetensorError) as error:
        raise _damaged(file, f"the encoder's weights cannot be read ({error})") from error


def open_encoders(directory: Path, config: Mapping[str, Any]) -> list[Encoder]:
    """The encoder of every graph that a vector is the mean over: one graph, or one for each relation.

    ``ArtifactError`` where settings and weights do not fit together, or are of a kind that is not known here.
    """
    file = directory / "encoder.safetensors"
    tensors = read_tensors(file)
    try:
        settings = EncoderSettings.model_validate(config["encoder"])
        relations = list(config["relations"])
        graphs = len(relations) if config["views"] == "relations" else 1
        shapes = _shapes(settings, int(config["in_dim"]))
    except (KeyError, TypeError, ValidationError) as error:
        raise _damaged(directory / "config.json", "the encoder is of a kind that is not known here") from error
    own = range(graphs) if settings.per_relation else [None]
    expected = {f"{_prefix(number)}{name}": shape for number in own for name, shape in shapes.items()}
    found = {name: tensor.shape for name, tensor in tensors.items() if not name.endswith(".num_batches_tracked")}
    if found != expected:
        raise _damaged(file, "the encoder's weights are not those of its settings")
    return [
        _KINDS[settings.kind](settings, {name: tensors[f"{_prefix(number)}{name}"] for name in shapes})
        for number in (range(graphs) if settings.per_relation else [None] * graphs)
    ]


def _prefix(relation: int | None) -> str:
    return "" if relation is None else f"encoders.{relation}."


def _shapes(settings: EncoderSettings, in_dim: int) -> dict[str, tuple[int, ...]]:
    """The tensors of one encoder."""
    shapes: dict[str, tuple[int, ...]] = {}
    gcn = settings.kind == "gcn"
    for number, (width, following) in enumerate(pairwise([in_dim, *settings.layers])):
        matrices = ("weight",) if gcn else ("weight_heard", "weight_own")
        vectors = ("bias", "norm.weight", "norm.bias", *(("norm.running_mean", "norm.running_var") if gcn else ()))
        of_layer: dict[str, tuple[int, ...]] = dict.fromkeys(matrices, (width, following))
        of_layer |= dict.fromkeys(vectors, (following,)) | {"activation.weight": (1,)}
        shapes |= {f"layers.{number}.{name}": shape for name, shape in of_layer.items()}
    if settings.kind == "sage_skip":
        shapes |= {f"skips.{number}": (in_dim, width) for number, width in enumerate(settings.layers[:-1])}
    return shapes


def _damaged(file: Path, what: str) -> ArtifactError:
    return ArtifactError(
        what, expected="the encoder of an embedding set that this version wrote", remedy="train again", where=str(file)
    )
