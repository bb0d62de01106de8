"""One node of a bundle, read without reading the rest."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from preprocessing.artifact import read_manifest
from preprocessing.bundle import PPR, Bundle
from preprocessing.errors import ArtifactError
from service.errors import NotFoundError
from service.graphs.open_bundles import opened
from service.graphs.schemas import NeighborsAnswer, NodeAnswer, PprAnswer, PprEntry
from service.verified import VerifiedFiles

__all__ = ["node_view"]

SAMPLE = 20


def node_view(path: Path, node: str, verified: VerifiedFiles) -> NodeAnswer:
    """Degree, an even sample of neighbours, and the PPR row of ``node``, or why there is none; ``NotFoundError`` for an
    unknown id, ``ArtifactError`` for a damaged bundle.
    """
    with opened(path, verified) as bundle:
        return _view(bundle, node)


def _view(bundle: Bundle, node: str) -> NodeAnswer:
    row = bundle.ids.row(node)
    if row is None:
        raise NotFoundError("the graph has no such node", given=node)
    start, end = (int(bound) for bound in bundle.topology.indptr[row : row + 2])
    places = np.unique(np.linspace(start, end - 1, min(SAMPLE, end - start)).astype(np.int64))
    around = bundle.symmetric.indptr
    ppr = _ppr_row(bundle, row)
    return NodeAnswer(
        id=bundle.ids.external([row])[0],
        degree=int(around[row + 1] - around[row]),
        neighbors=NeighborsAnswer(total=end - start, sample=bundle.ids.external(bundle.topology.indices[places])),
        ppr=None if isinstance(ppr, str) else ppr,
        ppr_missing=ppr if isinstance(ppr, str) else None,
    )


def _ppr_row(bundle: Bundle, row: int) -> PprAnswer | str:
    """The node's PPR row, or why there is none."""
    directory = bundle.path / "ppr"
    if not directory.exists():
        return "the graph has no PPR rows: preprocess it"
    try:
        read_manifest(directory, PPR)
        found = _read_row(bundle, directory, row)
    except ArtifactError as error:
        why = error.problem
    except (OSError, LookupError, TypeError, ValueError, pa.ArrowException) as error:
        why = type(error).__name__
    else:
        if found is not None:
            return found
        why = "there are fewer than nodes"
    return f"the graph's PPR rows cannot be read ({why}): preprocess it again"


def _read_row(bundle: Bundle, directory: Path, row: int) -> PprAnswer | None:
    for part in sorted(directory.glob("part-*.parquet")):
        file = pq.ParquetFile(part)
        for group in range(file.num_row_groups):
            length = file.metadata.row_group(group).num_rows
            if row < length:
                record = file.read_row_group(group).slice(row, 1).to_pylist()[0]
                count = record["count"]
                ids = bundle.ids.external(record["neighbors"][:count])
                entries = [PprEntry(id=i, score=s) for i, s in zip(ids, record["scores"][:count], strict=True)]
                return PprAnswer(entries=entries, exact=record["exact"])
            row -= length
    return None
