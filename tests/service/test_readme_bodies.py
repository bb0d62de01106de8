"""What the README sends to a server, against the schemas that a server reads it by."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from service.graphs.schemas import GraphRequest
from service.jobs.schemas import JobRequest
from service.search.filter_schemas import Filter
from service.search.new_node_schemas import EmbedIn
from service.search.schemas import NeighborsIn

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
MODELS: dict[str, Any] = {"jobs": JobRequest, "graphs": GraphRequest, "embed": EmbedIn, "neighbors": NeighborsIn}


def test_every_body_is_one_that_its_route_takes() -> None:
    sent = re.findall(r"^curl -X POST \S+/(\w+) .*-d '(.*)'$", README, re.MULTILINE)
    assert sorted(route for route, _ in sent) == ["embed", "graphs", "jobs", "neighbors"]
    for route, body in sent:
        TypeAdapter(MODELS[route]).validate_json(body)


def test_filters_are_of_the_language_and_ask_for_an_alias_made_before() -> None:
    for command, ref, text in re.findall(r"(rgrl neighbors (\S+) [^`']*)--filter '([^']*)'", README):
        Filter.model_validate_json(text)
        assert f"--alias {ref}" in README[: README.index(command)]


@pytest.mark.parametrize("ref", re.findall(r"/v1/embeddings/(\w+)/", README))
def test_references_are_aliases_made_before(ref: str) -> None:
    assert f"--alias {ref}" in README[: README.index(f"/v1/embeddings/{ref}/")]
