"""Errors are told by a command line, in Python and over HTTP: those raised below the routes speak of none of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HTTP = re.compile(r"\b(GET|POST|PUT|PATCH|DELETE) |/v1\b|…/|ETag|If-Match|openapi|exclude\.")
EDGE = ("service/api/", "service/errors.py")
"""What only a client of HTTP itself can meet."""


def told(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every text of an error's parts, with its line."""
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or not getattr(call.func, "id", "").endswith("Error"):
            continue
        parts = [*call.args, *(word.value for word in call.keywords if word.arg in {"expected", "remedy"})]
        for part in parts:
            for node in ast.walk(part):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.lineno, node.value


def test_errors_below_the_routes_do_not_speak_http() -> None:
    seen, wrong = 0, []
    for package in ("preprocessing", "trainer", "service"):
        for path in sorted((ROOT / package).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if name.startswith(EDGE):
                continue
            for line, text in told(ast.parse(path.read_text(encoding="utf-8"))):
                seen += 1
                if HTTP.search(text):
                    wrong.append(f"{name}:{line}: {text}")
    assert seen > 500
    assert wrong == []
