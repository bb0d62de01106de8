"""What ``schemathesis run`` is told of this API: ids that there are, and that every failure is a problem document.

The ids come as JSON in ``RGRL_FUZZ_WORLD``: the fields of ``service_world.World``.
"""

from __future__ import annotations

import itertools
import json
import os
from typing import Any

import schemathesis

WORLD: dict[str, Any] = json.loads(os.environ["RGRL_FUZZ_WORLD"])
SETS = [WORLD["embedding"], WORLD["unindexed"], WORLD["alias"]]
IDS = {
    "/v1/graphs/{id}": [WORLD["graph"], WORLD["registered"]],
    # A stream of a job that goes on has no end.
    "/v1/jobs/{id}/events": [WORLD["jobs"]["succeeded"]],
    "/v1/jobs/{id}": list(WORLD["jobs"].values()),
    "/v1/keys/{id}": [WORLD["key"]],
    "/v1/aliases/{name}": [WORLD["alias"]],
}
turns = itertools.count()


@schemathesis.hook
def before_call(_context: schemathesis.HookContext, case: schemathesis.Case, _kwargs: dict[str, Any]) -> None:
    """Every second request that fits the document is about what there is, in turn; nothing of it is deleted."""
    turn = next(turns)
    if case.meta is None or case.meta.generation.mode.is_negative or turn % 2 == 0 or case.method == "DELETE":
        return
    turn //= 2
    for name in case.path_parameters:
        found = next((ids for path, ids in IDS.items() if case.path.startswith(path)), SETS)
        values = ["1", "n3", "10"] if name == "node" else found
        case.path_parameters[name] = values[turn % len(values)]
    if isinstance(case.body, dict):
        case.body = case.body | {name: value for name, value in _fields(turn).items() if name in case.body}


def _fields(turn: int) -> dict[str, Any]:
    return {
        "graph": [WORLD["graph"], WORLD["registered"]][turn % 2],
        "embedding": SETS[turn % len(SETS)],
        "ids": [1, "n2", "x"],
        "pairs": [[[1, "2"]], [["n1", "n2"]]][turn % 2],
        "queries": [{"id": 3}, {"vector": [1.0] * WORLD["dim"]}, {"ids": [{"id": "4", "weight": -0.5}]}][
            : turn % 3 + 1
        ],
    }


@schemathesis.check
def failures_are_problems(
    _context: schemathesis.CheckContext, response: schemathesis.Response, case: schemathesis.Case
) -> None:
    """RFC 9457, with the status and the id that the head of the answer has."""
    if response.status_code < 400:
        return
    assert response.headers["content-type"] == ["application/problem+json"]
    if response.request.method != "HEAD":
        problem = response.json()
        assert problem["status"] == response.status_code
        assert [problem["request_id"]] == response.headers["x-request-id"]
