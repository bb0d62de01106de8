"""Several workers of one process group, without Ray: whoever is left without queries keeps step with the others."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed, multiprocessing
from training_bundles import Recorder, make_bundle, settings_document

from trainer import loop
from trainer.ray_train import RayWorker
from trainer.settings import TrainSettings

PATIENCE = timedelta(seconds=60)
EPOCHS = 2


def work_of(rank: int, world_size: int, job: loop.Job, meeting: Path) -> None:
    """One worker's run; its model after every epoch lies beside the others'."""
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=meeting.as_uri(), rank=rank, world_size=world_size, timeout=PATIENCE
    )
    keep = loop._Training._keep

    def keep_all(training: Any, *, epoch_ended: bool) -> None:
        torch.save(training.model.state_dict(), job.work / f"{training.progress.epoch}-{rank}.pt")
        keep(training, epoch_ended=epoch_ended)

    loop._Training._keep = keep_all
    recorder = Recorder()
    loop.run(job, RayWorker(rank, world_size, torch.device("cpu"), recorder))
    losses = [event["values"]["loss"] for event in recorder.of("metrics")]
    torch.save(losses, job.work / f"losses-{rank}.pt")
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
    # What takes longest, the imports, is done once for all workers.
    multiprocessing.set_forkserver_preload(["trainer.loop", "trainer.ray_train", "training_bundles"])
    workers = multiprocessing.start_processes(
        work_of,
        (world_size, job, tmp_path / "meeting"),
        nprocs=world_size,
        join=False,
        daemon=True,
        start_method="forkserver",
    )
    while not workers.join(timeout=PATIENCE.total_seconds()):
        pass
    for epoch in range(1, EPOCHS + 1):
        first, *others = (torch.load(tmp_path / f"{epoch}-{rank}.pt") for rank in range(world_size))
        assert any(name.startswith("target") for name in first)
        for other in others:
            for name, values in first.items():
                assert torch.equal(values, other[name]), name
    losses = [torch.load(tmp_path / f"losses-{rank}.pt") for rank in range(world_size)]
    assert len(losses[0]) == EPOCHS
    assert all(loss == losses[0] for loss in losses)
