"""The paper's data sets: their file, their name in PyG, and the preset of their published settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from preprocessing.errors import InputError

__all__ = ["DATASETS", "Dataset"]


@dataclass(frozen=True)
class Dataset:
    """``file`` is in the layout of gnn-benchmark; the preset is called as the data set is."""

    name: str
    title: str
    file: str
    pyg: str | None

    def source(self, data: Path, pyg_root: Path) -> dict[str, Any]:
        """What to ingest: the file where there is one, else PyG's copy, which it downloads.

        ``InputError`` where there is neither.
        """
        path = data / self.file
        if path.exists():
            return {"kind": "npz", "path": str(path.absolute())}
        if self.pyg is None:
            raise InputError(f"there is no {self.file} in {data}, and PyG has no data set of {self.title}")
        return {"kind": "pyg", "name": self.pyg, "root": str(pyg_root.absolute())}


DATASETS: Mapping[str, Dataset] = {
    dataset.name: dataset
    for dataset in (
        Dataset("cora", "Cora", "cora.npz", "Planetoid:Cora"),
        Dataset("citeseer", "Citeseer", "citeseer.npz", "Planetoid:CiteSeer"),
        Dataset("photo", "Photo", "amazon_photo.npz", "Amazon:Photo"),
        Dataset("computers", "Computers", "amazon_computers.npz", "Amazon:Computers"),
        Dataset("cs", "CS", "coauthor_cs.npz", "Coauthor:CS"),
        Dataset("physics", "Physics", "coauthor_physics.npz", "Coauthor:Physics"),
        Dataset("wikics", "WikiCS", "wikics.npz", "WikiCS"),
        Dataset("pubmed", "Pubmed", "pubmed.npz", "Planetoid:PubMed"),
        Dataset("corafull", "CoraFull", "corafull.npz", "CoraFull"),
        Dataset("imdb", "IMDB", "imdb_multiplex.npz", None),
    )
}
