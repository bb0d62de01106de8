"""The gnn-benchmark layout (Shchur et al., 2018): CSR groups ``adj_*`` and ``attr_*``, and ``labels``, in one ``.npz``.

A multiplex file has a group ``adj_<relation>_*`` for every relation. ``train_mask``, ``val_mask`` and ``test_mask``,
perhaps with ``split_`` before, are a published split. Node ids are the row numbers 0..N−1. An entry
(i, j) of the adjacency is an edge i → j of that weight; a negative label is none. Object arrays, which would have
to be unpickled, are refused.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import scipy.sparse as sp

from preprocessing.array_types import Float32Array, Int64Array
from preprocessing.errors import InputError
from preprocessing.features import FeatureDtype, FeatureSource, matrix_features
from preprocessing.ids import IdMap
from preprocessing.input_files import InputFile
from preprocessing.labels import LabelSource
from preprocessing.raw_graph import Notice, RawGraph, arcs_in_memory
from preprocessing.settings import RELATION_NAME, NpzSource
from preprocessing.splits import MASKS, SplitCodes, from_masks

__all__ = ["read_npz"]


def read_npz(settings: NpzSource, dtype: FeatureDtype) -> RawGraph:
    """Read the file; ``InputError`` when it is absent, damaged, or its arrays do not fit together."""
    file = _File(InputFile.at(settings.path))
    groups = _adjacencies(file, settings.relation)
    relations, sizes = {}, {}
    for name, group in groups.items():
        indptr, indices, (nodes, columns) = _csr(file, group)
        if nodes != columns:
            given = f"{nodes} x {columns}"
            raise file.fault(f"{group}_shape", "the adjacency is not square", given, "as many columns as rows")
        source = np.repeat(np.arange(nodes), np.diff(indptr))
        relations[name], sizes[group] = arcs_in_memory(source, indices, _weights(file, group, len(indices))), nodes
    if len(set(sizes.values())) > 1:
        raise file.fault(f"{min(sizes)}_shape", "the relations differ in size", sizes, "one set of nodes")
    used = {f"{group}_{part}" for group in groups.values() for part in ("data", "indices", "indptr", "shape")}
    used |= {name for name in file.names if name.startswith("attr_")} | {"labels"}
    split, masks = _split(file, nodes)
    return RawGraph(
        str(file.path),
        IdMap(np.arange(nodes, dtype=np.int64)),
        relations,
        _features(file, nodes, dtype),
        _labels(file, nodes),
        tuple(_unread(file, used | masks)),
        split,
    )


class _File:
    """The archive's arrays, each read when asked for."""

    def __init__(self, path: InputFile) -> None:
        self.path = path.existing()
        try:
            with path.open() as source, zipfile.ZipFile(source) as archive:
                self.names = [Path(name).stem for name in archive.namelist() if name.endswith(".npy")]
        except (OSError, zipfile.BadZipFile, pa.ArrowException) as error:
            raise InputError(
                f"the file is no .npz, or it is truncated ({error})",
                where=str(path),
                expected="an archive written by numpy.savez",
                remedy="write or copy it again",
            ) from error

    def array(self, name: str) -> npt.NDArray[Any]:
        if name not in self.names:
            raise InputError(
                f"there is no array '{name}'",
                where=str(self.path),
                given="arrays " + ", ".join(f"'{known}'" for known in self.names),
                expected="the gnn-benchmark layout: adj_indices, adj_indptr, adj_shape, attr_*, labels",
                remedy="convert the file, or ingest tables",
            )
        try:
            with self.path.open() as source, np.load(source, allow_pickle=False) as arrays:
                array: npt.NDArray[Any] = arrays[name]
        except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, pa.ArrowException) as error:
            objects = "allow_pickle" in str(error)
            raise self.fault(
                name,
                "the array holds Python objects, which would have to be unpickled" if objects else f"damaged ({error})",
                None,
                "an array of numbers or of fixed-width text",
            ) from error
        return array

    def integers(self, name: str) -> Int64Array:
        array = self.array(name)
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise self.fault(name, "wrong kind of array", f"{array.dtype} {array.shape}", "one dimension of integers")
        return array.astype(np.int64)

    def fault(self, name: str, problem: str, given: object, expected: str) -> InputError:
        where = f"{self.path}, array '{name}'"
        return InputError(problem, where=where, given=given, expected=expected, remedy="write the file again")


def _adjacencies(file: _File, relation: str | None) -> dict[str, str]:
    """The key prefixes of the adjacency groups that are meant, by relation: the one named, or all there are."""
    groups = [match[1] for name in file.names if (match := re.fullmatch(r"(adj(?:_.+)?)_indptr", name))]
    relations = {group.removeprefix("adj_"): group for group in groups if group != "adj"}
    for name, group in relations.items():
        if not re.fullmatch(RELATION_NAME, name) or name == "symmetric":
            expected = "letters, digits, '-' and '_', and not 'symmetric'"
            raise file.fault(f"{group}_indptr", "this cannot be the name of a relation", name, expected)
    if relation is not None and relation in relations:
        return {relation: relations[relation]}
    if relation is None:
        return {"edges": "adj"} if "adj" in groups or not relations else relations
    raise InputError(
        "there is no such relation",
        where=str(file.path),
        given=relation,
        expected="one of " + ", ".join(relations) if relations else "no relation: the file has one adjacency",
        remedy="leave out `relation` to have them all" if relations else "leave out `relation`",
    )


def _csr(file: _File, group: str) -> tuple[Int64Array, Int64Array, tuple[int, int]]:
    """Checked indptr, indices and shape of a CSR group."""
    indptr, indices, shape = (file.integers(f"{group}_{part}") for part in ("indptr", "indices", "shape"))
    if len(shape) != 2 or (shape < 0).any():
        raise file.fault(f"{group}_shape", "wrong shape", shape.tolist(), "two sizes: rows and columns")
    rows, columns = shape.tolist()
    if len(indptr) != rows + 1:
        raise file.fault(f"{group}_indptr", "wrong length", len(indptr), f"{rows + 1}, one more than rows")
    if indptr[0] != 0 or indptr[-1] != len(indices) or (np.diff(indptr) < 0).any():
        raise file.fault(
            f"{group}_indptr",
            "not the row starts of the indices",
            f"{indptr[0]} … {indptr[-1]}",
            f"ascending numbers from 0 to {len(indices)}, the length of '{group}_indices'",
        )
    outside = (indices < 0) | (indices >= columns)
    if outside.any():
        at = int(np.argmax(outside))
        raise file.fault(f"{group}_indices", f"entry {at} (from 0) is out of range", indices[at], f"0 to {columns - 1}")
    return indptr, indices, (rows, columns)


def _features(file: _File, nodes: int, dtype: FeatureDtype) -> FeatureSource | None:
    if not any(name.startswith("attr_") for name in file.names):
        return None
    indptr, indices, shape = _csr(file, "attr")
    data = file.array("attr_data")
    if data.shape != indices.shape or data.dtype.kind not in "biuf":
        given, expected = f"{data.dtype} {data.shape}", f"{len(indices)} numbers, as 'attr_indices' has"
        raise file.fault("attr_data", "wrong kind of array", given, expected)
    if shape[0] != nodes or shape[1] == 0:
        raise file.fault("attr_shape", "wrong shape", f"{shape[0]} x {shape[1]}", f"a row for each of {nodes} nodes")
    return matrix_features(sp.csr_array((data, indices, indptr), shape=shape), dtype, "attr", str(file.path))


def _labels(file: _File, nodes: int) -> LabelSource | None:
    if "labels" not in file.names:
        return None
    labels = file.array("labels")
    if labels.shape != (nodes,) or labels.dtype.kind not in "iuU":
        given, expected = f"{labels.dtype} {labels.shape}", f"{nodes} integers or texts, one a node"
        raise file.fault("labels", "unsupported labels", given, expected)
    if labels.dtype.kind == "U":
        return LabelSource.of(pa.array(labels.tolist(), pa.string()))
    return LabelSource.of(pa.array(labels.astype(np.int64), mask=labels < 0))


def _split(file: _File, nodes: int) -> tuple[SplitCodes | None, set[str]]:
    """The split that the file's masks make, and their names; none where it has not all three."""
    for prefix in ("", "split_"):
        names = [prefix + mask for mask in MASKS]
        if not set(names) <= set(file.names):
            continue
        masks = {name: file.array(name) for name in names}
        for name, mask in masks.items():
            if mask.shape != (nodes,) or mask.dtype.kind not in "biu" or not np.isin(mask, (0, 1)).all():
                raise file.fault(name, "this is no mask", f"{mask.dtype} {mask.shape}", f"{nodes} truths, one a node")
        return from_masks({name: mask.astype(np.bool_) for name, mask in masks.items()}, str(file.path)), set(names)
    return None, set()


def _weights(file: _File, group: str, entries: int) -> Float32Array | None:
    """Weights of the entries; None where each is 1."""
    name = f"{group}_data"
    if name not in file.names:
        return None
    data = file.array(name)
    if data.shape != (entries,) or data.dtype.kind not in "biuf":
        raise file.fault(name, "wrong kind of array", f"{data.dtype} {data.shape}", f"{entries} numbers, one an entry")
    if (data == 1).all():
        return None
    weights = data.astype(np.float32)
    bad = ~(np.isfinite(weights) & (weights > 0))
    if bad.any():
        at = int(np.argmax(bad))
        raise file.fault(name, f"entry {at} (from 0) is no weight", data[at], "finite positive numbers")
    return weights


def _unread(file: _File, used: set[str]) -> list[Notice]:
    names = ", ".join(f"'{name}'" for name in file.names if name not in used)
    return [Notice("arrays_unread", f"{file.path}: arrays not used: {names}")] if names else []
