"""Layer-wise inference in chunks against one forward over the whole graph."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from training_bundles import every_row, make_bundle

from trainer import inference, layer_arrays
from trainer.encoders import Encoder, new_encoder
from trainer.features import load_features
from trainer.inference import embed
from trainer.layer_arrays import LayerArrays, LayerFiles
from trainer.settings import EncoderSettings, FeatureSettings


def trained(encoder: Encoder) -> Encoder:
    """Parameters and statistics that no layer could leave out unnoticed."""
    generator = torch.Generator().manual_seed(1)
    for name, tensor in encoder.state_dict().items():
        if tensor.is_floating_point():
            positive = "var" in name or "activation" in name
            tensor.copy_(torch.rand(tensor.shape, generator=generator) + (0.5 if positive else -0.5))
    return encoder


@pytest.mark.parametrize("layout", ["dense", "sparse", "none"])
@pytest.mark.parametrize("direction", ["undirected", "directed"])
@pytest.mark.parametrize(
    "encoder_settings",
    [
        EncoderSettings(kind="gcn", layers=[6]),
        EncoderSettings(kind="gcn", layers=[7, 5]),
        EncoderSettings(kind="gcn", layers=[8, 3, 6]),
        EncoderSettings(kind="gcn", layers=[7, 5], self_loop_weight=16),
        EncoderSettings(kind="sage_residual", layers=[6]),
        EncoderSettings(kind="sage_residual", layers=[6, 6, 6]),
        EncoderSettings(kind="sage_skip", layers=[6]),
        EncoderSettings(kind="sage_skip", layers=[7, 7, 5]),
    ],
    ids=lambda chosen: f"{chosen.kind}-{chosen.layers}-{chosen.self_loop_weight:g}",
)
def test_equals_full_batch(
    tmp_path: Path, layout: str, direction: str, encoder_settings: EncoderSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(4)
    features = {
        "dense": rng.normal(size=(40, 12)).astype(np.float32),
        "sparse": (rng.random((40, 12)) < 0.1).astype(np.float32),
        "none": np.zeros((40, 0), dtype=np.float32),
    }[layout]
    bundle = make_bundle(tmp_path, features=features, direction=direction)
    assert bundle.manifest["features"]["layout"] == layout
    transform = "standardize" if layout == "dense" else "none"
    store = load_features(bundle, FeatureSettings(transform=transform))
    encoder = trained(new_encoder(store.num_columns, encoder_settings))
    with torch.no_grad():
        adjacency = encoder.aggregator.whole(bundle.topology).normalized()
        expected = encoder.eval()(every_row(store), [adjacency] * encoder.num_layers)
    assert expected.std() > 0.01

    # Many chunks, and activations in files.
    monkeypatch.setattr(inference, "CHUNK_ENTRIES", 60)
    monkeypatch.setattr(layer_arrays, "MEMORY_BYTES", 100)
    arrays = LayerArrays(40, tmp_path)
    (found,) = arrays.of(embed(encoder.train(), store, bundle.topology, arrays))
    assert isinstance(found, np.memmap)
    torch.testing.assert_close(torch.from_numpy(found), expected, atol=1e-5, rtol=1e-5)
    assert not encoder.training
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith(".")) == ["bundle", "graph.npz"]

    # Files with names, and a process that is gone after every chunk, with half of the next on the disk.
    (tmp_path / "files").mkdir()
    killed = 0
    while True:
        files = Dying(40, tmp_path / "files")
        try:
            step = embed(encoder, store, bundle.topology, files)
            break
        except InterruptedError:
            killed += 1
    assert killed > 2 * encoder.num_layers
    np.testing.assert_array_equal(files.of(step)[0], found)
    assert [file.name for file in (tmp_path / "files").glob("*.npy")] == [f"{step:04d}-0.npy"]


class Dying(LayerFiles):
    written = 0

    def write(self, step: int, rows: slice, parts: Sequence[np.ndarray]) -> None:
        if self.written == 1:
            LayerArrays.write(self, step, rows, [np.full_like(part, 7) for part in parts])
            raise InterruptedError
        super().write(step, rows, parts)
        self.written += 1


def test_chunks_cover_every_row_once_and_hold_what_they_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topology = make_bundle(tmp_path, nodes=80, edges=300).topology
    monkeypatch.setattr(inference, "CHUNK_ENTRIES", 50)
    chunks = list(inference._chunks(topology, width=4))
    assert [row for first, last in chunks for row in range(first, last)] == list(range(80))
    costs = [int(topology.degrees()[first:last].sum()) + 4 * (last - first) for first, last in chunks]
    assert max(costs) <= 50
    # No chunk could have taken the row after it.
    following = [cost + int(topology.degrees()[last]) + 4 for cost, (_, last) in zip(costs, chunks[:-1], strict=False)]
    assert min(following) > 50
    monkeypatch.setattr(inference, "CHUNK_ENTRIES", 1)
    assert list(inference._chunks(topology, width=4)) == [(row, row + 1) for row in range(80)]


def test_large_arrays_live_in_files_without_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = np.full((3, 4), 7, dtype=np.float32)
    small, large = LayerArrays(3, tmp_path), LayerArrays(3, tmp_path)
    small.write(0, slice(0, 3), [part])
    assert not isinstance(small.of(0)[0], np.memmap)
    monkeypatch.setattr(layer_arrays, "MEMORY_BYTES", 40)
    large.write(0, slice(0, 3), [part])
    assert isinstance(large.of(0)[0], np.memmap)
    assert large.of(0)[0].sum() == 84
    assert list(tmp_path.iterdir()) == []
