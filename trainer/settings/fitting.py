"""Whether settings suit a graph's size, told before anything is started."""

from __future__ import annotations

from preprocessing.errors import UsageError
from trainer.settings.training import TrainSettings

__all__ = ["check_fits"]


def check_fits(settings: TrainSettings, num_nodes: int, pointer: str) -> None:
    """``UsageError`` where ``settings.for_graph(num_nodes)`` would be no valid settings, or make batches without a
    query; ``pointer`` is that of the settings.
    """
    accumulate, warmup = settings.optimizer.accumulate, settings.optimizer.warmup_epochs
    if settings.batch.mode_for(num_nodes) == "mini":
        if settings.augment.half_hop > 0:
            raise UsageError(
                "Half-Hop needs the whole graph in one batch",
                given=f"augment.half_hop = {settings.augment.half_hop} in mini-batches, for {num_nodes} nodes",
                remedy="augment.half_hop = 0, or batch.mode = full",
                pointer=f"{pointer}/augment/half_hop",
            )
    else:
        if accumulate > 1:
            raise UsageError(
                "a full batch is all there is to an epoch: nothing can be accumulated",
                given=f"optimizer.accumulate = {accumulate} for {num_nodes} nodes in full batch",
                remedy="optimizer.accumulate = 1, or batch.mode = mini",
                pointer=f"{pointer}/optimizer/accumulate",
            )
        for name, unusual in (("batch/order", settings.batch.order == "near"), ("anchors/bank", settings.has_bank)):
            if unusual:
                option = name.replace("/", ".")
                raise UsageError(
                    f"{option} is for mini-batches",
                    given=f"{option} for {num_nodes} nodes in full batch",
                    remedy=f"batch.mode = mini, or leave {option} out",
                    pointer=f"{pointer}/{name}",
                )
    if accumulate > num_nodes:
        raise UsageError(
            "more batches are to be accumulated than there are nodes",
            given=f"optimizer.accumulate = {accumulate} for {num_nodes} nodes",
            expected=f"at most {num_nodes}, as every batch has a query",
            remedy="lower optimizer.accumulate",
            pointer=f"{pointer}/optimizer/accumulate",
        )
    if warmup >= (epochs := settings.epochs_for(num_nodes)):
        raise UsageError(
            "the warm-up is not shorter than the run",
            given=f"optimizer.warmup_epochs = {warmup}, and {epochs} epochs by default for {num_nodes} nodes",
            expected="fewer epochs of warm-up than epochs",
            remedy="lower optimizer.warmup_epochs, or set run.epochs",
            pointer=f"{pointer}/optimizer/warmup_epochs",
        )
