from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from ppr_cases import adjacency, random_adjacency, write_bundle

from preprocessing.alias import AliasTable
from preprocessing.degree_weights import degree_weights, write_degree_weights
from preprocessing.errors import UsageError
from preprocessing.settings import DegreeWeightSettings
from preprocessing.stage import Emitter


def test_weights_are_those_of_the_formula() -> None:
    settings = DegreeWeightSettings(alpha=0.9, beta=0.1)
    degrees = [0, 1, 2, 5, 100]
    weight = degree_weights(np.array(degrees), settings)
    expected = [min(1.0, 0.9 ** math.log(degree + 1) + 0.1) for degree in degrees]
    assert weight == pytest.approx(expected, rel=1e-14)
    assert weight[0] == 1.0


def test_without_bias_every_node_weighs_the_same() -> None:
    assert degree_weights(np.array([0, 3, 9]), DegreeWeightSettings(alpha=1.0, beta=0.0)).tolist() == [1, 1, 1]


def test_a_weight_that_vanishes_is_refused() -> None:
    with pytest.raises(UsageError, match="alpha = 1e-300"):
        degree_weights(np.array([0, 10]), DegreeWeightSettings(alpha=1e-300, beta=0.0))


def test_parts_hold_every_node_once_in_order(tmp_path: Path) -> None:
    matrix = random_adjacency(50, 90, seed=1)
    bundle = write_bundle(tmp_path / "bundle", matrix)
    settings = DegreeWeightSettings(alpha=0.5, beta=0.01)
    manifest = write_degree_weights(bundle, settings, 20, Emitter("preprocess"))
    assert len(list((bundle.path / "degree_weights").glob("part-*.parquet"))) == 3
    table = pq.read_table(sorted((bundle.path / "degree_weights").glob("part-*.parquet")))
    assert table.column_names == ["node", "degree", "weight", "probability"]
    assert table["node"].to_pylist() == list(range(50))
    stored = bundle.degree_weights()
    weight = degree_weights(np.diff(matrix.indptr), settings)
    assert stored.degree.tolist() == np.diff(matrix.indptr).tolist()
    assert stored.weight.tolist() == weight.tolist()
    assert stored.probability == pytest.approx(weight / weight.sum(), rel=1e-14)
    assert stored.settings == manifest["settings"] == settings.model_dump()
    assert manifest["bundle"] == bundle.content_hash


def test_degrees_are_undirected_whatever_the_direction(tmp_path: Path) -> None:
    symmetric = adjacency(3, [(0, 1), (0, 2)])
    heard = symmetric.copy()
    heard.data[:] = 0
    heard.data[0] = 1
    heard.eliminate_zeros()
    bundle = write_bundle(tmp_path / "bundle", symmetric, heard)
    write_degree_weights(bundle, DegreeWeightSettings(), 10, Emitter("preprocess"))
    assert bundle.degree_weights().degree.tolist() == [2, 1, 1]


def test_other_settings_replace_what_is_there_and_the_same_keep_it(tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path / "bundle", adjacency(4, [(0, 1), (1, 2)]))
    first = write_degree_weights(bundle, DegreeWeightSettings(alpha=0.9), 10, Emitter("preprocess"))
    inode = (bundle.path / "degree_weights").stat().st_ino
    assert write_degree_weights(bundle, DegreeWeightSettings(alpha=0.9), 10, Emitter("preprocess")) == first
    assert (bundle.path / "degree_weights").stat().st_ino == inode
    write_degree_weights(bundle, DegreeWeightSettings(alpha=0.5), 10, Emitter("preprocess"))
    assert bundle.degree_weights().settings["alpha"] == 0.5


def test_blocks_change_nothing_but_the_last_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = random_adjacency(100, 300, seed=2)
    settings = DegreeWeightSettings()
    whole = write_bundle(tmp_path / "whole", matrix)
    write_degree_weights(whole, settings, 40, Emitter("preprocess"))
    monkeypatch.setattr("preprocessing.degree_weights.BLOCK_ROWS", 7)
    parts = write_bundle(tmp_path / "parts", matrix)
    write_degree_weights(parts, settings, 40, Emitter("preprocess"))
    assert parts.degree_weights().weight.tolist() == whole.degree_weights().weight.tolist()
    assert parts.degree_weights().probability == pytest.approx(whole.degree_weights().probability, rel=1e-14)


def test_the_alias_table_beside_them_gives_every_node_its_probability(tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path / "bundle", random_adjacency(60, 150, seed=3))
    write_degree_weights(bundle, DegreeWeightSettings(alpha=0.3, beta=0.0), 25, Emitter("preprocess"))
    folder = bundle.path / "degree_weights" / "alias"
    assert sorted(file.name for file in folder.iterdir()) == ["alias.npy", "threshold.npy", "weight.npy"]
    table = AliasTable.open(folder)
    # A node's cell gives it the threshold, and every cell that names it the rest of that cell.
    share = table.threshold + np.bincount(table.alias, 1 - table.threshold, minlength=60)
    assert share / 60 == pytest.approx(bundle.degree_weights().probability, rel=1e-12)
    assert table.weight.tolist() == bundle.degree_weights().weight.tolist()
