"""``rgrl lookup`` and ``rgrl neighbors``: ask a server about nodes."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from preprocessing.errors import InputError
from service.cli.options import DEFAULT_SERVER, AsJson, Key, Server, connect
from service.cli.output import print_json, print_rows

if TYPE_CHECKING:
    from service.client import ApiError, Client, Lookup

__all__ = ["lookup", "neighbors"]

Ref = Annotated[str, typer.Argument(metavar="EMBEDDINGS", help="An embedding set's id, or an alias.")]
Ids = Annotated[list[str], typer.Argument(metavar="ID...", help="Nodes, by their own ids.")]

SHOWN_NUMBERS = 8
SHOWN_IDS = 10


def lookup(ref: Ref, ids: Ids, server: Server = DEFAULT_SERVER, key: Key = None, as_json: AsJson = False) -> None:
    """Vectors of nodes; ends with 3 if any of them is unknown."""
    with connect(server, key) as client:
        answer = client.lookup(ref, ids)
        rows = list(zip(ids, answer.found.tolist(), answer.vectors.tolist(), strict=True))
        if as_json:
            items = [{"id": node, "found": found, "vector": vector if found else None} for node, found, vector in rows]
            print_json({"embedding": answer.embedding, "items": items})
            if not answer.found.all():
                raise typer.Exit(3)
        else:
            shown = ((node, _short(vector) if found else "not found") for node, found, vector in rows)
            print_rows(("id", "vector"), shown)
            _refuse_unknown(client, answer)


def neighbors(
    ref: Ref,
    ids: Ids,
    k: Annotated[int, typer.Option("-k", "--k", min=1, help="Neighbours a node.")] = 10,
    exclude_connected: Annotated[
        bool, typer.Option("--exclude-connected", help="Leave out whom a node shares an edge with already.")
    ] = False,
    among: Annotated[
        str | None,
        typer.Option(
            "--filter",
            metavar="JSON",
            help="Let in by attributes of nodes, as shown above.",
        ),
    ] = None,
    exact: Annotated[bool, typer.Option("--exact", help="Scan every vector, whatever index there is.")] = False,
    effort: Annotated[int | None, typer.Option(help="HNSW: candidates kept; IVF: cells visited.")] = None,
    server: Server = DEFAULT_SERVER,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """The nearest nodes of each node, by cosine.

    A --filter lets in nodes that fulfil all conditions of `must`, one or more of `should`, and none of `must_not`.
    Conditions are on attributes that ingest kept, on `degree` and on `label`; a filter may stand in the place of one.

    \b
    equal:         {"must": [{"key": "country", "match": {"value": "DE"}}]}
    one of:        {"must": [{"key": "country", "match": {"any": ["DE", "AT"]}}]}
    within bounds: {"must": [{"key": "year", "range": {"gte": 2020, "lt": 2025}}]}
    no value:      {"must": [{"key": "year", "is_null": true}]}
    this or that:  {"should": [{"key": "label", "match": {"value": 3}},
                               {"key": "degree", "range": {"gt": 5}}]}
    this and not:  {"must": [{"key": "degree", "range": {"gte": 2}}],
                    "must_not": [{"key": "country", "match": {"value": "DE"}}]}
    """
    wanted = None if among is None else _filter(among)
    with connect(server, key) as client:
        from service.client import ApiError

        try:
            answers = client.neighbors(
                ref,
                [{"id": node} for node in ids],
                k,
                exclude_connected=exclude_connected,
                filter=wanted,
                exact=exact,
                effort=effort,
            )
        except ApiError as error:
            if _names_an_id(error):
                _refuse_unknown(client, client.lookup(ref, ids))
            raise
    if as_json:
        print_json([answer.model_dump(mode="json") for answer in answers])
        return
    for node, answer in zip(ids, answers, strict=True):
        complete = "" if answer.complete else f", there are no more than {answer.returned}"
        print(f"{node} ({answer.strategy}{complete})")
        print_rows(
            ("id", "score", "connected"),
            (
                (
                    found.id,
                    f"{found.score:.4f}",
                    None if found.connected is None else "yes" if found.connected else "no",
                )
                for found in answer.results
            ),
        )


def _names_an_id(error: ApiError) -> bool:
    return re.fullmatch("/queries/[0-9]+/id", error.pointer or "") is not None


def _refuse_unknown(client: Client, answer: Lookup) -> None:
    """``InputError`` that names every id that was not found, and says what ids the set has."""
    from service.client import ApiError

    unknown = [node for node, found in zip(answer.ids, answer.found.tolist(), strict=True) if not found]
    if not unknown:
        return
    try:
        # The server says what ids a set has where it is asked about one that it has not.
        client.neighbors(answer.embedding, [{"id": unknown[0]}], k=1)
    except ApiError as error:
        if not _names_an_id(error):
            raise
        more = f" and {len(unknown) - SHOWN_IDS} more" if len(unknown) > SHOWN_IDS else ""
        raise InputError(
            error.problem,
            given=", ".join(unknown[:SHOWN_IDS]) + more,
            remedy="correct these ids, or leave them out" if len(answer.ids) > 1 else "correct the id",
            pointer=error.pointer,
        ) from error


def _filter(text: str) -> dict[str, Any]:
    try:
        wanted = json.loads(text)
    except ValueError:
        wanted = None
    if not isinstance(wanted, dict):
        raise typer.BadParameter("not a JSON object", param_hint="--filter")
    return wanted


def _short(vector: list[float]) -> str:
    shown = " ".join(f"{number:.4f}" for number in vector[:SHOWN_NUMBERS])
    return f"{shown} … ({len(vector)} numbers)" if len(vector) > SHOWN_NUMBERS else shown
