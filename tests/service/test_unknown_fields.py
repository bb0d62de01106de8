"""A misspelt field of any request, or one in another's section, is told with the one that is meant."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from service_harness import running_app, settings_in

from preprocessing.settings import (
    AppendSettings,
    EdgeSplitSettings,
    GenerateSettings,
    InduceSettings,
    IngestSettings,
    PreprocessSettings,
)
from preprocessing.unknown_fields import fields_beside, meant_field
from service.api import routes
from service.search.index_settings import IndexSettings
from trainer.settings import EmbedSettings, EvaluateSettings, TrainSettings

BODIES = {
    route.path: route.body_field.field_info.annotation
    for module in pkgutil.iter_modules(routes.__path__, f"{routes.__name__}.")
    for route in importlib.import_module(module.name).router.routes
    if getattr(route, "body_field", None) is not None
}
STAGES: tuple[type[BaseModel], ...] = (
    *(AppendSettings, EdgeSplitSettings, GenerateSettings, InduceSettings, IngestSettings, PreprocessSettings),
    *(EmbedSettings, EvaluateSettings, IndexSettings, TrainSettings),
)


def places(root: Any) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Every field of every class of a document, as pydantic tells its place by the schema; and its dotted name."""
    from pydantic import TypeAdapter

    whole = TypeAdapter(root).json_schema(mode="validation")
    parts = whole.get("$defs", {})

    def inside(node: dict[str, Any], place: tuple[str | int, ...], path: str, seen: tuple[str, ...]) -> Iterator[Any]:
        name = str(node.get("$ref", "")).rpartition("/")[2]
        if name in seen:
            return
        node, seen = parts.get(name, node), (*seen, name) if name else seen
        for field, inner in node.get("properties", {}).items():
            yield (*place, field), f"{path}{field}"
            yield from inside(inner, (*place, field), f"{path}{field}.", seen)
        tags = node.get("discriminator", {}).get("mapping", {})
        for tag, ref in tags.items():
            yield from inside({"$ref": ref}, (*place, tag), path, seen)
        for form in [] if tags else node.get("anyOf", node.get("oneOf", [])):
            yield from inside(form, (*place, str(form.get("$ref", "")).rpartition("/")[2]), path, seen)
        if node.get("type") == "array" and isinstance(node.get("items"), dict):
            yield from inside(node["items"], (*place, 0), f"{path}0.", seen)

    yield from inside(whole, (), "", ())


def misspelt(name: str) -> str:
    middle = len(name) // 2
    return name[:middle] + name[middle] + name[middle:]


@pytest.mark.parametrize("root", [*BODIES.values(), *STAGES], ids=[*BODIES, *(model.__name__ for model in STAGES)])
def test_every_field_is_found_again(root: Any) -> None:
    all_of_them = list(places(root))
    assert all_of_them
    wrong = []
    for (*above, name), dotted in all_of_them:
        place = (*above, misspelt(str(name)))
        told = meant_field(root, place)
        if told != f"did you mean `{dotted}`?" or name not in fields_beside(root, place):
            wrong.append((dotted, told))
    assert wrong == []


@pytest.mark.parametrize("model", STAGES)
def test_a_field_given_outside_of_its_section_is_told_the_section(model: type[BaseModel]) -> None:
    nested = [dotted for place, dotted in places(model) if len(place) == 2 and "." in dotted]
    for dotted in nested:
        section, _, name = dotted.partition(".")
        if name in model.model_fields or not isinstance(model.model_fields[section].default, BaseModel):
            continue
        for place in ((name,), *((other, name) for other in sections(model) if name not in fields(model, other))):
            told = meant_field(model, place)
            assert told is not None, place
            assert f"`{dotted}`" in told, place


def sections(model: type[BaseModel]) -> list[str]:
    return [name for name, field in model.model_fields.items() if isinstance(field.default, BaseModel)]


def fields(model: type[BaseModel], section: str) -> set[str]:
    return set(type(model.model_fields[section].default).model_fields)


def test_over_http_every_unknown_field_is_told_what_is_meant(tmp_path: Path) -> None:
    cases: list[tuple[str, dict[str, Any], dict[str, str]]] = [
        (
            "/v1/jobs",
            {"kind": "pipeline", "graph": "g", "train": {"batch_size": 1, "optimizer": {"epochs": 1}}, "alas": "x"},
            {"/train/batch_size": "train.batch.size", "/train/optimizer/epochs": "train.run.epochs", "/alas": "alias"},
        ),
        (
            "/v1/jobs",
            {"kind": "train", "graph": "g", "train": {"preset": "cora", "lr": 1}},
            {"/train/lr": "train.optimizer.lr"},
        ),
        ("/v1/jobs", {"kind": "preprocess", "graph": "g", "top_k": 4}, {"/top_k": "preprocess.ppr.top_k"}),
        ("/v1/graphs", {"source": {"kind": "tables", "edges": "e", "lable": "y"}}, {"/source/lable": "source.label"}),
        (
            "/v1/embeddings/x/neighbors",
            {"queries": [{"id": 1}], "filter": {"must": [{"key": "a", "range": {"min": 1}}]}},
            {"/filter/must/0/range/min": "there are: gt, gte, lt, lte"},
        ),
        ("/v1/keys", {"name": "a", "scope": ["read"], "scopes": ["read"]}, {"/scope": "scopes"}),
    ]
    with running_app(settings_in(tmp_path)) as client:
        for path, body, expected in cases:
            answer = client.post(path, json=body)
            told = {fault["pointer"]: fault["detail"] for fault in answer.json()["errors"]}
            assert answer.status_code == 422
            assert told.keys() == expected.keys()
            for pointer, words in expected.items():
                assert re.search(rf"no such field; .*{re.escape(words)}", told[pointer]), told


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "text/plain", None])
def test_json_that_is_not_said_to_be_json_is_told_how_to(tmp_path: Path, kind: str | None) -> None:
    """As curl sends it with -d alone."""
    headers = {} if kind is None else {"Content-Type": kind}
    with running_app(settings_in(tmp_path)) as client:
        for path in BODIES:
            method = "PATCH" if path == "/v1/jobs/{id}" else "PUT" if path.startswith("/v1/aliases") else "POST"
            answer = client.request(method, path.replace("{ref}", "x"), content=b' {"kind": "x"}', headers=headers)
            told = answer.json()
            assert (answer.status_code, told["code"]) == (422, "validation_failed"), path
            assert "-H 'Content-Type: application/json'" in told["remedy"], path
        assert client.post("/v1/jobs", json={"kind": "x"}).json()["remedy"] is None


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/graphs", {f"f{number}": 1 for number in range(900)}),
        ("/v1/jobs", {"kind": "train", "graph": "g", "train": {f"f{number}": 1 for number in range(900)}}),
        ("/v1/embeddings/x/lookup", {"ids": [None] * 5000}),
        ("/v1/embeddings/x/lookup", {"ids": [{"a": 1}] * 5000}),
        ("/v1/graphs", {"f" * 100_000: 1}),
    ],
)
def test_as_many_faults_are_told_as_somebody_reads(tmp_path: Path, path: str, body: dict[str, Any]) -> None:
    with running_app(settings_in(tmp_path)) as client:
        answer = client.post(path, json=body)
    assert answer.status_code == 422
    assert 1 <= len(answer.json()["errors"]) <= 20
    assert len(answer.content) < 50_000
    if len(body) > 1:
        assert re.search(r"has \d{3} faults; the first 20 are told", answer.json()["detail"])
