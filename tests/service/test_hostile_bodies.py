"""Bodies made to hold everybody up cost their sender one error; none is read for a stranger."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from route_cases import CASES
from service_world import World, world
from test_every_route import WITH_BODY

from service.schemas import MOST_FIELDS

MANY = 5000
SET = "/v1/embeddings/made"


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("hostile"), max_embed_edges=1, max_embed_nodes=1) as made:
        yield made


def send(filled: World, route: str, body: bytes, key: str = "admin", kind: str = "application/json") -> Any:
    method, path = re.sub(r"{\w+}", "nothing", route).split(" ", 1)
    token = filled.tokens.get(key, key)
    return filled.client.request(
        method, path, content=body, headers={"Content-Type": kind, "Authorization": f"Bearer {token}"}
    )


@pytest.mark.parametrize("route", WITH_BODY)
@pytest.mark.parametrize("body", [b"{", b"[" * 1000, b'{"a": NaN}', b"\xff"])
def test_no_body_is_read_for_a_stranger(filled: World, route: str, body: bytes) -> None:
    answer = send(filled, route, body, key="nobodys")
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
    assert answer.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize("path", ["/v1/nothing", "/v1/", "/v1/embeddings/a/b/c/d"])
def test_what_there_is_not_is_not_told_to_a_stranger(filled: World, path: str) -> None:
    assert send(filled, f"GET {path}", b"", key="nobodys").status_code == 401
    assert send(filled, f"GET {path}", b"").status_code == 404


@pytest.mark.parametrize("route", WITH_BODY)
def test_an_object_wider_than_any_is_one_fault(filled: World, route: str) -> None:
    wide = {f"f{number}": 1 for number in range(MOST_FIELDS + 1)}
    answer = send(filled, route, json.dumps(wide).encode())
    assert answer.status_code == 422
    assert len(answer.json()["errors"]) == 1
    assert str(MOST_FIELDS) in answer.json()["errors"][0]["detail"] or "discriminator" in answer.text


@pytest.mark.parametrize(
    ("path", "body", "pointer"),
    [
        ("lookup", {"ids": [[]] * MANY}, "/ids/0"),
        ("lookup", {"ids": [1] * 7 + [None] * MANY}, "/ids/7"),
        ("neighbors", {"queries": [[]] * MANY}, "/queries/0"),
        ("neighbors", {"queries": [{"vector": ["a"] * MANY}]}, "/queries/0/vector/0"),
        ("neighbors", {"queries": [{"ids": [3] * MANY}]}, "/queries/0/ids/0"),
        ("neighbors", {"queries": [{"id": 1}], "exclude": {"ids": [None] * MANY}}, "/exclude/ids/0"),
        ("neighbors", {"queries": [{"id": 1}], "filter": {"must": [3] * MANY}}, "/filter/must/0"),
        ("scores", {"pairs": [[1, 2], *[[1]] * MANY]}, "/pairs/1/1"),
        ("embed", {"nodes": [3] * MANY}, "/nodes/0"),
        ("embed", {"nodes": [{"id": "a"}], "edges": [{"source": "a"}] * MANY}, "/edges/0/target"),
        ("embed", {"nodes": [{"id": "a", "features": ["b"] * MANY}]}, "/nodes/0/features/0"),
    ],
)
def test_of_a_long_list_the_first_wrong_item_is_told(
    filled: World, path: str, body: dict[str, Any], pointer: str
) -> None:
    answer = send(filled, f"POST {SET}/{path}", json.dumps(body).encode())
    assert answer.status_code == 422
    assert [fault["pointer"] for fault in answer.json()["errors"]] == [pointer]
    assert len(answer.content) < 1000


@pytest.mark.parametrize("part", [b"[],", b"{},", b'"a:b",'])
def test_more_parts_than_are_soon_read_are_refused(filled: World, part: bytes) -> None:
    body = b'{"ids":[' + part * 500_000 + b"1]}"
    answer = send(filled, f"POST {SET}/lookup", body)
    assert answer.status_code == 413
    assert answer.json()["detail"] == "the body has more than 500000 lists, objects and fields"
    # In a body that is no JSON those are bytes like others.
    answer = send(filled, f"POST {SET}/lookup", body, kind="application/vnd.apache.arrow.stream")
    assert answer.status_code == 422


@pytest.mark.parametrize("depth", [1, 4, 5, 20, 200, 250, 300, 400, 700, 1000, 5000])
def test_no_depth_is_a_failure_of_the_server(filled: World, depth: int) -> None:
    nested = b'{"must":[' * depth + b'{"key":"a","match":{"value":1}}' + b"]}" * depth
    answer = send(
        filled, f"POST /v1/embeddings/{filled.embedding}/neighbors", b'{"queries":[{"id":1}],"filter":' + nested + b"}"
    )
    assert answer.status_code in (400, 409, 422)
    assert len(answer.content) < 5000


def test_the_cases_ask_each_route_that_has_a_body() -> None:
    assert set(WITH_BODY) <= set(CASES)
