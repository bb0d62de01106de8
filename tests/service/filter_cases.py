"""A graph with attributes of every type, and filters evaluated one node at a time in plain Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from preprocessing.bundle import Bundle
from preprocessing.ingest import ingest
from preprocessing.stage import Emitter

NODES = 60
CITIES = ["Zürich", "Ankara", "", "Łódź", "北京"]
ATTRIBUTES = ["city", "age", "height", "member"]
EDGES = [(node, (node * 7 + 3) % NODES) for node in range(NODES)] + [(0, node) for node in range(1, 20)]


def _age(node: int) -> int | None:
    far = {1: -(2**63) + 1, 2: 2**63 - 1, 3: 2**53 + 1}
    return None if node % 7 == 0 else far.get(node, node % 10 - 4)


def _height(node: int) -> float | None:
    far = {1: -1e308, 2: float(2**53), 3: 5e-324}
    return None if node % 5 == 0 else far.get(node, node % 8 / 4)


def write_tables(folder: Path) -> dict[str, Any]:
    """Node and edge tables in ``folder``; the source that names them."""
    nodes = range(NODES)
    columns = {
        "id": list(nodes),
        "label": [None if node % 4 == 0 else node % 3 for node in nodes],
        "city": [None if node % 11 == 0 else CITIES[node % 5] for node in nodes],
        "age": pa.array([_age(node) for node in nodes], pa.int64()),
        "height": [_height(node) for node in nodes],
        "member": [None if node % 3 == 0 else bool(node % 2) for node in nodes],
    }
    pq.write_table(pa.table(columns), folder / "nodes.parquet")
    pq.write_table(
        pa.table({"source": [a for a, _ in EDGES], "target": [b for _, b in EDGES]}), folder / "edges.parquet"
    )
    named = {"nodes": str(folder / "nodes.parquet"), "edges": str(folder / "edges.parquet")}
    return {"kind": "tables", **named, "label": "label", "attributes": ATTRIBUTES}


def attributed_bundle(folder: Path) -> Bundle:
    ingest({"out": str(folder / "bundle"), "settings": {"source": write_tables(folder)}}, Emitter("ingest"))
    return Bundle(folder / "bundle")


def node_values(node: int) -> dict[str, Any]:
    """What the tables say of a node, by attribute."""
    known = {frozenset(edge) for edge in EDGES if len(set(edge)) == 2}
    return {
        "degree": sum(node in edge for edge in known),
        "label": None if node % 4 == 0 else str(node % 3),
        "city": None if node % 11 == 0 else CITIES[node % 5],
        "age": _age(node),
        "height": _height(node),
        "member": None if node % 3 == 0 else bool(node % 2),
    }


def fulfils(values: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Whether a node of these values passes the filter, or fulfils the condition."""
    if "key" not in wanted:
        must, should, must_not = (
            [fulfils(values, clause) for clause in wanted.get(name, [])] for name in ("must", "should", "must_not")
        )
        return all(must) and (any(should) or not should) and not any(must_not)
    value = values[wanted["key"]]
    if "is_null" in wanted:
        return (value is None) == wanted["is_null"]
    if value is None:
        return False
    if "match" in wanted:
        return any(value == given for given in wanted["match"].get("any", [wanted["match"].get("value")]))
    return all(_holds(value, bound, name) for name, bound in wanted["range"].items())


def _holds(value: float, bound: float, name: str) -> bool:
    return {"gt": value > bound, "gte": value >= bound, "lt": value < bound, "lte": value <= bound}[name]
