"""The back ends of neighbour sampling by name: our own, and PyG's as adapters that answer as ours does.

PyG's two libraries expand a node once, at the hop where it first appears, and number nodes in the order in which they
come, as ``Sample`` has them. They draw from torch's global generator, which is seeded for a call and put back after
it: one call at a time.
"""

from __future__ import annotations

import importlib
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from preprocessing.bundle import Topology
from preprocessing.errors import UsageError
from trainer.sampler import NeighborSampler, NumbaSampler, Sample, edge_weights
from trainer.settings import SAMPLER_SOURCES, BatchSettings

__all__ = ["PygLibSampler", "TorchSparseSampler", "new_sampler"]

_GENERATOR = threading.Lock()


def new_sampler(settings: BatchSettings) -> NeighborSampler:
    """The one that ``settings`` names; ``UsageError`` where it is not installed."""
    match settings.sampler:
        case "pyg-lib":
            return PygLibSampler(replace=settings.replace, weighted=settings.weighted)
        case "torch-sparse":
            return TorchSparseSampler(replace=settings.replace)
        case _:
            return NumbaSampler(replace=settings.replace, weighted=settings.weighted)


class PygLibSampler:
    """``torch.ops.pyg.neighbor_sample`` of pyg-lib, with arrays of one integer type.

    Where ``indices`` are int32 it reads them where they are, and a copy of ``indptr`` in int32 if there are fewer than
    2^31 arcs; else it holds a copy of both in int64.
    """

    name = "pyg-lib"

    def __init__(self, *, replace: bool = False, weighted: bool = False) -> None:
        """``UsageError`` where pyg-lib is absent or too old for weights."""
        _load(self.name, "pyg_lib")
        self._operation = torch.ops.pyg.neighbor_sample
        self._replace = replace
        self._graphs = _Graphs(_with_weights if weighted else _as_they_are)
        if weighted and "edge_weight" not in str(self._operation.default._schema):
            raise UsageError(
                "this pyg-lib cannot sample by edge weights",
                expected="one whose neighbor_sample has the argument edge_weight",
                remedy="batch.sampler = numba, or a newer one: " + SAMPLER_SOURCES[self.name],
                pointer="/settings/batch/weighted",
            )

    def sample(self, topology: Topology, seeds: npt.NDArray[np.int64], fan_out: Sequence[int], rng_seed: int) -> Sample:
        """See ``NumbaSampler.sample``; the draws are others."""
        indptr, indices, *weights = self._graphs.of(topology)
        options = {"edge_weight": weights[0]} if weights else {}
        with _GENERATOR, _Seeded(rng_seed):
            # A CSR of rows that hear: the first output is who hears, the second whom.
            rows, columns, nodes, *_ = self._operation(
                indptr,
                indices,
                torch.from_numpy(np.array(seeds)).to(indices.dtype),
                list(fan_out),
                csc=False,
                replace=self._replace,
                directed=True,
                disjoint=False,
                return_edge_id=False,
                **options,
            )
        return _sample(nodes, rows, columns, len(seeds), len(fan_out), self._replace)


class TorchSparseSampler:
    """``torch.ops.torch_sparse.neighbor_sample`` of torch-sparse, on a copy of the indices in int64.

    Its draw without replacement is not uniform where it cuts a row (0.6.18): Floyd's algorithm with one number too few
    in each draw, so that at fan-out 1 the last neighbour never comes.
    """

    name = "torch-sparse"

    def __init__(self, *, replace: bool = False) -> None:
        """``UsageError`` where torch-sparse is absent."""
        _load(self.name, "torch_sparse")
        self._operation = torch.ops.torch_sparse.neighbor_sample
        self._replace = replace
        self._graphs = _Graphs(_as_int64)

    def sample(self, topology: Topology, seeds: npt.NDArray[np.int64], fan_out: Sequence[int], rng_seed: int) -> Sample:
        """See ``NumbaSampler.sample``; the draws are others."""
        indptr, indices = self._graphs.of(topology)
        with _GENERATOR, _Seeded(rng_seed):
            # It calls our rows columns: of a CSC, they are the nodes that hear.
            nodes, columns, rows, _ = self._operation(
                indptr, indices, torch.from_numpy(np.array(seeds, dtype=np.int64)), list(fan_out), self._replace, True
            )
        return _sample(nodes, rows, columns, len(seeds), len(fan_out), self._replace)


def _load(name: str, module: str) -> None:
    try:
        importlib.import_module(module)
    except (ImportError, OSError) as error:
        raise UsageError(
            f"the sampler {name} is not installed, or not for this torch",
            given=f"batch.sampler = {name} ({error})",
            expected=f"a module {module} that torch {torch.__version__} can load",
            remedy="batch.sampler = auto, which needs nothing more; or " + SAMPLER_SOURCES[name],
            pointer="/settings/batch/sampler",
        ) from error


class _Seeded:
    """torch's global CPU generator, seeded, and put back after."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def __enter__(self) -> None:
        self._before = torch.default_generator.get_state()
        torch.default_generator.manual_seed(self._seed)

    def __exit__(self, *_: object) -> None:
        torch.default_generator.set_state(self._before)


class _Graphs:
    """The tensors of the few topologies that a run samples from, made once each."""

    def __init__(self, as_tensors: Callable[[Topology], tuple[Tensor, ...]]) -> None:
        self._as_tensors = as_tensors
        self._made: list[tuple[Topology, tuple[Tensor, ...]]] = []
        self._lock = threading.Lock()

    def of(self, topology: Topology) -> tuple[Tensor, ...]:
        """indptr [N+1], indices [arcs], and weights [arcs] where they are followed."""
        with self._lock:
            for known, tensors in self._made:
                if known is topology:
                    return tensors
            self._made.append((topology, self._as_tensors(topology)))
            return self._made[-1][1]


def _as_they_are(topology: Topology) -> tuple[Tensor, Tensor]:
    narrow = topology.indices.dtype == np.int32 and topology.num_arcs < 2**31
    if not narrow:
        return _as_int64(topology)
    return torch.from_numpy(topology.indptr.astype(np.int32)), _shared(topology.indices)


def _with_weights(topology: Topology) -> tuple[Tensor, Tensor, Tensor]:
    return *_as_they_are(topology), _shared(edge_weights(topology))


def _as_int64(topology: Topology) -> tuple[Tensor, Tensor]:
    return _shared(topology.indptr), _shared(np.asarray(topology.indices, dtype=np.int64))


def _shared(array: npt.NDArray[Any]) -> Tensor:
    """The same memory; the libraries only read it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(np.asarray(array))


def _sample(nodes: Tensor, rows: Tensor, columns: Tensor, seeds: int, hops: int, replace: bool) -> Sample:
    """From the arcs of a sample by positions in ``nodes``: who hears, and whom."""
    hears, heard = rows.numpy(), columns.numpy()
    # Repeated draws stand side by side; else a row stays in the order drawn.
    order = np.lexsort((heard, hears)) if replace else np.argsort(hears, kind="stable")
    hears, heard = hears[order], heard[order]
    hop_ends = [seeds]
    for _ in range(hops):
        reached = heard[: np.searchsorted(hears, hop_ends[-1])]
        hop_ends.append(max(hop_ends[-1], int(reached.max(initial=-1)) + 1))
    indptr = np.searchsorted(hears, np.arange(hop_ends[-2] + 1)) if hops else np.zeros(1, dtype=np.int64)
    return Sample(nodes.numpy().astype(np.int64), hop_ends, indptr.astype(np.int64), heard.astype(np.int32))
