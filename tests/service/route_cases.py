"""Every route: the scope it asks for, requests that it answers, and requests that it refuses.

``<name>`` stands for an id of ``service_world.World``, or for the id of the job of that status.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["CASES", "Ask", "Case"]


@dataclass(frozen=True)
class Ask:
    """A request; ``path`` is None where the route's own has no parameters."""

    path: str | None = None
    json: Any = None
    params: dict[str, Any] | None = None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """``good``: request, status, and what the answer says among more; ``bad``: request, status, code."""

    scope: str | None
    good: list[tuple[Ask, int, dict[str, Any] | None]]
    bad: list[tuple[Ask, int, str]] = field(default_factory=list)


def _about(path: str, unknown: str = "none") -> tuple[Ask, int, str]:
    return Ask(path.format(unknown)), 404, "not_found"


_LIMITS = [(Ask(params={"limit": limit}), 422, "validation_failed") for limit in (0, 201, "x", "")]
_CURSORS = [(Ask(params={"cursor": cursor}), 422, "usage_invalid") for cursor in ("", "x", "%%", "Zm9v")]
_ARROW = "application/vnd.apache.arrow.stream"
_E, _J, _G, _A = "/v1/embeddings/<embedding>", "/v1/jobs/<{}>", "/v1/graphs/<graph>", "/v1/aliases/{}"

CASES: dict[str, Case] = {
    "GET /livez": Case(None, [(Ask(), 200, {"status": "ok"})]),
    "GET /readyz": Case(None, [(Ask(), 200, {"status": "degraded", "store": True})]),
    "GET /metrics": Case(None, [(Ask(), 200, None)]),
    "GET /v1/info": Case("read", [(Ask(), 200, {})]),
    "POST /v1/graphs": Case(
        "write",
        [(Ask(json={"bundle": "bundle", "name": "again"}), 201, {"state": "ready", "name": "again"})],
        [
            (Ask(json={}), 422, "validation_failed"),
            (Ask(json={"bundle": "nothing"}), 422, "input_invalid"),
            (Ask(json={"bundle": "/etc"}), 403, "forbidden"),
            (Ask(json={"bundle": "a\u0000b"}), 422, "validation_failed"),
            (Ask(json={"bundle": "bundle", "direction": "directed"}), 422, "validation_failed"),
        ],
    ),
    "GET /v1/graphs": Case("read", [(Ask(params={"limit": 200}), 200, {"next_cursor": None})], [*_LIMITS, *_CURSORS]),
    "GET /v1/graphs/{id}": Case("read", [(Ask(_G), 200, {"id": "<graph>"})], [_about("/v1/graphs/{}")]),
    "GET /v1/graphs/{id}/degrees": Case(
        "read",
        [(Ask(f"{_G}/degrees"), 200, {"max": 2})],
        [_about("/v1/graphs/{}/degrees"), (Ask("/v1/graphs/<registered>/degrees"), 409, "conflict")],
    ),
    "GET /v1/graphs/{id}/nodes/{node}": Case(
        "read",
        [(Ask(f"{_G}/nodes/10"), 200, {"id": "10", "degree": 2})],
        [
            _about("/v1/graphs/<graph>/nodes/{}"),
            _about("/v1/graphs/none/nodes/{}"),
            (Ask("/v1/graphs/<registered>/nodes/10"), 409, "conflict"),
        ],
    ),
    "POST /v1/jobs": Case(
        "write",
        [
            (
                Ask(
                    json={
                        "kind": "pipeline",
                        "graph": "<graph>",
                        "preprocess": {"ppr": {"teleport": 0.2, "self_loops": True}, "num_workers": 0},
                        "train": {"run": {"epochs": 3}, "encoder": {"layers": [4, 2]}, "optimizer": {"lr": 0.5}},
                    },
                    params={"dry_run": "true"},
                ),
                200,
                {"stages": ["preprocess", "train", "evaluate", "index"]},
            ),
            (Ask(json={"kind": "preprocess", "graph": "<graph>"}), 201, {"status": "queued", "attempt": 0}),
            (Ask(json={"kind": "evaluate", "embedding": "<alias>"}), 201, {"embedding": "<embedding>"}),
        ],
        [
            (Ask(json={"kind": "train"}), 422, "validation_failed"),
            (Ask(json={"kind": "dance", "graph": "<graph>"}), 422, "validation_failed"),
            (Ask(json={"kind": "train", "graph": "none"}), 404, "not_found"),
            (Ask(json={"kind": "index", "embedding": "none"}), 404, "not_found"),
            (Ask(json={"kind": "train", "graph": "<graph>", "train": {"preset": "none"}}), 422, "usage_invalid"),
            (
                Ask(json={"kind": "ingest", "graph": "<graph>"}, headers={"Idempotency-Key": "k" * 256}),
                422,
                "validation_failed",
            ),
            (
                Ask(json={"kind": "train", "graph": "<graph>", "labels": {f"l{n}": "" for n in range(33)}}),
                422,
                "validation_failed",
            ),
        ],
    ),
    "GET /v1/jobs": Case(
        "read",
        [(Ask(params={"status": ["failed"], "kind": "train", "label": "status=failed"}), 200, {"next_cursor": None})],
        [
            *_LIMITS,
            *_CURSORS,
            (Ask(params={"status": "done"}), 422, "validation_failed"),
            (Ask(params={"label": "x"}), 422, "usage_invalid"),
            (Ask(params={"created_after": "5"}), 422, "validation_failed"),
            (Ask(params={"created_after": "2026-01-01T00:00:00"}), 422, "validation_failed"),
        ],
    ),
    "GET /v1/jobs/{id}": Case(
        "read",
        [(Ask(_J.format(status)), 200, {"status": status}) for status in ("queued", "running", "failed", "cancelled")],
        [_about("/v1/jobs/{}")],
    ),
    "PATCH /v1/jobs/{id}": Case(
        "write",
        [(Ask(_J.format("succeeded"), {"name": "new"}), 200, {"name": "new", "status": "succeeded"})],
        [
            (Ask("/v1/jobs/none", {}), 404, "not_found"),
            (Ask(_J.format("queued"), {"name": ""}), 422, "validation_failed"),
            (Ask(_J.format("queued"), {"labels": {"-": "x"}}), 422, "validation_failed"),
            (Ask(_J.format("queued"), {"status": "succeeded"}), 422, "validation_failed"),
        ],
    ),
    "POST /v1/jobs/{id}/cancel": Case(
        "write",
        [(Ask(_J.format("queued") + "/cancel"), 202, None), (Ask(_J.format("cancelling") + "/cancel"), 200, None)],
        [(Ask("/v1/jobs/none/cancel"), 404, "not_found"), (Ask(_J.format("failed") + "/cancel"), 409, "conflict")],
    ),
    "GET /v1/jobs/{id}/events": Case(
        "read",
        [
            (Ask(_J.format("succeeded") + "/events"), 200, {"ended": True}),
            (Ask(_J.format("succeeded") + "/events", headers={"Accept": "text/event-stream"}), 200, None),
        ],
        [
            (Ask("/v1/jobs/none/events"), 404, "not_found"),
            (Ask("/v1/jobs/none/events", headers={"Accept": "text/event-stream"}), 404, "not_found"),
            (Ask(_J.format("succeeded") + "/events", params={"after": -1}), 422, "validation_failed"),
            (Ask(_J.format("succeeded") + "/events", params={"after": 2**63}), 422, "validation_failed"),
            (Ask(_J.format("succeeded") + "/events", params={"limit": 501}), 422, "validation_failed"),
            (Ask(_J.format("succeeded") + "/events", headers={"Last-Event-ID": "x"}), 422, "validation_failed"),
        ],
    ),
    "GET /v1/jobs/{id}/logs": Case(
        "read",
        [(Ask(_J.format("failed") + "/logs", params={"tail": 1}), 200, {"lines": ["last"]})],
        [
            (Ask("/v1/jobs/none/logs"), 404, "not_found"),
            (Ask("/v1/jobs/%2e%2e/logs"), 404, "not_found"),
            (Ask(_J.format("failed") + "/logs", params={"tail": 10_001}), 422, "validation_failed"),
        ],
    ),
    "GET /v1/jobs/{id}/metrics": Case(
        "read",
        [
            (
                Ask(_J.format("failed") + "/metrics", params={"names": "loss"}),
                200,
                {"series": [{"stage": "train", "name": "loss", "steps": [1], "values": [0.5]}]},
            )
        ],
        [
            (Ask("/v1/jobs/none/metrics"), 404, "not_found"),
            (Ask(_J.format("failed") + "/metrics", params={"max_points": 1}), 422, "validation_failed"),
            (Ask(_J.format("failed") + "/metrics", params={"max_points": 100_001}), 422, "validation_failed"),
        ],
    ),
    "GET /v1/jobs/{id}/checkpoints": Case(
        "read",
        [(Ask(_J.format("queued") + "/checkpoints"), 200, {"items": []})],
        [(Ask("/v1/jobs/none/checkpoints"), 404, "not_found")],
    ),
    "GET /v1/embeddings": Case(
        "read",
        [(Ask(params={"graph": "none"}), 200, {"items": [], "next_cursor": None})],
        [*_LIMITS, *_CURSORS],
    ),
    "GET /v1/embeddings/{ref}": Case(
        "read", [(Ask("/v1/embeddings/<alias>"), 200, {"id": "<embedding>"})], [_about("/v1/embeddings/{}")]
    ),
    "GET /v1/embeddings/{ref}/vectors/{node}": Case(
        "read",
        [(Ask(f"{_E}/vectors/7"), 200, {"id": "7", "dim": 4, "embedding": "<embedding>"})],
        [_about("/v1/embeddings/<embedding>/vectors/{}"), _about("/v1/embeddings/none/vectors/{}", "7")],
    ),
    "POST /v1/embeddings": Case(
        "write",
        [(Ask(json={"path": "set", "graph": "<graph>", "name": "mine"}), 201, {"graph": "<graph>", "name": "mine"})],
        [
            (Ask(json={"path": "set"}), 422, "validation_failed"),
            (Ask(json={"path": "set", "graph": "none"}), 404, "not_found"),
            (Ask(json={"path": "set", "graph": "<registered>"}), 409, "conflict"),
            (Ask(json={"path": "bundle", "graph": "<graph>"}), 422, "input_invalid"),
            (Ask(json={"path": "/etc", "graph": "<graph>"}), 403, "forbidden"),
            (Ask(json={"path": "a\u0000b", "graph": "<graph>"}), 422, "validation_failed"),
        ],
    ),
    "GET /v1/embeddings/{ref}/vectors": Case(
        "read",
        [
            (Ask(f"{_E}/vectors"), 200, None),
            (Ask("/v1/embeddings/<alias>/vectors", params={"shard": "1/3", "limit": 5}), 200, None),
            (Ask(f"{_E}/vectors", headers={"Accept": "application/vnd.apache.parquet"}), 200, None),
        ],
        [
            (Ask("/v1/embeddings/none/vectors"), 404, "not_found"),
            (Ask(f"{_E}/vectors", headers={"Accept": "image/png"}), 406, "not_acceptable"),
            *(
                (Ask(f"{_E}/vectors", params=params), 422, None)
                for params in ({"shard": "3/3"}, {"shard": "x"}, {"cursor": "x"}, {"limit": 0}, {"limit": "x"})
            ),
        ],
    ),
    "GET /v1/embeddings/{ref}/projection": Case(
        "read",
        [
            (Ask(f"{_E}/projection"), 200, {"method": "pca", "nodes": 40, "color": None}),
            (
                Ask("/v1/embeddings/<alias>/projection", headers={"Accept": "application/vnd.apache.arrow.stream"}),
                200,
                None,
            ),
        ],
        [
            (Ask("/v1/embeddings/none/projection"), 404, "not_found"),
            (Ask("/v1/embeddings/<unindexed>/projection"), 409, "conflict"),
            (Ask(f"{_E}/projection", params={"color": "none"}), 422, "input_invalid"),
            (Ask(f"{_E}/projection", params={"color": ""}), 422, "validation_failed"),
            (Ask(f"{_E}/projection", headers={"Accept": "image/png"}), 406, "not_acceptable"),
        ],
    ),
    "GET /v1/embeddings/{ref}/report": Case(
        "read",
        [
            (Ask(f"{_E}/report"), 200, {"objective": "rgrl", "epochs": 2}),
            (Ask("/v1/embeddings/<alias>/report"), 200, {"objective": "rgrl"}),
        ],
        [
            (Ask("/v1/embeddings/none/report"), 404, "not_found"),
            (Ask("/v1/embeddings/<unindexed>/report"), 404, "not_found"),
        ],
    ),
    "POST /v1/embeddings/{ref}/embed": Case(
        "read",
        # Sets of this world have no encoder: answers are looked at in test_new_nodes.
        [],
        [
            (Ask(f"{_E}/embed", {"nodes": [{"id": "new", "features": [0.5]}]}), 409, None),
            (Ask("/v1/embeddings/none/embed", {"nodes": [{"id": "new"}]}), 404, "not_found"),
            (Ask(f"{_E}/embed", {"nodes": []}), 422, "validation_failed"),
            (Ask(f"{_E}/embed", {"nodes": [{"id": "new", "features": ["x"]}]}), 422, "validation_failed"),
            (Ask(f"{_E}/embed", {"nodes": [{"id": True}]}), 422, "validation_failed"),
        ],
    ),
    "POST /v1/embeddings/{ref}/lookup": Case(
        "read",
        [(Ask(f"{_E}/lookup", {"ids": ["1", "x"], "encoding": "base64"}), 200, {"dim": 4})],
        [
            (Ask("/v1/embeddings/none/lookup", {"ids": ["1"]}), 404, "not_found"),
            (Ask(f"{_E}/lookup", {"ids": []}), 422, "validation_failed"),
            (Ask(f"{_E}/lookup", {"ids": [1.5]}), 422, "validation_failed"),
            (Ask(f"{_E}/lookup", {"ids": [True]}), 422, "validation_failed"),
            (Ask(f"{_E}/lookup", {"ids": ["1"] * 5}), 422, "limit_exceeded"),
        ],
    ),
    "POST /v1/embeddings/{ref}/neighbors": Case(
        "read",
        [
            (
                Ask(
                    f"{_E}/neighbors",
                    {
                        "queries": [{"vector": [1.0, 0.5, 0.0, -2.0]}, {"ids": [{"id": "1", "weight": 0.5}]}],
                        "k": 3,
                        "exclude": {"self": True},
                        "filter": {"must": [{"key": "degree", "range": {"gte": 1}}]},
                        "search": {"exact": True, "effort": 10},
                    },
                ),
                200,
                {"embedding": "<embedding>"},
            )
        ],
        [
            (Ask("/v1/embeddings/none/neighbors", {"queries": [{"id": 1}]}), 404, "not_found"),
            (Ask(f"{_E}/neighbors", {"queries": []}), 422, "validation_failed"),
            (Ask(f"{_E}/neighbors", {"queries": [{"id": 1}], "k": 0}), 422, "validation_failed"),
            (Ask(f"{_E}/neighbors", {"queries": [{"id": 1}], "k": 11}), 422, "limit_exceeded"),
            (Ask(f"{_E}/neighbors", {"queries": [{"id": 1}] * 3}), 422, "limit_exceeded"),
            (Ask(f"{_E}/neighbors", {"queries": [{"id": "none"}]}), 422, "input_invalid"),
            (Ask(f"{_E}/neighbors", {"queries": [{"vector": [1.0]}]}), 422, "input_invalid"),
            (
                Ask(f"{_E}/neighbors", {"queries": [{"id": 1}], "filter": {"must": [{"key": "x", "is_null": True}]}}),
                422,
                "input_invalid",
            ),
            (
                Ask(
                    "/v1/embeddings/<unindexed>/neighbors", {"queries": [{"id": "n1"}], "exclude": {"connected": True}}
                ),
                409,
                "artifact_invalid",
            ),
        ],
    ),
    "POST /v1/embeddings/{ref}/scores": Case(
        "read",
        [(Ask(f"{_E}/scores", {"pairs": [["1", "2"]]}), 200, {"embedding": "<embedding>"})],
        [
            (Ask("/v1/embeddings/none/scores", {"pairs": [[1, 2]]}), 404, "not_found"),
            (Ask(f"{_E}/scores", {"pairs": []}), 422, "validation_failed"),
            (Ask(f"{_E}/scores", {"pairs": [["1"]]}), 422, "validation_failed"),
            (Ask(f"{_E}/scores", {"pairs": [[1, 2]] * 5}), 422, "limit_exceeded"),
            (Ask(f"{_E}/scores", {"pairs": [["1", "none"]]}), 422, "input_invalid"),
        ],
    ),
    "GET /v1/aliases": Case("read", [(Ask(), 200, {"next_cursor": None})]),
    "GET /v1/aliases/{name}": Case(
        "read", [(Ask("/v1/aliases/<alias>"), 200, {"embedding": "<embedding>"})], [_about("/v1/aliases/{}")]
    ),
    "PUT /v1/aliases/{name}": Case(
        "write",
        [(Ask("/v1/aliases/spare", {"embedding": "<unindexed>"}), 200, {"embedding": "<unindexed>", "version": 1})],
        [
            (Ask("/v1/aliases/spare", {"embedding": "none"}), 404, "not_found"),
            (Ask("/v1/aliases/spare", {}), 422, "validation_failed"),
            (Ask("/v1/aliases/emb_x", {"embedding": "<unindexed>"}), 422, "validation_failed"),
            (Ask("/v1/aliases/-", {"embedding": "<unindexed>"}), 422, "validation_failed"),
            (Ask("/v1/aliases/" + "n" * 129, {"embedding": "<unindexed>"}), 422, "validation_failed"),
            (
                Ask("/v1/aliases/<alias>", {"embedding": "<unindexed>"}, headers={"If-Match": '"99"'}),
                412,
                "precondition_failed",
            ),
        ],
    ),
    "GET /v1/keys": Case("admin", [(Ask(), 200, {})]),
    "GET /v1/key": Case("read", [(Ask(), 200, {})]),
    "POST /v1/keys": Case(
        "admin",
        [(Ask(json={"name": "another", "scopes": ["read"]}), 201, {"scopes": ["read"], "revoked_at": None})],
        [
            (Ask(json={"name": "x", "scopes": []}), 422, "validation_failed"),
            (Ask(json={"name": "x", "scopes": ["king"]}), 422, "validation_failed"),
            (Ask(json={"name": "x" * 201, "scopes": ["read"]}), 422, "validation_failed"),
        ],
    ),
    # What deletes comes last: the requests above are about the same things.
    "DELETE /v1/keys/{id}": Case("admin", [], [_about("/v1/keys/{}"), _about("/v1/keys/<key>")]),
    "DELETE /v1/aliases/{name}": Case(
        "write",
        [(Ask("/v1/aliases/spare"), 204, None)],
        [
            _about("/v1/aliases/{}"),
            (Ask("/v1/aliases/<alias>", headers={"If-Match": '"99"'}), 412, "precondition_failed"),
        ],
    ),
    "DELETE /v1/jobs/{id}": Case(
        "write",
        [(Ask(_J.format("cancelled")), 204, None)],
        [_about("/v1/jobs/{}"), (Ask(_J.format("running")), 409, "conflict")],
    ),
    "DELETE /v1/embeddings/{ref}": Case(
        "write",
        [(Ask("/v1/embeddings/<unindexed>"), 204, None)],
        [_about("/v1/embeddings/{}"), (Ask("/v1/embeddings/<alias>"), 409, "conflict")],
    ),
    "DELETE /v1/graphs/{id}": Case(
        "write",
        [(Ask("/v1/graphs/<registered>"), 204, None)],
        [_about("/v1/graphs/{}"), (Ask("/v1/graphs/<graph>"), 409, "conflict")],
    ),
}
