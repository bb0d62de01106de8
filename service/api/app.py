"""The application: settings in, a FastAPI app out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from preprocessing.artifact import code_version
from service.api.auth import READ, Admission, KeyRing, check_exposure, make_first_key, open_without_keys
from service.api.dependencies import KNOWN_PARAMETERS
from service.api.direct import DirectAnswers
from service.api.middleware import MOST_PARTS, BodyLimit, RequestContext
from service.api.routes import (
    aliases,
    embeddings,
    export,
    graphs,
    health,
    info,
    job_history,
    jobs,
    keys,
    new_nodes,
    page,
    projection,
    quality,
    registered_sets,
)
from service.api.serving import Serving
from service.errors import Problem, install_error_handlers
from service.jobs.executor import Executor
from service.jobs.local_processes import LocalProcesses
from service.jobs.plan import Planner, plan_job
from service.jobs.ray_api import RayApi
from service.jobs.ray_jobs import RayJobs
from service.jobs.scheduler import Scheduler
from service.metrics import Metrics
from service.search.embedding_set import EmbeddingSets
from service.search.turns import Turns
from service.settings import ServiceSettings
from service.store import Store
from service.verified import VerifiedFiles

__all__ = ["create_app"]

_PROBLEM: dict[int | str, dict[str, Any]] = {
    code: {
        "description": "Problem details (RFC 9457)",
        "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    for code in ("4XX", "5XX")
}


class _App(FastAPI):
    front: ASGIApp
    """What every request meets first; it ends with ``routed``."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection. The framework's own layers are for requests that are routed: the others' answers take
        little more time than these.
        """
        await (self.front if scope["type"] == "http" else self.routed)(scope, receive, send)

    async def routed(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The framework's layers, and the routes."""
        await super().__call__(scope, receive, send)

    def openapi(self) -> dict[str, Any]:
        """The document, with the schema of every error answer."""
        document = super().openapi()
        schema = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
        document["components"]["schemas"].update(schema.pop("$defs", {}), Problem=schema)
        return document


def _executor(settings: ServiceSettings) -> Executor:
    """Where jobs run."""
    if settings.ray_address is None:
        return LocalProcesses(settings)
    token = settings.ray_auth_token
    return RayJobs(settings, RayApi(settings.ray_address, None if token is None else token.get_secret_value()))


def create_app(settings: ServiceSettings, *, plan: Planner = plan_job) -> FastAPI:
    """A server of ``settings.home``: API, scheduler and page. ``plan`` turns jobs into the commands that do them.

    ``UsageError`` when the store cannot be opened, or when the address is open to others and there is no API key.
    """
    if settings.database_url is None and settings.first_key_file is None and not settings.jobs.exists():
        # A refused start makes no home.
        check_exposure(settings, None)
    store = Store(settings)
    make_first_key(settings, store)
    check_exposure(settings, store)
    metrics = Metrics()
    scheduler = Scheduler(store, settings, plan, metrics, _executor(settings))

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.verified.tidy()
        app.state.embeddings.lease()
        scheduler.start()
        try:
            yield
        finally:
            scheduler.stop()
            app.state.embeddings.close()
            store.close()

    app = _App(
        title="rgrl",
        version=code_version(),
        description="Node embeddings for huge graphs, without labels.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        # A path has one spelling; a redirect would send a body, and a key, to where the Host header says.
        redirect_slashes=False,
        responses=_PROBLEM,
    )
    app.state.settings = settings
    app.state.store = store
    app.state.metrics = metrics
    app.state.scheduler = scheduler
    app.state.keys = KeyRing(store, open_without_keys=open_without_keys(settings))
    app.state.searches = Turns(settings.max_searches, settings.search_wait_s)
    app.state.exports = Turns(settings.max_exports, 0.0, "exports", "max_exports", "go on by cursor in a moment")
    app.state.verified = VerifiedFiles(settings.verified)
    app.state.embeddings = EmbeddingSets(store, app.state.verified, settings.open_embeddings)
    app.state.serving = Serving(app.state.embeddings, settings, metrics, app.state.searches)
    app.include_router(health.router)
    app.include_router(page.router)
    sets = (registered_sets, embeddings, export, projection, quality, new_nodes)
    for part in (info, graphs, jobs, job_history, *sets, aliases, keys):
        app.include_router(part.router, dependencies=[READ, KNOWN_PARAMETERS])
    install_error_handlers(app)
    routes = {getattr(route, "name", ""): route for route in embeddings.router.routes}
    direct = DirectAnswers(Admission(app.routed, app.state.keys), app.state.serving, app.state.keys, routes)
    # An edge is an object of up to four fields; a node has fewer parts.
    parts = max(MOST_PARTS, 5 * (settings.max_embed_edges + settings.max_embed_nodes))
    bounded = BodyLimit(direct, settings.max_body_bytes, settings.max_bodies_bytes, settings.body_timeout_s, parts)
    app.front = RequestContext(bounded, metrics)
    return app
