"""An epoch in full batch: ours against the authors' step, on the published settings of each data set.

The peer is the step as the authors' code does it, written anew from its description: dense features copied and
masked for a view, PyG's GCNConv on a fresh edge list, similarities as dense matrices under autograd. Both have the same
networks, data, anchors' number and temperatures, and each runs in a process of its own, in turn. The last peer has
the memory and thread settings of our processes (trainer/process.py). The floor is what the epoch's dense products,
gathered rows and passes over activations take at the rates that this machine reaches on each of them alone.

    python benchmarks/full_batch.py [--data DIR] [--graphs cora photo ...] [--epochs 5] [--rounds 3] [--quick]
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor, nn
from torch.nn import functional

from preprocessing.bundle import Bundle, DenseFeatures
from preprocessing.ingest import ingest
from preprocessing.ppr import preprocess
from preprocessing.stage import Emitter
from trainer.dense import rows_times
from trainer.features import load_features
from trainer.full_batch import FullBatch
from trainer.objectives import new_objective
from trainer.process import THREADING, tune_process
from trainer.settings import TrainSettings, resolve_preset

FILES = {
    "cora": "cora",
    "citeseer": "citeseer",
    "photo": "amazon_photo",
    "computers": "amazon_computers",
    "cs": "coauthor_cs",
    "physics": "coauthor_physics",
}
WARM_UP = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("RGRL_DATA_DIR", ".")))
    parser.add_argument("--graphs", nargs="*", choices=FILES, default=list(FILES))
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3, help="Times that the sides run in turn; the median counts.")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--our-anchors", type=int, help="Global anchors of ours and of the floor, not the preset's.")
    parser.add_argument("--quick", action="store_true", help="Cora alone.")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--bundle", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        torch.set_num_threads(arguments.threads)
        if arguments.side != "peer":
            tune_process()
        name = arguments.graphs[0]
        settings = _settings(name, arguments.our_anchors if arguments.side in ("ours", "floor") else None)
        seconds = SIDES[arguments.side](Bundle(arguments.bundle), settings, arguments.epochs)
        print(json.dumps(seconds))
        return
    print("| graph | ours, ms | authors' step, ms | times | like ours, ms | times | floor, ms | ours / floor |")
    print("|---|---|---|---|---|---|---|---|")
    results = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name in ["cora"] if arguments.quick else arguments.graphs:
            bundle = _bundle(Path(scratch) / name, arguments.data / f"{FILES[name]}.npz")
            rounds = [[_timed(side, name, bundle, arguments) for side in SIDES] for _ in range(arguments.rounds)]
            ours, peer, tuned, floor = np.median(rounds, axis=0).tolist()
            cells = [f"{1e3 * ours:,.0f}", f"{1e3 * peer:,.0f}", f"{peer / ours:.1f}", f"{1e3 * tuned:,.0f}"]
            cells += [f"{tuned / ours:.1f}", f"{1e3 * floor:,.0f}", f"{ours / floor:.2f}"]
            print(f"| {name} | {' | '.join(cells)} |", flush=True)
            results[name] = {"ours": ours, "peer": peer, "ratio": peer / ours, "tuned": tuned, "floor": floor}
    claim = {
        "claim": "an epoch in full batch against the authors' step",
        "ours": {name: result["ours"] for name, result in results.items()},
        "peer": {name: result["peer"] for name, result in results.items()},
        "peer_in_a_process_like_ours": {name: result["tuned"] for name, result in results.items()},
        "floor": {name: result["floor"] for name, result in results.items()},
        "ratio": min(result["ratio"] for result in results.values()),
        "unit": "s an epoch, median",
        "settings": {
            "epochs": arguments.epochs,
            "rounds": arguments.rounds,
            "threads": arguments.threads,
            "presets": list(results),
            "our_anchors": arguments.our_anchors,
        },
        "machine": f"{os.cpu_count()} cores, torch {torch.__version__}",
        "date": datetime.now(UTC).date().isoformat(),
    }
    print(json.dumps(claim))


def _bundle(path: Path, source: Path) -> Path:
    ingest({"out": path, "settings": {"source": {"kind": "npz", "path": str(source)}}}, Emitter("ingest"))
    preprocess({"bundle": path, "settings": {"ppr": {"top_k": 8, "exact_arcs": 0}}}, Emitter("preprocess"))
    return path


def _settings(name: str, anchors: int | None) -> TrainSettings:
    """The preset, with so many global anchors where they are named."""
    own = {} if anchors is None else {"anchors": {"num_global": anchors}}
    return TrainSettings.model_validate(resolve_preset({"preset": name, **own}))


def _timed(side: str, name: str, bundle: Path, arguments: argparse.Namespace) -> float:
    """Median seconds an epoch, measured in a fresh process."""
    options = ["--graphs", name, "--epochs", str(arguments.epochs), "--threads", str(arguments.threads)]
    options += ["--our-anchors", str(arguments.our_anchors)] if arguments.our_anchors else []
    command = [sys.executable, __file__, "--side", side, "--bundle", str(bundle), *options]
    environment = os.environ if side == "peer" else {**os.environ, **THREADING}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return float(np.median(json.loads(done.stdout)))


def _epochs(step: Any, epochs: int) -> list[float]:
    seconds = []
    for epoch in range(WARM_UP + epochs):
        began = time.perf_counter()
        step(epoch)
        seconds.append(time.perf_counter() - began)
    return seconds[WARM_UP:]


def _ours(bundle: Bundle, settings: TrainSettings, epochs: int) -> list[float]:
    cpu = torch.device("cpu")
    store = load_features(bundle, settings.features)
    steps = FullBatch(bundle, store, settings, device=cpu)
    model = new_objective(store.num_columns, settings)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=settings.optimizer.lr, fused=True)

    def step(epoch: int) -> None:
        model.train(epoch == 0)
        losses = model(steps.step(epoch, 0))
        optimizer.zero_grad()
        losses[0].backward()
        optimizer.step()
        model.update_target(settings.optimizer.ema_decay)

    return _epochs(step, epochs)


class _PeerEncoder(nn.Module):
    """GCNConv, BatchNorm, PReLU, a layer each."""

    def __init__(self, widths: list[int]) -> None:
        super().__init__()
        from torch_geometric.nn import GCNConv

        pairs = list(pairwise(widths))
        self.convolutions = nn.ModuleList(GCNConv(*pair) for pair in pairs)
        self.norms = nn.ModuleList(nn.BatchNorm1d(width, momentum=0.01) for _, width in pairs)
        self.activations = nn.ModuleList(nn.PReLU() for _ in pairs)

    def forward(self, x_NF: Tensor, edges_2E: Tensor) -> Tensor:
        for convolution, norm, activation in zip(self.convolutions, self.norms, self.activations, strict=True):
            x_NF = activation(norm(convolution(x_NF, edges_2E)))
        return x_NF


def _peer(bundle: Bundle, settings: TrainSettings, epochs: int) -> list[float]:
    x_NF = _dense_features(bundle, settings)
    topology = bundle.topology
    target_E = np.repeat(np.arange(topology.num_nodes), topology.degrees())
    edges_2E = torch.from_numpy(np.stack([np.array(topology.indices), target_E]).astype(np.int64))
    locals_NK = torch.from_numpy(bundle.ppr(settings.anchors.num_local).neighbors.clip(min=0).astype(np.int64))
    connected = torch.from_numpy(np.flatnonzero(topology.degrees() > 0))
    weights = settings.anchors.weights
    weight_N = np.minimum(weights.alpha ** np.log(topology.degrees() + 1.0) + weights.beta, 1)
    probability_N = weight_N / weight_N.sum()

    width, hidden = settings.encoder.layers[-1], settings.encoder.predictor_hidden
    online = _PeerEncoder([x_NF.shape[1], *settings.encoder.layers])
    target = copy.deepcopy(online).requires_grad_(False)
    predictor = nn.Sequential(nn.Linear(width, hidden), nn.PReLU(), nn.Linear(hidden, width))
    optimizer = torch.optim.AdamW([*online.parameters(), *predictor.parameters()], lr=settings.optimizer.lr)
    augment, loss_settings = settings.augment, settings.loss

    def view(drop_feature: float, drop_edge: float) -> tuple[Tensor, Tensor]:
        masked_NF = x_NF.clone()
        masked_NF[:, torch.rand(x_NF.shape[1]) < drop_feature] = 0
        return masked_NF, edges_2E[:, torch.rand(edges_2E.shape[1]) >= drop_edge]

    def divergence(student: Tensor, teacher: Tensor) -> Tensor:
        return functional.kl_div(student.log_softmax(1), teacher.softmax(1), reduction="batchmean")

    def direction(z_ND: Tensor, h_ND: Tensor, anchors: Tensor) -> Tensor:
        student, teacher = z_ND @ h_ND[anchors].T, h_ND @ h_ND[anchors].T
        loss = divergence(student / loss_settings.tau_online, teacher / loss_settings.tau_target_global)
        near_NKD = h_ND[locals_NK]
        student = torch.bmm(near_NKD, z_ND[:, :, None]).squeeze(2)[connected]
        teacher = torch.bmm(near_NKD, h_ND[:, :, None]).squeeze(2)[connected]
        local = divergence(student / loss_settings.tau_online, teacher / loss_settings.tau_target_local)
        return loss + loss_settings.local_weight * local

    def step(epoch: int) -> None:
        for network in (online, target):
            network.train(epoch == 0)
        views = view(augment.drop_feature_1, augment.drop_edge_1), view(augment.drop_feature_2, augment.drop_edge_2)
        z_1, z_2 = (functional.normalize(predictor(online(*view))) for view in views)
        with torch.no_grad():
            h_1, h_2 = (functional.normalize(target(*view)) for view in views)
        drawn = np.random.choice(len(x_NF), settings.anchors.num_global, replace=False, p=probability_N)
        anchors = torch.from_numpy(drawn)
        loss = direction(z_1, h_2, anchors) + direction(z_2, h_1, anchors)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(target.parameters(), online.parameters(), strict=True):
                slow.copy_(slow * settings.optimizer.ema_decay + fast * (1 - settings.optimizer.ema_decay))

    return _epochs(step, epochs)


def _dense_features(bundle: Bundle, settings: TrainSettings) -> Tensor:
    stored = bundle.features
    if isinstance(stored, DenseFeatures):
        x_NF = torch.from_numpy(np.array(stored.values, dtype=np.float32))
    else:
        assert stored is not None
        csr = csr_matrix((stored.values, stored.indices, stored.indptr), shape=stored.shape)
        x_NF = torch.from_numpy(csr.toarray().astype(np.float32))
    return (x_NF > 0).float() if settings.features.transform == "binarize" else x_NF


def _floor(bundle: Bundle, settings: TrainSettings, epochs: int) -> list[float]:
    """Seconds of an epoch's work at the rates of its parts, measured here on operands of the epoch's own sizes.

    Forward passes are four (two views, two networks), backward passes two. A backward pass through a product costs two
    products, but one through the first layer, whose input takes no gradient, and one through the similarities, whose
    anchors take none.
    """
    nodes, (first, width) = bundle.num_nodes, settings.encoder.layers
    hidden, anchors, nearest = (
        settings.encoder.predictor_hidden,
        settings.anchors.num_global,
        settings.anchors.num_local,
    )
    augment = settings.augment
    kept_arcs = bundle.topology.num_arcs * (2 - augment.drop_edge_1 - augment.drop_edge_2) / 2 + nodes
    kept_columns = (2 - augment.drop_feature_1 - augment.drop_feature_2) / 2
    stored = bundle.features
    assert stored is not None
    columns = stored.shape[1]
    dense = isinstance(stored, DenseFeatures)
    entries = int((np.asarray(stored.values) != 0).sum()) if dense else len(stored.indices)

    x_ND, weight, columns_FD = torch.randn(nodes, first), torch.randn(first, width), torch.randn(columns, first)
    flops = 2 * nodes * first * width / min(_epochs(lambda _: rows_times(x_ND, weight), epochs))
    stream_out = torch.empty_like(x_ND)
    stream = 2 * x_ND.numel() / min(_epochs(lambda _: stream_out.copy_(x_ND), epochs))

    def gathered(rows_MD: Tensor) -> float:
        """Numbers a second that are read by row in random order and summed, eight rows at a time."""
        places = torch.randint(len(rows_MD), (nodes, 8))
        seconds = min(_epochs(lambda _: functional.embedding_bag(places, rows_MD, mode="sum"), epochs))
        return places.numel() * rows_MD.shape[1] / seconds

    from_nodes, from_columns = gathered(x_ND), gathered(columns_FD)
    # Every array that a layer or the predictor makes is written once and read once, forward and backward.
    streamed = 6 * 2 * nodes * (3 * first + 3 * width) + 4 * 2 * nodes * (2 * hidden + 2 * width)
    products = 8 * nodes * first * width + 6 * nodes * 2 * width * hidden + 6 * nodes * width * anchors
    # The first layer's features, multiplied four times and their transpose twice: sparse, or dense where that is less.
    kept = entries * kept_columns * first
    features = min(4 * kept / from_columns + 2 * kept / from_nodes, 6 * 2 * nodes * columns * first / flops)
    aggregated = 6 * kept_arcs * (first + width) + 2 * nodes * nearest * width
    return [features + 2 * products / flops + aggregated / from_nodes + streamed / stream]


SIDES = {"ours": _ours, "peer": _peer, "tuned": _peer, "floor": _floor}

if __name__ == "__main__":
    main()
