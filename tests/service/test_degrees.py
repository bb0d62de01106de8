"""Histograms of degrees against a count of every node."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from embedding_fixtures import write_bundle

from preprocessing.bundle import Bundle
from preprocessing.errors import ArtifactError
from service.graphs import degrees as module
from service.graphs.degrees import degrees
from service.verified import VerifiedFiles


@pytest.mark.parametrize("chunk", [1, 3, 1 << 20])
def test_every_node_is_in_the_bucket_of_its_degree(tmp_path: Path, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", chunk)
    # A star of eight arms, a path, and isolated nodes.
    edges = [(0, arm) for arm in range(1, 9)] + [(9, 10), (10, 11)]
    write_bundle(tmp_path / "bundle", 15, edges)
    truth = Bundle(tmp_path / "bundle").symmetric.degrees()
    found = degrees(tmp_path / "bundle", VerifiedFiles(tmp_path / "verified"))
    assert (found.mean, found.max) == (pytest.approx(20 / 15), 8)
    assert [bucket.low for bucket in found.buckets] == [0, 1, 2, 4, 8]
    assert found.buckets[-1].high == 15
    assert [bucket.nodes for bucket in found.buckets] == [
        int(np.count_nonzero((truth >= bucket.low) & (truth <= bucket.high))) for bucket in found.buckets
    ]


def test_a_graph_without_edges_has_one_bucket(tmp_path: Path) -> None:
    write_bundle(tmp_path / "bundle", 3, [])
    found = degrees(tmp_path / "bundle", VerifiedFiles(tmp_path / "verified"))
    assert [(bucket.low, bucket.high, bucket.nodes) for bucket in found.buckets] == [(0, 0, 3)]


def test_damaged_row_pointers_are_refused(tmp_path: Path) -> None:
    write_bundle(tmp_path / "bundle", 3, [(0, 1)])
    file = tmp_path / "bundle" / "topology" / "indptr.npy"
    file.write_bytes(file.read_bytes()[:-1] + b"\x07")
    with pytest.raises(ArtifactError):
        degrees(tmp_path / "bundle", VerifiedFiles(tmp_path / "verified"))
