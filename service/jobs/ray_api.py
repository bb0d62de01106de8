"""Ray's Jobs and State REST API, as far as the service needs it: plain HTTP to the cluster's dashboard, without ray.

Written against Ray 2.60. A repeated ``submission_id`` is answered with 400 by the job's agent and with 500 by the
dashboard, which passes that on; the text says that it "already exists".
"""

from __future__ import annotations

import threading
import time
from typing import Any
from urllib.parse import urlsplit

import httpx2
import structlog

from preprocessing.errors import UsageError
from service.errors import UnavailableError

__all__ = ["RayApi"]

CONNECT_TIMEOUT_S = 3.0
TIMEOUT_S = 10.0
DOWN_S = 2.0
"""For so long a cluster that did not answer is not asked again."""
_EXISTS = "already exists"

log = structlog.get_logger(__name__)


class RayApi:
    """The API at ``address``; every method raises ``UnavailableError`` when it does not answer, or not sensibly."""

    def __init__(self, address: str, token: str | None = None) -> None:
        self.address = address
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._http = httpx2.Client(
            base_url=address,
            headers=headers,
            timeout=httpx2.Timeout(TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            trust_env=urlsplit(address).hostname not in {"127.0.0.1", "::1", "localhost"},
        )
        self._lock = threading.Lock()
        self._down_until = float("-inf")
        self._why = "it has not been asked yet"
        self.answers = False
        """Whether it answered when it was asked last."""

    def submit(self, submission: dict[str, Any]) -> None:
        """Submit a job; one by that ``submission_id`` that is there already is the same one. ``UsageError`` when Ray
        refuses it.
        """
        response = self._ask("POST", "/api/jobs/", submission)
        if response.status_code == 400 and _EXISTS not in response.text:
            raise UsageError("the Ray cluster refused the job", given=_last_line(response.text))
        if _EXISTS not in response.text:
            self._document(response, dict)

    def job(self, submission_id: str) -> dict[str, Any] | None:
        """What Ray knows of a job; None when nothing."""
        response = self._ask("GET", f"/api/jobs/{submission_id}")
        if response.status_code == 404:
            return None
        found: dict[str, Any] = self._document(response, dict)
        return found

    def jobs(self) -> list[dict[str, Any]]:
        """All jobs that Ray knows of."""
        found: list[dict[str, Any]] = self._document(self._ask("GET", "/api/jobs/"), list)
        return found

    def stop(self, submission_id: str) -> bool:
        """Have Ray end a job; whether it still ran. One that it does not know is over."""
        response = self._ask("POST", f"/api/jobs/{submission_id}/stop")
        return response.status_code != 404 and bool(self._document(response, dict).get("stopped"))

    def machines(self) -> list[dict[str, float]]:
        """Total resources of every machine that lives, by Ray's names."""
        document = self._document(self._ask("GET", "/api/v0/nodes?detail=1&limit=10000"), dict)
        try:
            nodes = document["data"]["result"]["result"]
            return [node["resources_total"] or {} for node in nodes if node["state"] == "ALIVE"]
        except (KeyError, TypeError) as error:
            raise self._failed(f"its list of machines has another form, without {error}") from error

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _ask(self, method: str, path: str, document: object = None) -> httpx2.Response:
        with self._lock:
            if time.monotonic() < self._down_until:
                raise self._unavailable()
        try:
            response = self._http.request(method, path, json=document)
        except httpx2.HTTPError as error:
            raise self._failed(f"{type(error).__name__}: {error}") from error
        if response.status_code in {401, 403}:
            raise self._failed(f"status {response.status_code}: it wants a token, or another one (ray_auth_token)")
        if response.status_code >= 500 and not (method == "POST" and _EXISTS in response.text):
            raise self._failed(f"status {response.status_code}: {_last_line(response.text)}")
        if not self.answers:
            log.info("the Ray cluster answers", address=self.address)
        self.answers = True
        return response

    def _document(self, response: httpx2.Response, kind: type) -> Any:
        try:
            document = response.json()
        except ValueError as error:
            raise self._failed(f"status {response.status_code} without JSON") from error
        if not response.is_success or not isinstance(document, kind):
            raise self._failed(f"status {response.status_code} and no {kind.__name__}")
        return document

    def _failed(self, why: str) -> UnavailableError:
        with self._lock:
            if self.answers or why != self._why:
                log.warning("the Ray cluster does not answer", address=self.address, why=why)
            self.answers, self._why, self._down_until = False, why, time.monotonic() + DOWN_S
        return self._unavailable()

    def _unavailable(self) -> UnavailableError:
        return UnavailableError(
            "the Ray cluster does not answer",
            where=self.address,
            given=self._why,
            remedy="start the cluster, or correct ray_address; jobs wait for it",
        )


def _last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip(" .")]
    return lines[-1][:500] if lines else ""
