"""HTTP as the client wants it: retries that never do a thing twice, and problem+json as typed errors."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx2

from preprocessing.errors import RgrlError, UsageError

__all__ = [
    "ApiError",
    "AuthError",
    "ConflictError",
    "InvalidRequestError",
    "NotFoundError",
    "RejectedError",
    "ServerBusyError",
    "ServerFaultError",
    "Transport",
    "UnreachableError",
]

ATTEMPTS = 5
FIRST_WAIT_S = 0.25
LONGEST_WAIT_S = 10.0
CONNECT_TIMEOUT_S = 5.0
TIMEOUT_S = 120.0


class ApiError(RgrlError):
    """The server's answer to a request it did not fulfil: ``code``, ``status``, ``request_id``, ``errors``."""

    def __init__(self, status: int, problem: dict[str, Any], sent: Any = None, path: str = "") -> None:
        """``sent`` is the request's body, of ``path``. The answer names no value: given is the one that its pointer
        names there, or else what the request names of which it says that there is no such thing.
        """
        errors = problem.get("errors") or []
        message = str(problem.get("detail") or problem.get("title") or f"HTTP status {status}")
        pointer = errors[0]["pointer"] if errors else None
        given, where = _at(sent, pointer) if pointer else _absent(path, sent, message), None
        if len(errors) == 1:
            told = errors[0]["detail"] in message
            message = message if told else errors[0]["detail"]
            # A value that stands there itself says enough.
            where = None if told and given is not None else _name(errors[0]["pointer"]) or None
        super().__init__(message, given=given, remedy=problem.get("remedy"), where=where, pointer=pointer)
        self.code = str(problem.get("code", "internal"))
        # Where an answer says nothing of it (a proxy's), its status does.
        self.retryable = bool(problem.get("retryable", self.retryable))
        self.status = status
        self.request_id: str | None = problem.get("request_id")
        self.errors: list[dict[str, str]] = errors

    def text(self) -> str:
        """The whole message; where there are several faults, with each of them and its place."""
        faults = [f"  {_name(fault['pointer'])}: {fault['detail']}" for fault in getattr(self, "errors", [])]
        return "\n".join([super().text(), *(faults if len(faults) > 1 else [])])


class InvalidRequestError(ApiError):
    """The request itself cannot be meant: a field, a limit, a setting."""

    exit_code = 2


class RejectedError(ApiError):
    """The request is well formed, and what it brings or names cannot be used."""

    exit_code = 3


class NotFoundError(ApiError):
    """There is nothing by that id or name."""

    exit_code = 3


class AuthError(ApiError):
    """No live key, or one whose scopes do not suffice."""


class ConflictError(ApiError):
    """The request does not fit the present state, or is based on an older version."""


class ServerBusyError(ApiError):
    """The server stayed full or not ready through every retry."""

    retryable = True


class ServerFaultError(ApiError):
    """The server failed."""


class UnreachableError(RgrlError):
    """No answer came through every retry."""

    code = "unreachable"
    retryable = True


_NOUNS = {"jobs": "job", "graphs": "graph", "embeddings": "embedding set", "aliases": "alias"}
"""What the things of a collection are called in answers."""
_INVALID_CODES = {"usage_invalid", "validation_failed", "limit_exceeded"}


def _at(document: Any, pointer: str | None) -> Any:
    """What a JSON pointer names in a request's body; None where that is nothing, or a part and no value."""
    if not pointer or not pointer.startswith("/"):
        return None
    for step in pointer[1:].split("/"):
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(document, list) and step.isdigit() and int(step) < len(document):
            document = document[int(step)]
        elif isinstance(document, dict) and step in document:
            document = document[step]
        else:
            return None
    return None if isinstance(document, dict | list) else document


def _absent(path: str, sent: Any, message: str) -> str | None:
    """The id or name of which the answer says that there is no such thing, where a request names but one of them."""
    for collection, noun in _NOUNS.items():
        if f"there is no such {noun}" in message:
            _, found, rest = path.partition(f"/v1/{collection}/")
            field = noun.partition(" ")[0]
            alone = isinstance(sent, dict) and not sent.get("previous")
            return rest.partition("/")[0] if found else sent.get(field) if alone else None
    return None


def _name(pointer: str) -> str:
    """A place in a request as settings are named: ``train.optimizer.lr``."""
    return pointer.removeprefix("query/").removeprefix("path/").strip("/").replace("/", ".")


def _error(response: httpx2.Response, sent: Any = None) -> ApiError:
    """The server's answer to a request of the body ``sent`` as an error."""
    try:
        problem = response.json()
    except ValueError:
        problem = {"detail": f"the server answered {response.status_code} {response.reason_phrase}"}
    status = response.status_code
    if status in {401, 403}:
        kind: type[ApiError] = AuthError
    elif status == 404:
        kind = NotFoundError
    elif status in {409, 412}:
        kind = RejectedError if problem.get("code") == "artifact_invalid" else ConflictError
    elif status in {429, 503}:
        kind = ServerBusyError
    elif status >= 500:
        kind = ServerFaultError
    else:
        kind = InvalidRequestError if problem.get("code") in _INVALID_CODES else RejectedError
    return kind(status, problem, sent, unquote(response.request.url.path))


class Transport:
    """One server, over kept-alive connections; safe to use from several threads."""

    def __init__(self, url: str, key: str | None) -> None:
        """``UsageError`` for a ``url`` that is none."""
        self.url = url.rstrip("/")
        parts = urlsplit(self.url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise UsageError("this is no server address", given=url, expected="as http://127.0.0.1:8000")
        self._http = httpx2.Client(
            base_url=self.url,
            # A proxy for the internet does not reach this machine's own loopback.
            trust_env=parts.hostname not in {"127.0.0.1", "::1", "localhost"},
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx2.Timeout(TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def request(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        params: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
        repeatable: bool = True,
    ) -> httpx2.Response:
        """The answer to a request; an ``ApiError`` or ``UnreachableError`` instead of a failure.

        Connection errors, 429 and 503 are tried again. A request that is not ``repeatable`` is not sent again once it
        may have reached the server.
        """
        wanted = {name: value for name, value in (params or {}).items() if value is not None}
        for attempt in range(ATTEMPTS):
            last = attempt == ATTEMPTS - 1
            try:
                response = self._http.request(method, path, json=json, params=wanted, headers=headers)
            except httpx2.TransportError as error:
                if last or not (repeatable or isinstance(error, httpx2.ConnectError)):
                    raise self._unreachable(error) from error
                _wait(attempt, None)
                continue
            if response.status_code in {429, 503} and not last:
                _wait(attempt, response.headers.get("Retry-After"))
                continue
            if response.is_error:
                raise _error(response, json)
            return response
        raise AssertionError("the last attempt returns or raises")

    @contextmanager
    def events(self, path: str, last_id: str | None) -> Iterator[Iterator[httpx2.ServerSentEvent]]:
        """An event stream from after ``last_id``; ``UnreachableError`` when it breaks off."""
        headers = {"Accept": "text/event-stream"} | ({} if last_id is None else {"Last-Event-ID": last_id})
        try:
            with self._http.stream("GET", path, headers=headers) as response:
                if response.is_error:
                    response.read()
                    raise _error(response)
                yield iter(httpx2.EventSource(response))
        except httpx2.TransportError as error:
            raise self._unreachable(error) from error

    @contextmanager
    def stream(self, path: str, params: dict[str, Any], accept: str) -> Iterator[httpx2.Response]:
        """An answer that is read as it comes; ``UnreachableError`` when it breaks off."""
        wanted = {name: value for name, value in params.items() if value is not None}
        try:
            with self._http.stream("GET", path, params=wanted, headers={"Accept": accept}) as response:
                if response.is_error:
                    response.read()
                    raise _error(response)
                yield response
        except httpx2.TransportError as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> UnreachableError:
        return UnreachableError(
            f"the server does not answer ({error})",
            given=self.url,
            expected="a running rgrl server",
            remedy="start one with `rgrl serve`, or name its address with --server or RGRL_SERVER",
        )


def _wait(attempt: int, retry_after: str | None) -> None:
    longest = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2**attempt)
    asked = float(retry_after) if retry_after and retry_after.isdigit() else 0.0
    # Jitter keeps clients that failed together from coming back together.
    time.sleep(min(LONGEST_WAIT_S, max(asked, longest * random.uniform(0.5, 1.0))))
