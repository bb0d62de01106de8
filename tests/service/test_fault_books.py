"""The books of benchmarks/faults.py notice what no fault explains, and accept what one does."""

from __future__ import annotations

import importlib
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def books(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("faults_books").Books()


def meet(books: Any, kind: str, about: str) -> None:
    with books.fault(kind) as fault:
        fault.about.add(about)


@pytest.mark.parametrize(
    ("kind", "about", "explained"),
    [
        ("process killed", "job_1", True),
        ("process killed", "job_2", False),
        ("server killed", "", True),
        ("disk full", "", True),
        ("database locked", "", False),
        ("client gone", "", False),
    ],
)
@pytest.mark.parametrize("between", [True, False])
def test_a_stage_that_ran_twice(
    books: Any, tmp_path: Path, kind: str, about: str, explained: bool, between: bool
) -> None:
    meet(books, kind, about)
    first = time.time() - (1 if between else -1)
    ledger = tmp_path / "ledger"
    lines = [("s0", first, "begin"), ("s0", first, "end"), ("s1", first, "begin"), ("s0", first + 2, "begin")]
    ledger.write_text("".join(f"job_1 {stage} 1 {moment} {mark}\n" for stage, moment, mark in lines))
    books.check_ledger(ledger, {}, {})
    assert len(books.violations) == (0 if explained and between else 1)


@pytest.mark.parametrize(
    ("ledger", "killed_at", "wrong"),
    [
        # Killed while it ran, or before its result was told; long after its end; and while the next one ran.
        ("s0 0 begin, s0 2 begin, s0 3 end", 1, ""),
        ("s0 0 begin, s0 1 end, s0 3 begin, s0 4 end", 1.5, ""),
        ("s0 0 begin, s0 1 end, s0 99 begin, s0 100 end", 98, "ran again"),
        ("s0 0 begin, s0 1 end, s1 4 begin, s0 6 begin, s0 7 end, s1 8 begin, s1 9 end", 5, "ran again"),
        ("s0 0 begin, s1 1 begin, s1 2 end, s0 3 end", 1, "began before"),
        ("s0 0 begin, s0 1 end, s1 2 begin, s1 3 end", 1, ""),
        ("s0 9 begin, s0 10 begin, s0 11 end", 8.7, ""),
        ("s0 9 begin, s0 10 begin, s0 11 end", 8.2, "ran again"),
    ],
)
def test_when_a_stage_may_run_again(books: Any, tmp_path: Path, ledger: str, killed_at: float, wrong: str) -> None:
    books.history.append(importlib.import_module("faults_books").Fault("server killed", killed_at, killed_at + 0.1))
    lines = (entry.split() for entry in ledger.split(", "))
    (tmp_path / "ledger").write_text("".join(f"job_1 {stage} 1 {at} {mark}\n" for stage, at, mark in lines))
    books.check_ledger(tmp_path / "ledger", {}, {})
    assert len(books.violations) == bool(wrong)
    assert wrong in "".join(books.violations)


def test_a_job_that_nobody_cancelled(books: Any, tmp_path: Path) -> None:
    (tmp_path / "ledger").write_text("")
    books.cancelled.add("job_1")
    books.check_ledger(tmp_path / "ledger", {"job_1": "cancelled", "job_2": "cancelled"}, {})
    (violation,) = books.violations
    assert violation.startswith("job_2 was cancelled")


@pytest.mark.parametrize(
    ("kinds", "about", "explained"),
    [
        (["disk full"], "", True),
        (["artefact corrupted"], "graph", True),
        (["damaged in place"], "other", False),
        (["process killed"] * 3, "job_1", True),
        (["process killed", "server killed", "process killed"], "job_1", True),
        (["process killed"] * 2, "job_1", False),
        (["process killed"] * 3, "job_2", False),
        ([], "", False),
    ],
)
def test_a_job_that_failed(books: Any, kinds: list[str], about: str, explained: bool) -> None:
    created = datetime.now(UTC).isoformat()
    for kind in kinds:
        meet(books, kind, about)
    job = {"id": "job_1", "kind": "index", "error": None, "created_at": created}
    books.check_failed(job | {"ended_at": datetime.now(UTC).isoformat()}, "graph", 3)
    assert len(books.violations) == (0 if explained else 1)


@pytest.mark.parametrize(
    ("method", "path", "status", "kind", "about", "explained"),
    [
        ("GET", "/v1/embeddings/a/vectors/1", 409, "damaged in place", "a", True),
        ("POST", "/v1/embeddings/a/neighbors", 409, "artefact corrupted", "b", False),
        ("GET", "/v1/embeddings/a/vectors/1", 404, "artefact corrupted", "a", False),
        ("POST", "/v1/embeddings/a/lookup", 429, "disk full", "", False),
        ("POST", "/v1/jobs", 409, "artefact corrupted", "graph", True),
        ("POST", "/v1/jobs", 409, "artefact corrupted", "b", False),
        ("POST", "/v1/jobs", 422, "disk full", "", True),
        ("POST", "/v1/jobs", 422, "database locked", "", False),
        ("POST", "/v1/jobs/job_1/cancel", 409, "client gone", "", True),
        ("GET", "/v1/jobs", 400, "disk full", "", False),
    ],
)
def test_a_refusal(books: Any, method: str, path: str, status: int, kind: str, about: str, explained: bool) -> None:
    transport = httpx2.MockTransport(lambda _request: httpx2.Response(status, stream=httpx2.ByteStream(b"{}")))
    with httpx2.Client(base_url="http://server", transport=transport) as client:
        with books.fault(kind) as fault:
            fault.about.add(about)
            books.saw(client.request(method, path), "graph")
        assert len(books.violations) == (0 if explained else 1)
        time.sleep(0.01)
        books.saw(client.request(method, path), "graph")
    assert len(books.violations) == (0 if path.endswith("cancel") else 1 if explained else 2), "the fault is over"
