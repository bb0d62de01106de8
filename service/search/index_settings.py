"""Settings of the index stage."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from preprocessing.settings import Settings

__all__ = ["MAX_EFFORT", "IndexKind", "IndexSettings"]

IndexKind = Literal["exact", "hnsw", "ivf"]
MAX_EFFORT = 65_536


class IndexSettings(Settings):
    """Which nearest-neighbour index an embedding set gets, and how its recall is measured."""

    kind: Literal["auto", "exact", "hnsw", "ivf"] = Field(
        "auto", description="`auto`: exact up to 200,000 nodes, HNSW up to 20,000,000, IVF above."
    )
    links: int = Field(
        32, ge=4, le=256, description="HNSW: links a node and layer (the lowest layer has twice as many)."
    )
    build_effort: int = Field(200, ge=8, le=4096, description="HNSW: candidates weighed for every node added.")
    cells: int | None = Field(None, ge=1, le=1 << 20, description="IVF: cells; default 4·√nodes.")
    effort: int | None = Field(
        None, ge=1, le=MAX_EFFORT, description="HNSW: candidates a search keeps (128); IVF: cells it visits (64)."
    )
    recall_queries: int = Field(500, ge=1, le=10_000, description="Nodes whose neighbours are checked for recall@10.")
    seed: int = Field(0, ge=0, lt=2**31, description="Of the sample of nodes.")
    threads: int | None = Field(None, ge=1, le=1024, description="Default: every core.")
