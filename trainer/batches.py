"""Where training steps come from: the whole graph at once, or query nodes with sampled neighbourhoods.

Several workers share every step. In full batch they compute the same embeddings and split the queries; in mini-batch
each has its own queries and their sampled neighbourhood. An epoch has every node as a query exactly once, over all
workers, and the same number of steps for each of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from trainer.in_order import in_order
from trainer.objectives import Step

__all__ = ["Steps", "prefetched"]


class Steps(Protocol):
    """A source of training steps; a step depends on its place in the run alone."""

    @property
    def num_steps(self) -> int:
        """Steps an epoch."""

    def step(self, epoch: int, number: int) -> Step:
        """This worker's part of a step."""

    def told(self) -> dict[str, float]:
        """What is to be known of the making of steps since this was last asked."""


def prefetched(steps: Steps, first: int, end: int, threads: int = 1) -> Iterator[tuple[int, Step]]:
    """The run's steps from number ``first`` to before ``end``; threads make the next ones while a step trains, one
    each.
    """
    yield from in_order(
        lambda number: steps.step(*divmod(number, steps.num_steps)), range(first, end), threads=threads, waiting=threads
    )
