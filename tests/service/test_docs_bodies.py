"""What the pages send to a server, against the schemas that a server reads it by; also where no test runs it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from service.api.routes.aliases import AliasIn
from service.graphs.schemas import GraphRequest
from service.jobs.schemas import JobRequest
from service.search.filter_schemas import Filter
from service.search.new_node_schemas import EmbedIn
from service.search.schemas import LookupIn, NeighborsIn, ScoresIn

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MODELS: dict[str, Any] = {
    "aliases": AliasIn,
    "embed": EmbedIn,
    "graphs": GraphRequest,
    "jobs": JobRequest,
    "lookup": LookupIn,
    "neighbors": NeighborsIn,
    "scores": ScoresIn,
}


def sent(page: Path) -> list[tuple[str, str]]:
    """Routes and bodies of the page's requests."""
    found = re.findall(r"^curl -X (\w+) \S+/v1/(\S+) .*-d '(.*)'$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return [("aliases" if path.startswith("aliases/") else path.split("/")[-1], body) for _, path, body in found]


@pytest.mark.parametrize("page", [page for page in PAGES if sent(page)], ids=lambda page: page.stem)
def test_every_body_is_one_that_its_route_takes(page: Path) -> None:
    for route, body in sent(page):
        TypeAdapter(MODELS[route]).validate_json(body)


def test_the_pages_show_the_routes_that_matter() -> None:
    routes = {route for page in PAGES for route, _ in sent(page)}
    assert {"aliases", "embed", "graphs", "jobs", "neighbors", "scores"} <= routes


def test_filters_are_of_the_language() -> None:
    filters = [text for page in PAGES for text in re.findall(r"--filter '([^']*)'", page.read_text(encoding="utf-8"))]
    assert filters
    for text in filters:
        Filter.model_validate_json(text)


def test_bodies_in_sentences_are_those_that_routes_take() -> None:
    """``{"kind": …}`` of a job or of a source, as the pages tell it beside a command."""
    bodies = {
        body
        for page in PAGES
        if page.name != "api.md"
        for body in re.findall(r'`(\{"kind": [^`]*\})`', page.read_text(encoding="utf-8"))
        if body.count("{") == body.count("}") and "\\" not in body and '"kind": "tables"' not in body
    }
    assert len(bodies) >= 3
    for body in bodies:
        document = json.loads(body)
        if document["kind"] in ("npz", "pyg"):
            TypeAdapter(GraphRequest).validate_python({"source": document})
        else:
            TypeAdapter(JobRequest).validate_python(document)
