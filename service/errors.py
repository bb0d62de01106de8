"""The service's own errors, and the one place where any error becomes an RFC 9457 answer.

Routes and store raise; nothing else builds an error response. No input value and no traceback leaves the server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from sqlalchemy.exc import DataError, OperationalError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import Match

from preprocessing.errors import ArtifactError, InputError, ResourceError, RgrlError, UsageError
from preprocessing.fault_words import MUST, fault_words, meant_value
from preprocessing.unknown_fields import fields_beside, meant_field
from service.causes import cause_of

__all__ = [
    "BODY_TOO_LARGE",
    "BusyError",
    "ConflictError",
    "ForbiddenError",
    "LimitError",
    "NotAcceptableError",
    "NotFoundError",
    "PreconditionError",
    "Problem",
    "UnauthorizedError",
    "UnavailableError",
    "failure_response",
    "install_error_handlers",
    "problem_response",
    "server_failed",
]

log = structlog.get_logger(__name__)


class NotFoundError(RgrlError):
    """There is nothing by that id or name."""

    code = "not_found"


class NotAcceptableError(RgrlError):
    """The answer comes in none of the media types that ``Accept`` names."""

    code = "not_acceptable"


class ConflictError(RgrlError):
    """The request does not fit the present state of what it names."""

    code = "conflict"


class PreconditionError(RgrlError):
    """``If-Match`` names another version than the present one."""

    code = "precondition_failed"


class LimitError(RgrlError):
    """More of something than one request may hold; the message names the limit."""

    code = "limit_exceeded"


class BusyError(RgrlError):
    """The server is full; the same request may be sent again later."""

    code = "busy"
    retryable = True


class UnavailableError(RgrlError):
    """Something the server needs does not answer."""

    code = "unavailable"
    retryable = True


class UnauthorizedError(RgrlError):
    """No API key, or one that is not live."""

    code = "unauthorized"


class ForbiddenError(RgrlError):
    """The key's scopes, or the configured data roots, do not allow this."""

    code = "forbidden"


class FieldProblem(BaseModel):
    """One fault of a request: where (a JSON pointer into the body, or a parameter's name), which, and why."""

    pointer: str
    code: str
    detail: str


class Problem(BaseModel):
    """RFC 9457 problem details, the shape of every error answer."""

    type: str = "about:blank"
    title: str
    status: int
    code: str = Field(description="Stable and machine-readable.")
    detail: str
    remedy: str | None = Field(None, description="What to do about it.")
    errors: list[FieldProblem] = []
    request_id: str | None = None
    retryable: bool = False


BODY_TOO_LARGE = "body_too_large"

_STATUS: Mapping[type[RgrlError], int] = {
    UnauthorizedError: 401,
    ForbiddenError: 403,
    NotFoundError: 404,
    NotAcceptableError: 406,
    ConflictError: 409,
    ArtifactError: 409,
    PreconditionError: 412,
    LimitError: 422,
    InputError: 422,
    UsageError: 422,
    ResourceError: 422,
    BusyError: 429,
    UnavailableError: 503,
    RgrlError: 500,
}

_HEADERS: Mapping[int, dict[str, str]] = {
    401: {"WWW-Authenticate": "Bearer"},
    429: {"Retry-After": "5"},
    503: {"Retry-After": "1"},
}


# What helps with the failures that the framework finds before any route runs.
_REMEDIES: Mapping[int, str] = {
    400: "send a body of valid JSON (RFC 8259), nested less deeply, with numbers of fewer digits",
    404: "see /openapi.json for the routes there are",
    405: "see the Allow header, or /openapi.json",
    408: "send the body without pauses; over a slow line, in several requests",
}


# More helps nobody, and a body can have as many as bytes.
TOLD_FAULTS, TOLD_CHARACTERS = 20, 1000
_UNSAID = "the body looks like JSON, but its Content-Type says something else"


class _ProblemResponse(JSONResponse):
    media_type = "application/problem+json"


def problem_response(
    status: int,
    code: str,
    detail: str,
    *,
    remedy: str | None = None,
    errors: Iterable[FieldProblem] = (),
    request_id: str | None = None,
    retryable: bool = False,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """The answer for one failure."""
    body = Problem(
        title=HTTPStatus(status).phrase,
        status=status,
        code=code,
        detail=detail,
        remedy=remedy,
        errors=list(errors),
        request_id=request_id,
        retryable=retryable,
    )
    return _ProblemResponse(body.model_dump(), status, {**_HEADERS.get(status, {}), **(headers or {})})


def install_error_handlers(app: FastAPI) -> None:
    """Give every kind of failure its answer; the request middleware logs what nothing expected."""
    app.add_exception_handler(Exception, _answer_unexpected)
    app.add_exception_handler(RgrlError, _answer_rgrl)
    app.add_exception_handler(RequestValidationError, _answer_validation)
    app.add_exception_handler(HTTPException, _answer_http)
    app.add_exception_handler(OperationalError, _answer_database)
    app.add_exception_handler(OSError, _answer_disk)
    app.add_exception_handler(DataError, _answer_unstorable)


async def failure_response(request: Request, error: RgrlError | OperationalError) -> Response:
    """The answer for a failure outside of the routes."""
    return await (_answer_rgrl if isinstance(error, RgrlError) else _answer_database)(request, error)


async def _answer_unexpected(request: Request, _: Exception) -> Response:
    return server_failed(_request_id(request))


def server_failed(request_id: str | None) -> Response:
    """The answer where nothing better is known."""
    return problem_response(500, "internal", "the server failed; its log says why", request_id=request_id)


def status_of(error: RgrlError) -> int:
    """The HTTP status of a domain error."""
    return next(_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS)


def _request_id(request: Request) -> str | None:
    return getattr(request.state, "request_id", None)


async def _answer_rgrl(request: Request, error: Exception) -> Response:
    assert isinstance(error, RgrlError)
    if status_of(error) >= 500:
        log.error("a request failed", exc_info=error)
    expected = "" if error.expected is None else f"; expected: {error.expected}"
    fields = (
        [] if error.pointer is None else [FieldProblem(pointer=error.pointer, code=error.code, detail=error.problem)]
    )
    return problem_response(
        status_of(error),
        error.code,
        error.problem + expected,
        remedy=error.remedy,
        errors=fields,
        request_id=_request_id(request),
        retryable=error.retryable,
    )


async def _answer_validation(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    if isinstance(error.body, bytes) and error.body.lstrip()[:1] in (b"{", b"["):
        # The framework has read it as JSON where it was said to be.
        return problem_response(
            422,
            "validation_failed",
            _UNSAID,
            remedy="send the header Content-Type: application/json (curl: -H 'Content-Type: application/json')",
            errors=[FieldProblem(pointer="", code="content_type", detail=_UNSAID)],
            request_id=_request_id(request),
        )
    body = getattr(request.scope.get("route"), "body_field", None)
    by_place: dict[str, FieldProblem] = {}
    faults = error.errors()
    for fault in faults:
        pointer, detail = _pointer(fault, error.body)[:TOLD_CHARACTERS], _detail(fault)[:TOLD_CHARACTERS]
        if len(by_place) == TOLD_FAULTS and pointer not in by_place:
            break
        if fault["type"] == "extra_forbidden" and body is not None:
            detail = _unknown(body.field_info.annotation, fault["loc"][1:])
        if pointer in by_place:
            # A value of several forms, which is none of them.
            by_place[pointer].detail += f", or {detail.removeprefix(MUST)}"
        else:
            by_place[pointer] = FieldProblem(pointer=pointer, code=fault["type"], detail=detail)
    else:
        # All are told.
        faults = list(by_place.values())
    fields = list(by_place.values())
    count = f"{len(faults)} fault" + ("" if len(faults) == 1 else "s")
    first = f"; the first {len(fields)} are told" if len(fields) < len(faults) else ""
    return problem_response(
        422, "validation_failed", f"the request has {count}{first}", errors=fields, request_id=_request_id(request)
    )


def _detail(fault: Mapping[str, Any]) -> str:
    meant = meant_value(fault)
    return fault_words(fault) + ("" if meant is None else f"; {meant}")


def _unknown(document: Any, place: Sequence[int | str]) -> str:
    """A field that requests of type ``document`` have not, and which there are."""
    told = meant_field(document, place) or f"there are: {', '.join(fields_beside(document, place))}"
    return f"there is no such field; {told}"


async def _answer_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = ", ".join(sorted(_methods(request)))
    phrase = HTTPStatus(error.status_code).phrase.lower().replace(" ", "_")
    code = {413: BODY_TOO_LARGE, 429: BusyError.code}.get(error.status_code, phrase)
    return problem_response(
        error.status_code,
        code,
        error.detail,
        remedy=_REMEDIES.get(error.status_code),
        request_id=_request_id(request),
        retryable=error.status_code == 429,
        headers=headers,
    )


def _methods(request: Request) -> set[str]:
    """What the request's path may be asked with: the router by itself tells of the first route with that path alone."""

    def known(method: str) -> bool:
        scope = {"type": "http", "method": method, "path": request.scope["path"], "headers": []}
        return any(route.matches(scope)[0] is Match.FULL for route in request.app.routes)

    return {method for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE") if known(method)}


async def _answer_database(request: Request, error: Exception) -> Response:
    assert isinstance(error, OperationalError)
    # SQLAlchemy's own words hold the statement with its values.
    log.error("the job store does not answer", cause=str(error.orig))
    cause = cause_of(error)
    return problem_response(
        503, "unavailable", cause.problem, remedy=cause.remedy, request_id=_request_id(request), retryable=True
    )


def _answer_disk(request: Request, error: Exception) -> Response:
    """A full disk is not the request's fault, and passes; what else the system refuses is unforeseen."""
    cause = cause_of(error)
    if not cause.full:
        raise error
    log.error("a request met a full disk", exc_info=error)
    return problem_response(
        503, UnavailableError.code, cause.problem, remedy=cause.remedy, request_id=_request_id(request), retryable=True
    )


def _answer_unstorable(request: Request, _error: Exception) -> Response:
    """PostgreSQL takes no null character in a text; in a path or a query there is nothing by such a name."""
    return problem_response(
        422, "validation_failed", "the request holds a text that cannot be stored", request_id=_request_id(request)
    )


def _pointer(fault: Mapping[str, Any], body: Any) -> str:
    """The fault's place as a JSON pointer into the body; a parameter's place as its name.

    pydantic's ``loc`` also holds the tags of unions, which the document does not: a step is kept only where the
    document has it, and a missing field's name always.
    """
    place, *steps = fault["loc"]
    if place != "body":
        return "/".join(str(step) for step in (place, *steps))
    if isinstance(body, bytes):
        # A body that is no JSON: the steps are those of what was read out of it.
        return "".join(f"/{step}" for step in steps)
    parts: list[str] = []
    current, tag_seen = body, False
    for position, step in enumerate(steps):
        missing = fault["type"] == "missing" and position == len(steps) - 1
        if isinstance(current, dict) and not tag_seen and current.get("kind") == step and not missing:
            tag_seen = True
            continue
        inside = (isinstance(current, dict) and step in current) or (
            isinstance(current, list) and isinstance(step, int)
        )
        if inside and not missing:
            current, tag_seen = current[step], False
        if inside or missing:
            parts.append(str(step).replace("~", "~0").replace("/", "~1"))
    return "".join(f"/{part}" for part in parts)
