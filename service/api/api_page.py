"""The page of the HTTP API, ``docs/api.md``, from its OpenAPI document.

``python -m service.api.api_page < docs/openapi.json > docs/api.md``
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import groupby
from typing import Any

__all__ = ["api_page"]

_HEAD = """# HTTP API

Made of [openapi.json](openapi.json), which a running server also gives at `/openapi.json`, by
`python -m service.api.api_page < docs/openapi.json > docs/api.md`; it is not edited by hand. What to do with it:
[how-to pages](index.md).

Bodies are JSON unless told otherwise. A node's id may be sent as a text or a whole number, and comes as a text. Times
are RFC 3339 in UTC. A field or a query parameter that there is not is refused. A failure is a document of
`application/problem+json`, [Problem](#problem), whatever its status. A server that has API keys wants one as
`Authorization: Bearer KEY` on every path that begins with `/v1`.
"""


def api_page(document: dict[str, Any]) -> str:
    """The page as Markdown: routes by tag, then what they take and answer."""
    routes = [
        (operation["tags"][0], verb.upper(), path, operation)
        for path, verbs in document["paths"].items()
        for verb, operation in verbs.items()
    ]
    lines = [_HEAD, "| | route | |", "|---|---|---|"]
    for _, verb, path, operation in routes:
        lines.append(f"| {verb} | [`{path}`](#{_anchor(f'{verb} {path}')}) | {_first(operation)} |")
    for tag, group in groupby(sorted(routes, key=lambda route: [one[0] for one in routes].index(route[0])), _tag):
        lines += ["", f"## {tag.capitalize()}"]
        for _, verb, path, operation in group:
            lines += _route(verb, path, operation)
    lines += ["", "## What is sent and answered"]
    for name, schema in sorted(document["components"]["schemas"].items()):
        lines += _schema(name, schema)
    return "\n".join(lines) + "\n"


def _tag(route: tuple[str, str, str, dict[str, Any]]) -> str:
    return route[0]


def _route(verb: str, path: str, operation: dict[str, Any]) -> Iterator[str]:
    yield from ("", f"### {verb} {path}", "")
    yield _text(operation.get("description") or operation["summary"])
    if parameters := operation.get("parameters"):
        yield from ("", "| parameter | in | type | |", "|---|---|---|---|")
        for one in parameters:
            about = _about(one["schema"] | {"description": one.get("description", "")}, one["required"])
            yield f"| `{one['name']}` | {one['in']} | {_type(one['schema'])} | {about} |"
    body = operation.get("requestBody", {}).get("content", {})
    told = [f"Takes {_content(body)}"] if body else []
    for status, answer in operation["responses"].items():
        if status not in {"4XX", "5XX"}:
            content = _content(answer.get("content", {}))
            told.append(f"{status}" + (f": {content}" if content else ""))
    yield from ("", "; ".join(told) + ".")


def _content(content: dict[str, Any]) -> str:
    kinds = []
    for media, one in content.items():
        schema = one.get("schema", {})
        said = "" if schema.get("type") == "string" or not schema else f" {_type(schema)}"
        kinds.append(f"`{media}`{said}" if media != "application/json" else said.strip() or "JSON")
    return " or ".join(kinds)


def _schema(name: str, schema: dict[str, Any]) -> Iterator[str]:
    yield from ("", f"### {name}", "")
    if schema.get("description"):
        yield from (_text(schema["description"]), "")
    properties = schema.get("properties")
    if properties is None:
        yield _type(schema) + "."
        return
    yield from ("| field | type | |", "|---|---|---|")
    required = schema.get("required", [])
    for field, one in properties.items():
        yield f"| `{field}` | {_type(one)} | {_about(one, field in required)} |"


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{_anchor(name)})"
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return " or ".join(dict.fromkeys(_type(one) for one in schema[several]))
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "enum" in schema:
        return " or ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    match schema.get("type"):
        case "array":
            return f"list of {_type(schema.get('items', {}))}"
        case "object":
            values = schema.get("additionalProperties")
            return f"object of {_type(values)}" if isinstance(values, dict) and values else "object"
        case "string" if "format" in schema:
            return str(schema["format"])
        case None:
            return "anything"
        case kind:
            return str(kind)


_BOUNDS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "less than {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} of them",
    "maxItems": "at most {} of them",
}


def _about(schema: dict[str, Any], required: bool) -> str:
    """Description, bounds and default."""
    said = [_text(schema.get("description", "")).replace("\n", " ").rstrip(".")]
    for one in (schema, *schema.get("anyOf", [])):
        said += [text.format(f"{one[bound]:g}") for bound, text in _BOUNDS.items() if bound in one]
    if required:
        said.append("required")
    elif schema.get("default") is not None:
        said.append(f"default: `{json.dumps(schema['default'], ensure_ascii=False)}`")
    return "; ".join(part for part in said if part).replace("|", "\\|")


def _first(operation: dict[str, Any]) -> str:
    """The first sentence of what a route does."""
    text = _text(operation.get("description") or operation["summary"]).replace("\n", " ")
    return text.split(". ")[0].rstrip(".").replace("|", "\\|")


def _text(text: str) -> str:
    return text.replace("``", "`").strip()


def _anchor(heading: str) -> str:
    """As GitHub makes it."""
    kept = "".join(one for one in heading.lower() if one.isalnum() or one in " -_")
    return kept.replace(" ", "-")


if __name__ == "__main__":
    sys.stdout.write(api_page(json.load(sys.stdin)))
