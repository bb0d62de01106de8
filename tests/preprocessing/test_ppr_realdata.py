"""Every row of two real graphs against the dense inverse, and against the sets of the authors' own tool."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from ppr_cases import dense_ppr, fill, real_adjacency, topology
from torch_geometric.transforms import GDC
from torch_geometric.utils import add_self_loops

from preprocessing.settings import PprSettings

pytestmark = pytest.mark.realdata


@pytest.mark.parametrize("name", ["cora", "citeseer"])
def test_every_row_against_the_dense_inverse(
    real_data: Path, name: str, record_property: pytest.RecordProperty
) -> None:
    matrix = real_adjacency(real_data / f"{name}.npz")
    S = dense_ppr(matrix, 0.15, True)
    rule = PprSettings(top_k=16)
    rows = fill(topology(matrix), rule)
    present = rows.neighbors >= 0
    truth = np.where(present, np.take_along_axis(S, rows.neighbors, axis=1), 0.0)
    assert (truth - rows.scores >= -1e-13).all()
    assert ((truth - rows.scores).max(axis=1) <= rows.error + 1e-13).all()
    ranked = -np.sort(-S, axis=1)[:, :16]
    reachable = (ranked > 1e-12).sum(axis=1)
    # A set is a top-K one, up to ties, when its true scores are the K largest.
    right = np.abs(-np.sort(-truth, axis=1) - ranked).max(axis=1) < 1e-12
    assert right[rows.exact].all()
    assert (rows.counts[rows.exact] == reachable[rows.exact]).all()
    record_property("exact_share", float(rows.exact.mean()))
    assert (rows.exact | rows.tied).all()
    # A tie within the resolution of float32 may be decided either way.
    worst = np.where(present, truth, np.inf).min(axis=1)
    assert (worst >= ranked[np.arange(len(S)), reachable - 1] * (1 - 2.0**-23)).all()


def test_sets_are_those_of_gdc_up_to_ties(real_data: Path) -> None:
    matrix = real_adjacency(real_data / "cora.npz")
    edge_index = torch.from_numpy(np.stack(matrix.nonzero()).astype(np.int64))
    size, gdc = matrix.shape[0], GDC()
    edge_index, weight = add_self_loops(edge_index, torch.ones(edge_index.shape[1]), 1.0, size)
    edge_index, weight = gdc.transition_matrix(edge_index, weight, size, "sym")
    theirs = gdc.diffusion_matrix_exact(edge_index, weight, size, method="ppr", alpha=0.15).double()
    best = theirs.topk(16, dim=1)
    rows = fill(topology(matrix), PprSettings(top_k=16))
    kept = torch.from_numpy(np.where(rows.neighbors >= 0, rows.neighbors, 0))
    scores = torch.where(torch.from_numpy(rows.neighbors >= 0), theirs.gather(1, kept), 0.0)
    # GDC inverts in float32, and rows with fewer than 16 nodes in reach are filled with its rounding noise.
    disagreement = (scores.sort(dim=1, descending=True).values - best.values).abs().max(dim=1).values
    assert (disagreement < 1e-6).all()
