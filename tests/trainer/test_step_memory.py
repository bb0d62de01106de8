"""Nothing in a step follows the size of the graph: what it allocates is counted, on graphs of two sizes."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from training_bundles import make_ring, settings_document

from preprocessing.alias import AliasTable, draw_without_replacement
from preprocessing.bundle import Bundle
from trainer.bank import Bank
from trainer.features import load_features
from trainer.mini_batch import MiniBatch
from trainer.settings import TrainSettings

SMALL, LARGE = 4_000, 64_000


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Bundle]:
    return {nodes: make_ring(tmp_path_factory.mktemp(str(nodes)), nodes) for nodes in (SMALL, LARGE)}


def traced_peak(bundle: Bundle, work: Path, order: str, bank: str) -> int:
    """Bytes of numpy's and Python's at the highest, over what was held before, in making and serving a step."""
    batch = {"mode": "mini", "size": 50, "fan_out": [2, 2], "order": order}
    chosen = TrainSettings.model_validate(settings_document(batch=batch, anchors={"num_global": 50, "bank": bank}))
    steps = MiniBatch(bundle, load_features(bundle, chosen.features), chosen, device=torch.device("cpu"))
    kept = Bank("disk", work, (bundle.num_nodes, 2, 8), torch.device("cpu"))
    kept.store(np.arange(bundle.num_nodes), torch.ones(bundle.num_nodes, 2, 8), 0)
    highest = 0
    for epoch in (0, 1):
        # The epoch's order, and where every node stands in it, cost O(N): once an epoch.
        steps.step(epoch, 0)
        tracemalloc.start()
        for number in (1, 2, 3):
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            step = steps.step(epoch, number)
            if step.bank is not None:
                kept.served(step, number)
                nodes = np.concatenate(step.bank.asked)
                kept.store(nodes, torch.ones(len(nodes), 2, 8), number)
            highest = max(highest, tracemalloc.get_traced_memory()[1] - before)
        tracemalloc.stop()
    return highest


@pytest.mark.parametrize(("order", "bank"), [("random", "none"), ("near", "none"), ("near", "disk")])
def test_a_step_allocates_as_much_on_a_graph_of_sixteen_times_the_size(
    bundles: dict[int, Bundle], tmp_path: Path, order: str, bank: str
) -> None:
    traced_peak(bundles[SMALL], tmp_path, order, bank)
    small, large = (traced_peak(bundles[nodes], tmp_path, order, bank) for nodes in (SMALL, LARGE))
    # A boolean a node would be 64,000 bytes.
    assert 10_000 < large < small + LARGE / 2


def test_drawing_anchors_allocates_as_much_whatever_the_number_of_nodes() -> None:
    found = []
    for nodes in (SMALL, LARGE, 16 * LARGE):
        weight = 0.1 + np.random.default_rng(0).random(nodes)
        table, rng = AliasTable.build(weight), np.random.default_rng(1)
        draw_without_replacement(table, 100, rng)
        tracemalloc.start()
        drawn = draw_without_replacement(table, 100, rng)
        found.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert len(set(drawn.tolist())) == 100
    assert max(found) < 2 * min(found) < SMALL * 8
