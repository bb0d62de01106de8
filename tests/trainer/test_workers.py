"""Several workers of one process group, without Ray: whoever is left without queries keeps step with the others."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import distributed, multiprocessing
from training_bundles import Recorder, make_bundle, settings_document

from trainer import checkpoint, loop
from trainer.features import load_features
from trainer.mini_batch import MiniBatch
from trainer.ray_train import RayWorker
from trainer.settings import TrainSettings

CPU = torch.device("cpu")
PATIENCE = timedelta(seconds=60)
EPOCHS = 2


def together(job: loop.Job, world_size: int) -> list[list[dict[str, float]]]:
    """Run the job by so many workers; the metrics of each."""
    # What takes longest, the imports, is done once for all workers.
    multiprocessing.set_forkserver_preload(["trainer.loop", "trainer.ray_train", "training_bundles"])
    workers = multiprocessing.start_processes(
        work_of,
        (world_size, job),
        nprocs=world_size,
        join=False,
        daemon=True,
        start_method="forkserver",
    )
    while not workers.join(timeout=PATIENCE.total_seconds()):
        pass
    return [torch.load(job.work / f"metrics-{rank}.pt") for rank in range(world_size)]


def work_of(rank: int, world_size: int, job: loop.Job) -> None:
    """One worker's run; its model after every epoch lies beside the others'."""
    torch.set_num_threads(1)
    meeting = (job.work / "meeting").as_uri()
    distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world_size, timeout=PATIENCE)
    keep = loop._Training._keep

    def keep_all(training: Any, *, epoch_ended: bool) -> None:
        torch.save(training.model.state_dict(), job.work / f"{training.progress.epoch}-{rank}.pt")
        keep(training, epoch_ended=epoch_ended)

    loop._Training._keep = keep_all
    recorder = Recorder()
    loop.run(job, RayWorker(rank, world_size, CPU, recorder))
    torch.save([event["values"] for event in recorder.of("metrics")], job.work / f"metrics-{rank}.pt")
    distributed.destroy_process_group()


@pytest.mark.parametrize(
    ("nodes", "world_size", "batch"),
    [
        (41, 3, {"mode": "mini", "size": 7, "fan_out": [3, 3]}),
        (3, 4, {"mode": "mini", "size": 1, "fan_out": [3, 3]}),
        (41, 3, {"mode": "full"}),
        (3, 4, {"mode": "full"}),
    ],
    ids=["mini uneven", "mini fewer nodes than workers", "full uneven", "full fewer nodes than workers"],
)
def test_uneven_shares_end_with_one_model_on_every_rank(
    tmp_path: Path, nodes: int, world_size: int, batch: dict[str, Any]
) -> None:
    bundle = make_bundle(tmp_path, nodes=nodes, top_k=3)
    document = settings_document(batch=batch, anchors={"num_global": 2, "num_local": 2}, run={"epochs": EPOCHS})
    job = loop.Job(bundle.path, tmp_path, TrainSettings.model_validate(document), "print")
    metrics = together(job, world_size)
    for epoch in range(1, EPOCHS + 1):
        first, *others = (torch.load(tmp_path / f"{epoch}-{rank}.pt") for rank in range(world_size))
        assert any(name.startswith("target") for name in first)
        for other in others:
            for name, values in first.items():
                assert torch.equal(values, other[name]), name
    losses = [[values["loss"] for values in lines] for lines in metrics]
    assert len(losses[0]) == EPOCHS
    assert all(loss == losses[0] for loss in losses)


def test_two_workers_store_each_others_targets(tmp_path: Path) -> None:
    """The first worker's bank has every node's, of its last turn as anyone's query; shares are of 6 and 7 queries."""
    batch = {"mode": "mini", "size": 7, "fan_out": [3, 3], "order": "near", "chunk": 3}
    document = settings_document(batch=batch, anchors={"bank": "disk"}, run={"epochs": EPOCHS})
    bundle = make_bundle(tmp_path)
    job = loop.Job(bundle.path, tmp_path / "work", TrainSettings.model_validate(document), "print")
    job.work.mkdir()
    last = together(job, 2)[0][-1]
    assert 1 <= last["anchor_age_mean"] <= last["anchor_age_max"] < 6
    kept = checkpoint.newest(job.work, "print")
    settings = job.settings
    steps = MiniBatch(bundle, load_features(bundle, settings.features), settings, world_size=2, device=CPU)
    expected = np.empty(bundle.num_nodes)
    for number in range(steps.num_steps):
        expected[np.concatenate(steps.queries(EPOCHS - 1, number))] = steps.num_steps + number
    assert np.array_equal(np.load(kept / "bank_steps.npy"), expected)
    assert np.linalg.norm(np.load(kept / "bank.npy").astype(float), axis=2) == pytest.approx(1, abs=2e-3)
