"""What a person calls a graph, as what the API registers: a bundle, tables, an `.npz` file, a URI, or a PyG name."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from preprocessing.artifact import MANIFEST
from preprocessing.errors import InputError

if TYPE_CHECKING:
    from service.client import Client, Graph

__all__ = ["default_name", "graph_request", "named_columns", "tell_namesakes"]

SHOWN_NAMESAKES = 3
TABLE_SUFFIXES = (".parquet", ".csv")
_EDGE_COLUMNS = ("source", "target", "weight")
_SPOKEN = {
    "node_id": "id",
    "label": "label",
    "features": "feature",
    "split": "split",
    "attributes": "attribute",
    "source": "source",
    "target": "target",
    "weight": "weight",
}


def graph_request(named: str, pyg_root: Path, columns: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """``{"source": …}`` or ``{"bundle": …}`` for a path or a URI, or for a PyG data set if there is no such path.

    A folder is a bundle if it has a manifest, else it holds an ``edges`` table and perhaps a ``nodes`` table, whose
    ``columns`` may be named as in ``TableSource``. ``InputError`` for anything else.
    """
    path = Path(named).expanduser()
    if "://" in named:
        request = {"source": _file(named, Path(urlsplit(named).path).suffix.lower())}
    elif path.exists():
        request = _local(path.absolute())
    else:
        request = {"source": _pyg(named, pyg_root)}
    for option, column in (columns or {}).items():
        source = request.get("source", {})
        of_edges = option in _EDGE_COLUMNS
        if ("edges" if of_edges else "nodes") not in source:
            what, names = "edge" if of_edges else "node", [column] if isinstance(column, str) else column
            raise InputError(
                f"a {_SPOKEN[option]} column is named, but there is no {what} table",
                given=f"{_SPOKEN[option]} column {', '.join(names)} of {named}",
                expected=f"a folder with {'an edges' if of_edges else 'a nodes'} table",
                remedy=f"leave the {_SPOKEN[option]} column out; other kinds of graph bring their own with them",
            )
        source[option] = column
    return request


def default_name(named: str) -> str:
    """What a graph is called that nobody names: the last part of its path."""
    name = Path(named).name
    return Path(named).resolve().name if name in {"", ".."} else name


def tell_namesakes(client: Client, graph: Graph) -> None:
    """Say on standard error which other graphs have its name, if any: names are for people, and need not be unique."""
    others = [other.id for other in client.graphs(name=graph.name) if other.id != graph.id]
    if others:
        more = f" and {len(others) - SHOWN_NAMESAKES} more" if len(others) > SHOWN_NAMESAKES else ""
        print(
            f"note: {graph.id} is named {graph.name!r} like {', '.join(others[:SHOWN_NAMESAKES])}{more}; their ids "
            "tell them apart, or `rgrl graphs register PATH --name NAME` another name",
            file=sys.stderr,
        )


def named_columns(**columns: str | list[str] | None) -> dict[str, Any]:
    """Those that are named at all, by their options of ``TableSource``."""
    return {option: column for option, column in columns.items() if column not in (None, [])}


def _local(path: Path) -> dict[str, Any]:
    if path.is_dir():
        if (path / MANIFEST).exists():
            return {"bundle": str(path)}
        edges = _table(path, "edges")
        if edges is None:
            raise InputError(
                "the folder holds no edge table",
                expected="edges.parquet or edges.csv (and nodes.parquet or nodes.csv)",
                where=str(path),
            )
        nodes = _table(path, "nodes")
        return {"source": {"kind": "tables", "edges": str(edges)} | ({"nodes": str(nodes)} if nodes else {})}
    return {"source": _file(str(path), path.suffix)}


def _file(named: str, suffix: str) -> dict[str, Any]:
    if suffix == ".npz":
        return {"kind": "npz", "path": named}
    if suffix in TABLE_SUFFIXES:
        return {"kind": "tables", "edges": named}
    raise InputError(
        "this is no kind of graph file",
        given=suffix or "no suffix",
        expected="an edge table (.parquet, .csv), an .npz file, a folder with an edges table, or a bundle",
        where=named,
    )


def _table(folder: Path, name: str) -> Path | None:
    found = [folder / f"{name}{suffix}" for suffix in ("", *TABLE_SUFFIXES)]
    return next((path for path in found if path.exists()), None)


def _pyg(name: str, root: Path) -> dict[str, Any]:
    from preprocessing.settings import PYG_DATASETS

    if name.partition(":")[0] not in PYG_DATASETS:
        raise InputError(
            "there is no such file or folder",
            given=f"{name} (in {Path.cwd()})",
            expected="a path, or the name of a PyG data set such as Planetoid:Cora",
        )
    return {"kind": "pyg", "name": name, "root": str(root)}
