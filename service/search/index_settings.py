"""Settings of the index stage."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from preprocessing.settings import Settings

__all__ = ["MAX_EFFORT", "MAX_POINTS", "IndexKind", "IndexSettings", "ProjectionMethod", "ProjectionSettings"]

IndexKind = Literal["exact", "hnsw", "ivf"]
ProjectionMethod = Literal["tsne", "umap", "pca"]
MAX_EFFORT = 65_536
TSNE_UP_TO, UMAP_UP_TO = 5_000, 50_000
MAX_POINTS = 200_000


class ProjectionSettings(Settings):
    """The 2-D map of an embedding set."""

    method: Literal["auto", "tsne", "umap", "pca", "none"] = Field(
        "auto", description="`auto`: t-SNE up to 5,000 points, UMAP up to 50,000, PCA above; `none`: no map."
    )
    points: int = Field(MAX_POINTS, ge=1, le=MAX_POINTS, description="Most points of the map; of more nodes, a sample.")
    neighbors: int = Field(
        15, ge=2, le=200, description="Neighbours that a point is kept close to; t-SNE's perplexity."
    )
    seed: int = Field(0, ge=0, lt=2**31, description="Of the sample, and of t-SNE and UMAP.")

    def method_for(self, points: int) -> ProjectionMethod:
        """How so many points are placed: by what looks for neighbours only where there are more than it looks for.

        UMAP's kernels take longer to compile than t-SNE takes for a few thousand points; above, UMAP takes minutes.
        """
        # t-SNE weighs three times its perplexity of neighbours.
        if self.method == "pca" or self.method == "none" or points <= 3 * self.neighbors + 1:
            return "pca"
        if self.method != "auto":
            return self.method
        return "tsne" if points <= TSNE_UP_TO else "umap" if points <= UMAP_UP_TO else "pca"


class IndexSettings(Settings):
    """Which nearest-neighbour index an embedding set gets, how its recall is measured, and which map is drawn of it."""

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
    projection: ProjectionSettings = ProjectionSettings()
