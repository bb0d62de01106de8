"""Settings of the preprocessing stages, checked where they enter: a job's JSON, a command line, a Python call."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, ByteSize, ConfigDict, Field, field_validator, model_validator

from preprocessing.strict_numbers import StrictNumbers

__all__ = [
    "PYG_DATASETS",
    "RELATION_NAME",
    "RESERVED_ATTRIBUTES",
    "AppendSettings",
    "DegreeWeightSettings",
    "EdgeSplitSettings",
    "GenerateSettings",
    "GraphSettings",
    "InduceSettings",
    "IngestSettings",
    "NpzSource",
    "PprSettings",
    "PreprocessSettings",
    "PreviousSettings",
    "PygSource",
    "Settings",
    "TableSource",
]

RESERVED_ATTRIBUTES = ("degree", "label")
"""What filters name of every graph."""
MAX_ATTRIBUTES = 64


# PyG's data sets of one homogeneous graph, and PPI, whose graphs are parts of a split. A closed list, because a name
# may come from a request.
PYG_DATASETS = (
    "Actor",
    "Amazon",
    "AttributedGraphDataset",
    "CitationFull",
    "Coauthor",
    "CoraFull",
    "DeezerEurope",
    "FacebookPagePage",
    "Flickr",
    "GitHub",
    "HeterophilousGraphDataset",
    "KarateClub",
    "LastFMAsia",
    "PPI",
    "Planetoid",
    "Reddit",
    "Reddit2",
    "Twitch",
    "WebKB",
    "WikiCS",
    "WikipediaNetwork",
)


class Settings(StrictNumbers):
    """Base of every settings class: immutable; an unknown field is an error, and so is text for a number."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def _without_credentials(location: str) -> str:
    """Settings are stored beside what they made, and shown."""
    if "://" in location and "@" in location.partition("://")[2].partition("/")[0]:
        raise ValueError("a URI must not hold credentials: give them in the environment, as its file system documents")
    return location


Location = Annotated[str, AfterValidator(_without_credentials)]
"""A path, or a URI that pyarrow.fs opens (s3://, gs://, file://)."""
RELATION_NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"
"""A relation is a folder of the bundle; there, `symmetric` is taken."""


class TableSource(Settings):
    """Node and edge tables, Parquet or CSV by suffix; a directory is read as its parts in natural order.

    A table is a path, or a URI such as `s3://bucket/edges`; credentials come from the environment.
    """

    kind: Literal["tables"] = Field("tables", description="Node and edge tables.")
    edges: Location | None = Field(None, description="Edge table.")
    relations: dict[Annotated[str, Field(pattern=RELATION_NAME)], Location] = Field(
        {}, description="Edge tables by relation, in the place of `edges`: a graph of several kinds of edges."
    )
    nodes: Location | None = Field(None, description="Node table; without one the nodes are the ids that edges name.")
    node_id: str | None = Field(None, description="Id column of the node table; default `id`, `node_id` or the first.")
    source: str | None = Field(
        None, description="Source column; default `source`, `src`, `from` or the edge table's first."
    )
    target: str | None = Field(None, description="Target column; default `target`, `dst`, `to` or the second.")
    weight: str | None = Field(
        None,
        description="Weight column, positive numbers; default `weight` or `w` where there is one; else each edge is 1.",
    )
    features: list[str] | None = Field(
        None,
        description=(
            "Feature columns: numbers or booleans, lists of floats of one length (vectors), or lists of integers (bags "
            "of word numbers). Default: every such column that is neither id, label nor attribute, and every "
            "column of text of which at least half of the first values are numbers."
        ),
    )
    label: str | None = Field(
        None, description="Label column, strings or integers; default `label` or `y` where one is no feature."
    )

    split: str | None = Field(
        None, description="Column of a published split, `train`, `validation`, `test` or nothing: for evaluation alone."
    )
    attributes: list[Annotated[str, Field(min_length=1, max_length=200)]] = Field(
        [],
        max_length=MAX_ATTRIBUTES,
        description=(
            "Columns kept for filters of neighbour queries: numbers, booleans or strings, nulls allowed. One is a "
            "feature, too, only where `features` names it. `degree` and `label` are there without."
        ),
    )

    @model_validator(mode="after")
    def _edges_once(self) -> TableSource:
        if (self.edges is None) == (not self.relations):
            raise ValueError("give one of `edges` and `relations`")
        if "symmetric" in self.relations:
            raise ValueError("a relation cannot be called `symmetric`")
        return self

    @model_validator(mode="after")
    def _node_columns_of_a_node_table(self) -> TableSource:
        given = [name for name in ("node_id", "features", "label", "split") if getattr(self, name) is not None]
        given += ["attributes"] if self.attributes else []
        if self.nodes is None and given:
            raise ValueError(f"`{given[0]}` names a column of the node table: give `nodes`, or leave it out")
        if self.label is not None and self.label in (self.features or ()):
            raise ValueError("the label cannot be a feature: training would read what evaluation asks")
        return self

    @model_validator(mode="after")
    def _attributes_of_names_of_their_own(self) -> TableSource:
        taken = [name for name in RESERVED_ATTRIBUTES if name in self.attributes]
        if taken:
            raise ValueError(
                f"an attribute cannot be called `{taken[0]}`: filters have one of that name in every graph; rename the "
                "column"
            )
        if len(set(self.attributes)) < len(self.attributes):
            raise ValueError("an attribute is named twice")
        return self


class NpzSource(Settings):
    """The gnn-benchmark layout: `adj_*` and `attr_*` in CSR parts, `labels`. Nothing is unpickled."""

    kind: Literal["npz"] = "npz"
    path: Location
    relation: str | None = Field(None, description="Which `adj_<relation>_*` group of a multiplex file.")


class PygSource(Settings):
    """A PyTorch Geometric dataset by name, as `Planetoid:Cora`, `Amazon:Photo` or `WikiCS`."""

    kind: Literal["pyg"] = "pyg"
    name: str
    root: str = Field(description="Where PyG keeps its downloads.")

    @field_validator("name")
    @classmethod
    def _a_known_family(cls, name: str) -> str:
        if name.partition(":")[0] not in PYG_DATASETS:
            raise ValueError(
                f"no such data set; expected one of {', '.join(PYG_DATASETS)}, with :MEMBER where it has any"
            )
        return name


MEMORY = Field(
    ByteSize(2 << 30), ge=512 << 20, description="Memory to work in, as `2GiB`; the result does not depend on it."
)


Source = Annotated[TableSource | NpzSource | PygSource, Field(discriminator="kind")]


class GraphSettings(Settings):
    """How edges and features become a bundle.

    ``direction``: `undirected` adds the reverse of every edge; `directed` lets a target hear from its sources only;
    `reverse` flips every edge first. Duplicate edges and self-loops are dropped and counted under every policy; the
    weights of duplicates add up, and an undirected edge has the larger weight of its two directions.
    """

    direction: Literal["undirected", "directed", "reverse"] = "undirected"
    feature_dtype: Literal["float32", "float16"] = "float32"
    memory: ByteSize = MEMORY


class IngestSettings(GraphSettings):
    """A graph's source, and how it becomes a bundle."""

    source: Source


class AppendSettings(Settings):
    """Tables of new nodes and edges. Columns that are not named are those that the bundle was made with."""

    source: TableSource
    memory: ByteSize = MEMORY


class InduceSettings(Settings):
    """Which nodes of a published split an encoder may see."""

    parts: list[Literal["train", "validation", "test"]] = Field(
        ["train"], min_length=1, description="Parts of the split whose nodes stay."
    )


class PprSettings(Settings):
    """Rows of S = Σ t(1−t)^k T^k, T = D^{-1/2} A D^{-1/2}, cut to their K largest entries."""

    top_k: int = Field(16, ge=1, le=1024, description="K, entries kept of each row.")
    teleport: float = Field(0.15, gt=0, lt=1, description="t: the smaller, the farther from its node a row reaches.")
    self_loops: bool = Field(True, description="Add self-loops to A first, as GDC does.")
    include_self: bool = Field(True, description="Keep the node itself among its K.")
    epsilon: float = Field(1e-3, gt=0, lt=1, description="First push threshold, in units of sqrt(degree).")
    epsilon_floor: float = Field(1e-4, gt=0, lt=1, description="Threshold below which an unproved row stays unproved.")
    edge_budget: int | None = Field(
        None, ge=1, description="Edge visits a row may cost before it stays unproved; default: the floor ends it."
    )
    hub_cap: int | None = Field(
        None,
        ge=1,
        description="Neighbours at most that a node passes mass to; default: as many as matter to the row.",
    )
    exact_arcs: int = Field(
        1_000_000,
        ge=0,
        description="On graphs of at most so many arcs rows without a cap or budget are solved until proved or tied.",
    )

    @property
    def capped(self) -> bool:
        """Whether rows may end before their proof for what they cost."""
        return self.edge_budget is not None or self.hub_cap is not None


class DegreeWeightSettings(Settings):
    """w = min(1, alpha^log(degree+1) + beta); anchors are drawn in proportion to w."""

    alpha: float = Field(
        0.9, gt=0, le=1, description="The smaller, the less nodes of high degree weigh; at 1 all weigh alike."
    )
    beta: float = Field(0.1, ge=0, le=1, description="What every node weighs at least.")


class PreprocessSettings(Settings):
    """PPR rows and degree weights of a bundle."""

    ppr: PprSettings = PprSettings()
    degree_weights: DegreeWeightSettings = DegreeWeightSettings()
    num_workers: int = Field(
        0, ge=0, le=4096, description="0: in this process. 1 or more: shards of PPR as Ray tasks, so many at a time."
    )
    threads: int | None = Field(
        None,
        ge=1,
        le=1024,
        description="Threads a process, cores a worker; default: all cores, shared by the workers.",
    )
    shard_rows: int = Field(16_384, ge=1, description="Rows a shard; a killed run loses at most the shards in work.")


class PreviousSettings(Settings):
    """Whose PPR rows to keep where the graph has changed little."""

    bundle: Path = Field(description="The graph's bundle before the change, with PPR rows of the same settings.")
    tolerance: float = Field(
        1e-4, ge=0, le=1, description="A row is kept when no entry of it can have moved by more than this."
    )


class EdgeSplitSettings(Settings):
    """Which edges are held out for link prediction; what train and validation leave is for the test."""

    train_share: float = Field(0.5, gt=0, lt=1, description="Of the edges, to stay and be trained on.")
    validation_share: float = Field(0.2, gt=0, lt=1, description="Of the edges, held out to validate.")
    seed: int = Field(0, ge=0, le=2**63 - 1, description="Of the edges held out and of the pairs drawn.")
    threads: int | None = Field(None, ge=1, le=1024, description="Default: all cores; the result is the same.")

    @model_validator(mode="after")
    def _some_left_for_test(self) -> EdgeSplitSettings:
        if self.train_share + self.validation_share >= 1:
            raise ValueError("train_share and validation_share leave nothing to test on")
        return self


class GenerateSettings(Settings):
    """A synthetic graph."""

    kind: Literal["rmat", "blocks"] = Field(description="`rmat`: hubs. `blocks`: communities with labels and features.")
    nodes: int = Field(1_000_000, ge=2, le=1 << 40, description="Number of nodes.")
    degree: float = Field(20.0, gt=0, le=10_000, description="Average, repeats and self-loops counted.")
    seed: int = Field(0, ge=0, le=2**63 - 1, description="The same seed and settings, the same bytes.")
    community_size: int = Field(1_000, ge=2, description="Nodes a community (blocks).")
    mixing: float = Field(0.2, ge=0, le=1, description="Share of edges that ignore communities (blocks).")
    dimensions: int = Field(8, ge=1, le=65_536, description="Feature columns (blocks).")
