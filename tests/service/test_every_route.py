"""Every route of the app, by a list written here: its scope, what it answers, and how it refuses.

A route that is not on the list fails the first test; the tests that need no word of a route walk over all there are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from route_cases import CASES, Ask, Case
from service_world import World, world

from service.api.openapi import document

ROOT = Path(__file__).parents[2]
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
HIDDEN = {"GET /": "/", "GET /page/{name}": "/page/theme.js", "GET /openapi.json": "/openapi.json"}
NOT_YET: dict[str, str] = {}
"""Routes that shared plans name and this branch does not have."""
WITH_HEAD = ("/", "/page/theme.js", "/livez", "/readyz", "/metrics")
"""What browsers, proxies and monitors look at without wanting it."""
MARKER = "marker-5f1e"

DOCUMENT: dict[str, Any] = json.loads((ROOT / "docs" / "openapi.json").read_text())
OPERATIONS = {
    f"{method.upper()} {path}": operation
    for path, item in DOCUMENT["paths"].items()
    for method, operation in item.items()
}
WITH_BODY = [route for route, operation in OPERATIONS.items() if "requestBody" in operation]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("routes"), max_lookup_ids=4, max_k=10, max_queries=2) as made:
        yield made


def ask(filled: World, route: str, request: Ask, token: str | None = "admin") -> Any:
    """Send what a case says; ``token`` is a scope's key, a made-up one, or none."""
    method, path = route.split(" ", 1)
    names = {**filled.jobs, **{name: value for name, value in vars(filled).items() if isinstance(value, str)}}
    url = _fill(path if request.path is None else request.path, names)
    headers = {} if token is None else {"Authorization": f"Bearer {filled.tokens.get(token, token)}"}
    body = None if request.json is None else json.loads(_fill(json.dumps(request.json), names))
    client = filled.client
    kept = client.headers.pop("Authorization")
    try:
        return client.request(method, url, json=body, params=request.params, headers=headers | request.headers)
    finally:
        client.headers["Authorization"] = kept


def _fill(text: str, names: dict[str, str]) -> str:
    return re.sub(r"<(\w+)>", lambda found: names[found[1]], text)


def problem(answer: Any, status: int, code: str | None = None) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    if answer.request.method == "HEAD":
        return {}
    body: dict[str, Any] = answer.json()
    assert body["status"] == status
    assert code is None or body["code"] == code, body
    assert body["request_id"] == answer.headers["x-request-id"]
    return body


def test_the_list_is_what_the_app_has() -> None:
    new = sorted(set(OPERATIONS) - set(CASES))
    assert not new, (
        f"give each of {new} a case in route_cases.py: its scope, a request it answers, and those it refuses"
    )
    gone = sorted(set(CASES) - set(OPERATIONS))
    assert not gone, f"the app has no {gone} (any more)"
    built = sorted(set(NOT_YET) & set(OPERATIONS))
    assert not built, f"{built} is here now: take it out of NOT_YET"
    assert len(OPERATIONS) == len(CASES)


def test_the_committed_openapi_is_the_running_ones(filled: World) -> None:
    text = document()
    assert (ROOT / "docs" / "openapi.json").read_text() == text, "python -m service.api.openapi > docs/openapi.json"
    assert filled.client.get("/openapi.json").json() == DOCUMENT


@pytest.mark.parametrize("path", HIDDEN.values())
def test_what_is_not_in_the_document_is_open_and_holds_no_data(filled: World, path: str) -> None:
    answer = filled.client.get(path, headers={"Authorization": ""})
    assert answer.status_code == 200
    assert filled.graph not in answer.text


@pytest.mark.parametrize("route", CASES)
def test_a_route_asks_for_its_scope(filled: World, route: str) -> None:
    scope = CASES[route].scope
    request = Ask(path=re.sub(r"{\w+}", "nothing", route.split(" ", 1)[1]))
    if scope is None:
        assert ask(filled, route, request, None).status_code == 200
        return
    for token in (None, "rgrl_made_up", ""):
        answer = ask(filled, route, request, token)
        problem(answer, 401, "unauthorized")
        assert answer.headers["www-authenticate"] == "Bearer"
    ranks = ["read", "write", "admin"]
    for held in ranks:
        answer = ask(filled, route, request, held)
        if ranks.index(held) < ranks.index(scope):
            assert f"scope {scope}" in problem(answer, 403, "forbidden")["detail"]
        else:
            assert answer.status_code not in (401, 403), held


@pytest.mark.parametrize(
    ("route", "request_", "status", "code"),
    [
        pytest.param(route, request, status, code, id=f"{route} {number}")
        for route, case in CASES.items()
        for number, (request, status, code) in enumerate(case.bad)
    ],
)
def test_a_route_refuses(filled: World, route: str, request_: Ask, status: int, code: str) -> None:
    problem(ask(filled, route, request_), status, code)


@pytest.mark.parametrize("route", CASES)
def test_a_route_answers(filled: World, route: str) -> None:
    """In the list's order, by which what is deleted is deleted last."""
    case: Case = CASES[route]
    for request, status, wanted in case.good:
        answer = ask(filled, route, request)
        assert answer.status_code == status, answer.text
        assert str(status) in OPERATIONS[route]["responses"]
        if status == 204:
            assert answer.content == b""
        elif wanted is not None:
            names = {**filled.jobs, **vars(filled)}
            told = answer.json()
            for name, value in wanted.items():
                assert told[name] == (names[value[1:-1]] if str(value).startswith("<") else value), name


@pytest.mark.parametrize("route", WITH_BODY)
def test_bodies_that_cannot_be_meant(filled: World, route: str) -> None:
    method, path = route.split(" ", 1)
    url = re.sub(r"{\w+}", "nothing", path)
    for text, kinds in (
        (b"", (422,)),
        (b"{", (422,)),
        (b"[]", (422,)),
        (b"null", (422,)),
        (b'"text"', (422,)),
        (b"[" * 100_000, (400,)),
        (b'{"no_such_field": 1}', (422,)),
        (b"\xff\xfe", (400, 422)),
    ):
        answer = filled.client.request(method, url, content=text, headers={"Content-Type": "application/json"})
        assert answer.status_code in kinds, (text[:20], answer.text)
        problem(answer, answer.status_code)


def test_numbers_are_numbers_and_truth_values_are_none(filled: World) -> None:
    """In every body of the document, wherever its schema has a number or a truth value."""
    tried = set()
    for route in WITH_BODY:
        for case, _status, _ in CASES[route].good:
            for pointer, body in _spoiled(case.json or {}):
                answer = ask(filled, route, Ask(case.path, json=body, params=case.params))
                told = problem(answer, 422, "validation_failed")
                assert pointer in [error["pointer"] for error in told["errors"]], (route, body)
                tried.add((route, pointer))
    assert len(tried) >= 8, tried


def _spoiled(body: Any, pointer: str = "") -> Iterator[tuple[str, Any]]:
    """The body with one number or truth value of it replaced by another type's, in turn."""
    items = body.items() if isinstance(body, dict) else enumerate(body) if isinstance(body, list) else ()
    for name, value in items:
        place = f"{pointer}/{name}"
        wrong = {bool: [1, "true"], int: [True], float: [True, "0.5"]}.get(type(value), [])
        for given in wrong:
            changed = dict(body) if isinstance(body, dict) else list(body)
            changed[name] = given
            yield place, changed
        for inner, spoiled in _spoiled(value, place):
            changed = dict(body) if isinstance(body, dict) else list(body)
            changed[name] = spoiled
            yield inner, changed


@pytest.mark.parametrize("path", [*DOCUMENT["paths"], "/", "/page/theme.js"])
def test_other_methods_are_told_which_there_are(filled: World, path: str) -> None:
    url = re.sub(r"{\w+}", "nothing", path)
    known = {route.split(" ")[0] for route in OPERATIONS if route.split(" ", 1)[1] == path} or {"GET"}
    known |= {"HEAD"} if path in WITH_HEAD else set()
    for method in METHODS:
        if method in known:
            continue
        answer = filled.client.request(method, url)
        problem(answer, 405, "method_not_allowed")
        assert set(answer.headers["allow"].split(", ")) == known, method


@pytest.mark.parametrize("path", WITH_HEAD)
def test_head_is_answered_as_get_without_the_body(filled: World, path: str) -> None:
    head, whole = filled.client.head(path), filled.client.get(path)
    assert head.status_code == whole.status_code == 200
    # The figures have grown by the first request.
    other = {"x-request-id", *({"content-length"} if path == "/metrics" else ())}
    told = {name: value for name, value in whole.headers.items() if name not in other}
    assert {name: value for name, value in head.headers.items() if name not in other} == told


@pytest.mark.parametrize("path", [*DOCUMENT["paths"], *WITH_HEAD, "/openapi.json", "/nowhere"])
def test_no_answer_is_to_be_guessed_at(filled: World, path: str) -> None:
    for method in METHODS:
        answer = filled.client.request(method, re.sub(r"{\w+}", "nothing", path))
        assert answer.headers.get_list("x-content-type-options") == ["nosniff"], method


@pytest.mark.parametrize(
    "path", ["/nowhere", "/v1", "/v1/jobs/", "/v1/jobs/a/b/c", "/v1//jobs", "/page/../app.py", "/%00"]
)
def test_paths_that_there_are_not(filled: World, path: str) -> None:
    for method in METHODS:
        problem(filled.client.request(method, path, follow_redirects=False), 404, "not_found")


@pytest.mark.parametrize("route", CASES)
def test_no_value_of_a_request_comes_back(filled: World, route: str) -> None:
    method, path = route.split(" ", 1)
    parameters = OPERATIONS[route].get("parameters", [])
    query = {found["name"]: MARKER for found in parameters if found["in"] == "query"}
    headers = {found["name"]: MARKER for found in parameters if found["in"] == "header" and found["name"] != "accept"}
    body = None
    if "requestBody" in OPERATIONS[route]:
        sent = (CASES[route].good or CASES[route].bad)[0][0].json or {}
        body = dict.fromkeys(sent, MARKER) | {"kind": MARKER, MARKER[:3]: [MARKER, 5115]}
    url = re.sub(r"{\w+}", MARKER, path)
    if CASES[route].scope is None:
        return
    answer = filled.client.request(method, url, params=query, headers=headers, json=body)
    if answer.status_code >= 400:
        assert MARKER not in answer.text
        assert "5115" not in answer.text
