"""What faults.py knows for itself: the right answers by numpy, the jobs it sent, and what it saw go wrong."""

from __future__ import annotations

import base64
import json
import math
import random
import re
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import httpx2
import numpy as np

ENDED = {"succeeded", "failed", "cancelled"}
TOLERANCE = 1e-4
RECALL = 0.8
REACH = 2
"""Steps on the ring of ids that an edge spans."""
DAMAGE = {"artefact corrupted", "damaged in place"}
STARTS_S = 0.5
"""How long before its first line a stage may have been started."""
TOLD_S = 1.0
"""How long after its end a stage's result may still be lost."""


@dataclass
class Fault:
    """When it was, and the sets or jobs that it was about."""

    kind: str
    began: float
    ended: float = math.inf
    about: set[str] = field(default_factory=set)


@dataclass
class Books:
    """Counts, violations, and the server errors that the log has to explain; used from several threads."""

    faults: Counter = field(default_factory=Counter)
    answers: Counter = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    unexplained: dict[str, str] = field(default_factory=dict)
    jobs: dict[str, str] = field(default_factory=dict)  # idempotency key -> job
    cancelled: set[str] = field(default_factory=set)
    history: list[Fault] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def wrong(self, what: str) -> None:
        """A violation."""
        with self._lock:
            self.violations.append(what)
            print(f"VIOLATION {what}", flush=True)

    @contextmanager
    def fault(self, kind: str) -> Iterator[Fault]:
        """A fault, which lasts while inside."""
        fault = Fault(kind, time.time())
        self.history.append(fault)
        try:
            yield fault
        finally:
            fault.ended = time.time()

    def met(self, kinds: set[str], since: float, until: float, about: str | None = None) -> int:
        """How many faults of these kinds there were in that time; where it matters, such as were about ``about``."""
        return sum(
            fault.began <= until and fault.ended >= since and (about is None or about in fault.about)
            for fault in list(self.history)
            if fault.kind in kinds
        )

    def saw(self, answer: httpx2.Response, graph: str | None = None) -> None:
        """Count an answer by its status; a refusal has a reason, and one of the server's failures is in its log.
        ``graph`` is what a job was sent for.
        """
        if 400 <= answer.status_code < 500 and not self._founded(answer, graph):
            self.wrong(f"unfounded: {answer.request.method} {answer.request.url.path}: {answer.text[:300]}")
        with self._lock:
            self.answers[str(answer.status_code)] += 1
            if answer.status_code >= 500:
                about = f"{answer.request.method} {answer.request.url.path} {answer.status_code}"
                self.unexplained[answer.headers.get("x-request-id", "")] = about

    def accepted(self, key: str, job: str) -> None:
        """A submit was confirmed; the same key always names the same job."""
        if self.jobs.setdefault(key, job) != job:
            self.wrong(f"the key {key} named {self.jobs[key]} and then {job}")

    def explain(self, log: Path) -> None:
        """Look up every 5xx in the log: a warning or error of that request."""
        caused, tracebacks = set(), Counter()
        for line in log.read_text(errors="replace").splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if entry.get("level") in {"warning", "error", "critical"}:
                caused.add(entry.get("request_id"))
                found = re.findall(r"^(\w[\w.]*(?:Error|Exception)\b.*)$", entry.get("exception") or "", re.MULTILINE)
                if found and entry.get("event") == "a request failed":
                    tracebacks[found[-1][:120]] += 1
        for identity, about in self.unexplained.items():
            if identity not in caused:
                self.wrong(f"no cause in the log of {about}, request {identity}")
        for what, count in tracebacks.most_common(10):
            print(f"unforeseen failure of a request, {count} times: {what}", flush=True)

    def check_ledger(self, ledger: Path, statuses: dict[str, str], stages: dict[str, int]) -> None:
        """No two stages of a job at once or in another order, none again without a fault while it ran, and none left
        out of a job that succeeded.
        """
        ended: dict[str, dict[str, float]] = defaultdict(dict)
        begun: dict[tuple[str, str], float] = {}
        for line in ledger.read_text().splitlines():
            job, stage, pid, at, mark = line.split()
            moment = float(at)
            if mark == "overlap":
                self.wrong(f"stage {stage} of {job} ran beside another, as process {pid}")
            if mark == "begin":
                before, begun[job, stage] = begun.get((job, stage)), moment
                until = ended[job].get(stage, moment - TOLD_S) + TOLD_S
                # Its runner may have been killed before the stage wrote its first line.
                if before is not None and not self._killed(job, before - STARTS_S, until):
                    self.wrong(f"stage {stage} of {job} ran again after {moment - before:.2f} s without a fault")
                number = int(stage[1:])
                if number and f"s{number - 1}" not in ended[job]:
                    self.wrong(f"stage {stage} of {job} began before the one ahead of it had ended")
            if mark == "end":
                ended[job][stage] = moment
        for key, job in self.jobs.items():
            if statuses.get(job) == "succeeded" and key in stages:
                wanted = {f"s{number}" for number in range(stages[key])}
                if ended[job].keys() != wanted:
                    self.wrong(f"{job} succeeded with the stages {sorted(ended[job])} of {stages[key]}")
        for job, status in statuses.items():
            if status == "cancelled" and job not in self.cancelled:
                self.wrong(f"{job} was cancelled, and nobody asked for it")

    def check_failed(self, job: dict, graph: str | None, attempts: int) -> None:
        """A job fails of a full disk, of damage to its ``graph``, or of kills in each of its ``attempts``."""
        began, ended = (datetime.fromisoformat(job[name]).timestamp() for name in ("created_at", "ended_at"))
        killed = self.met({"process killed"}, began, ended, job["id"]) + self.met({"server killed"}, began, ended)
        full = self.met({"disk full"}, began, ended)
        damaged = graph is not None and self.met(DAMAGE, began, ended, graph)
        if killed < attempts and not full and not damaged:
            self.wrong(f"{job['kind']} {job['id']} failed without a fault: {json.dumps(job['error'])[:300]}")

    def _killed(self, job: str, since: float, until: float) -> bool:
        """Whether something ended a stage of the job before its result was told."""
        alone = self.met({"process killed"}, since, until, job)
        return bool(alone or self.met({"server killed", "disk full"}, since, until))

    def _founded(self, answer: httpx2.Response, graph: str | None) -> bool:
        """Whether there is a reason for a refusal: what is asked of, or the graph of a job, was damaged just then, the
        disk was full, or the job to cancel has ended.
        """
        now, path = time.time(), answer.request.url.path.split("/")
        began = now - answer.elapsed.total_seconds()
        match path[2:], answer.status_code:
            case ["embeddings", ref, *_], 409:
                return self.met(DAMAGE, began, now, ref) > 0
            case ["jobs"], 409:
                return self.met(DAMAGE, began, now, graph) > 0
            case ["jobs"], 422:
                return self.met({"disk full"}, began, now) > 0
            case ["jobs", _, "cancel"], 409:
                return True
        return False


@dataclass(frozen=True)
class Truth:
    """One embedding set as the script made it."""

    ref: str
    ids: list[str]
    vectors: np.ndarray
    exact: bool

    def ask(self, client: httpx2.Client, books: Books, rng: random.Random) -> None:
        """One request, its answer compared; an error answer is no wrong one."""
        rows = rng.sample(range(len(self.ids)), 5)
        match rng.randrange(3):
            case 0:
                answer = client.get(f"/v1/embeddings/{self.ref}/vectors/{self.ids[rows[0]]}")
                books.saw(answer)
                if answer.status_code == 200:
                    self._same(books, [rows[0]], np.array([answer.json()["vector"]]))
            case 1:
                wanted = [self.ids[row] for row in rows]
                answer = client.post(f"/v1/embeddings/{self.ref}/lookup", json={"ids": wanted, "encoding": "base64"})
                books.saw(answer)
                if answer.status_code == 200:
                    items = answer.json()["items"]
                    if [item["id"] for item in items] != wanted or not all(item["found"] for item in items):
                        books.wrong(f"lookup in {self.ref} lost ids: {answer.text[:300]}")
                        return
                    found = [np.frombuffer(base64.b64decode(item["vector"]), "<f4") for item in items]
                    self._same(books, rows, np.array(found))
            case _:
                self._neighbors(client, books, rows)

    def _neighbors(self, client: httpx2.Client, books: Books, rows: list[int]) -> None:
        body = {"queries": [{"id": self.ids[row]} for row in rows], "k": 5}
        answer = client.post(f"/v1/embeddings/{self.ref}/neighbors", json=body)
        books.saw(answer)
        if answer.status_code != 200:
            return
        unit = self.vectors / np.linalg.norm(self.vectors, axis=1, keepdims=True)
        where = {name: row for row, name in enumerate(self.ids)}
        hits = 0
        for row, one in zip(rows, answer.json()["answers"], strict=True):
            scores = unit @ unit[row]
            best = np.sort(np.delete(scores, row))[::-1][:5]
            got = [(where.get(near["id"], -1), near["score"]) for near in one["results"]]
            if any(near < 0 or near == row or abs(scores[near] - score) > TOLERANCE for near, score in got):
                books.wrong(f"neighbours in {self.ref} with wrong scores: {one}")
                return
            apart = [abs(near - row) for near, _ in got]
            edges = [min(steps, len(self.ids) - steps) <= REACH for steps in apart]
            if any(near["connected"] not in {None, edge} for near, edge in zip(one["results"], edges, strict=True)):
                books.wrong(f"wrong edges in {self.ref}: {one}")
            if len(got) != 5 and one["complete"]:
                books.wrong(f"{len(got)} neighbours in {self.ref} said to be complete")
            hits += sum(score >= best[-1] - TOLERANCE for _, score in got)
        if hits < 5 * len(rows) * (1.0 if self.exact else RECALL):
            books.wrong(f"{hits} of {5 * len(rows)} neighbours in {self.ref} are right")

    def _same(self, books: Books, rows: list[int], found: np.ndarray) -> None:
        if found.shape != (len(rows), self.vectors.shape[1]) or np.abs(found - self.vectors[rows]).max() > 1e-6:
            books.wrong(f"wrong vectors in {self.ref} of {[self.ids[row] for row in rows]}")


def retried(send, seconds: float = 60.0):
    """The answer of ``send``, sent again while the server is away, full or without its store."""
    end = time.monotonic() + seconds
    while True:
        try:
            answer = send()
            if answer.status_code not in {429, 500, 503}:
                return answer
        except httpx2.TransportError:
            answer = None
        if time.monotonic() > end:
            raise SystemExit(f"no answer for {seconds} s: {answer and answer.text}")
        time.sleep(0.2)
