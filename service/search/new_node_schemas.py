"""New nodes on the wire: their features and edges, and the vectors that answer."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, StrictInt, StrictStr, Tag, model_validator

from service.schemas import Answer, Many, Request, RequestPart

__all__ = ["EmbedIn", "EmbedOut", "NewEdge", "NewNode", "NewVector", "SparseRow"]

NodeId = StrictStr | StrictInt


class SparseRow(RequestPart):
    """The features of a node that are not zero, as of a bag of words."""

    columns: Many[Annotated[StrictInt, Field(ge=0)]] = Field(description="Counted from 0, each at most once.")
    values: Many[float] = Field(description="One for each column.")

    @model_validator(mode="after")
    def _of_a_row(self) -> SparseRow:
        if len(self.columns) != len(self.values):
            raise ValueError(f"{len(self.columns)} columns have {len(self.values)} values")
        if len(set(self.columns)) != len(self.columns):
            raise ValueError("a column comes twice")
        return self


def _layout(features: Any) -> str | None:
    if isinstance(features, list):
        return "numbers"
    return "sparse" if isinstance(features, dict | SparseRow) else None


Features = Annotated[
    Annotated[Many[float], Tag("numbers")] | Annotated[SparseRow, Tag("sparse")],
    Discriminator(
        _layout,
        custom_error_type="features_type",
        custom_error_message="must be an array of numbers, or an object of columns and values",
    ),
]


class NewNode(RequestPart):
    """A node that the graph has not: ``id`` is the request's own name for it."""

    id: NodeId
    features: Features | None = Field(
        None, description="As many numbers as the graph's nodes have, or those that are not zero."
    )


class NewEdge(RequestPart):
    """An edge as a table of edges has it; the graph's direction policy says who hears whom. One end at least is new."""

    source: NodeId
    target: NodeId
    relation: str | None = Field(None, description="Which one, where the graph has several; else left out.")
    weight: float | None = Field(
        None,
        gt=0,
        description="May be given where the graph's edges have weights. Encoders count edges: no vector depends on it.",
    )


class EmbedIn(Request):
    """Nodes to embed together, and their edges to each other and to nodes of the graph."""

    nodes: Many[NewNode] = Field(min_length=1)
    edges: Many[NewEdge] = Field([])
    encoding: Literal["json", "base64"] = Field(
        "json", description="`base64`: each vector as the base64 of its little-endian float32 numbers."
    )


class NewVector(Answer):
    """The vector of a new node."""

    id: str
    vector: list[float] | str


class EmbedOut(Answer):
    """One entry a new node, in the order of the request; the graph and the embedding set are as before."""

    embedding: str
    dim: int
    items: list[NewVector]
