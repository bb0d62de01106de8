"""The faults of faults.py: each breaks one thing, and answers with what it was."""

from __future__ import annotations

import json
import os
import random
import socket
import sqlite3
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import httpx2
from faults_books import Books, Fault, Truth
from faults_world import Server, damaged, damaged_in_place

KINDS = {
    "client gone": 42,
    "artefact corrupted": 24,
    "damaged in place": 8,
    "process killed": 10,
    "server killed": 7,
    "database locked": 5,
    "disk full": 4,
}
ASKERS = 3


class Faults:
    """Breaks one thing at a time, and mends it. ``submit`` sends a job and says its id."""

    def __init__(
        self,
        server: Server,
        truths: list[Truth],
        sets: Path,
        mounted: bool,
        books: Books,
        rng: random.Random,
        submit: Callable[..., str | None],
    ) -> None:
        self.server, self.truths, self.sets, self.mounted = server, truths, sets, mounted
        self.books, self.rng, self._submit = books, rng, submit

    def one(self) -> str:
        """Break something, by chance; what it was."""
        (kind,) = self.rng.choices(list(KINDS), list(KINDS.values()))
        with self.books.fault(kind) as fault:
            return f"{kind}: {getattr(self, '_' + kind.replace(' ', '_'))(fault)}"

    def _client_gone(self, _fault: Fault) -> str:
        what = self.rng.choice(["half a header", "half a body", "answer cut", "events cut", "export cut", "garbage"])
        truth = self.rng.choice(self.truths)
        body = json.dumps({"queries": [{"id": name} for name in truth.ids[:100]], "k": 50}).encode()
        head = f"POST /v1/embeddings/{truth.ref}/neighbors HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        whole = head.encode() + f"Content-Length: {len(body)}\r\n\r\n".encode() + body
        job = self.rng.choice(list(self.books.jobs.values()) or ["job_0"])
        follow = f"GET /v1/jobs/{job}/events HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n"
        sent = {
            "half a header": whole[: self.rng.randrange(1, len(head))],
            "half a body": whole[: -self.rng.randrange(1, len(body))],
            "answer cut": whole,
            "events cut": follow.encode(),
            "export cut": f"GET /v1/embeddings/{truth.ref}/vectors HTTP/1.1\r\nHost: x\r\n\r\n".encode(),
            "garbage": self.rng.randbytes(200),
        }[what]
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.server.port), 5) as connection:
            connection.settimeout(2)
            connection.sendall(sent)
            if what.endswith("cut") and self.rng.random() < 0.7:
                connection.recv(self.rng.choice([1, 500]))
            if self.rng.random() < 0.5:  # by a reset instead of an end
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return what

    def _artefact_corrupted(self, fault: Fault) -> str:
        truth, file = self._artefact(fault)
        content, how = self._damage(file.read_bytes())
        client, rng = self.server.client(), random.Random(self.rng.random())
        with damaged(file, content, self.sets / truth.ref / "set" / "manifest.json"):
            for _ in range(4):
                self._asked_of(truth, client, rng)
        return f"{file.name} {how}"

    def _damaged_in_place(self, fault: Fault) -> str:
        """For a second, again and again, under those who ask without a pause."""
        truth, file = self._artefact(fault)
        client, over, content = self.server.client(), threading.Event(), None
        while content is None:
            content, how = self._damage(file.read_bytes())

        def ask(rng: random.Random) -> None:
            while not over.is_set():
                self._asked_of(truth, client, rng)

        askers = [
            threading.Thread(target=ask, args=(random.Random(self.rng.random()),), daemon=True) for _ in range(ASKERS)
        ]
        for asker in askers:
            asker.start()
        end = time.monotonic() + 1
        while time.monotonic() < end:
            with damaged_in_place(file, content):
                time.sleep(self.rng.uniform(0, 0.02))
            time.sleep(self.rng.uniform(0, 0.1))
        over.set()
        for asker in askers:
            asker.join()
        return f"{file.name} {how}"

    def _artefact(self, fault: Fault) -> tuple[Truth, Path]:
        truth = self.rng.choice(self.truths[:-1])
        fault.about.add(truth.ref)
        file = self.rng.choice(
            [
                "set/vectors.npy",
                "set/ids.arrow" if truth.exact else "set/ids.npy",
                "set/manifest.json",
                "set/index/manifest.json",
                "graph/topology/indptr.npy",
                "graph/topology/indices.npy",
                "graph/manifest.json",
                *([] if truth.exact else ["set/index/index.faiss"] * 3),
            ]
        )
        return truth, self.sets / truth.ref / file

    def _asked_of(self, truth: Truth, client: httpx2.Client, rng: random.Random) -> None:
        with suppress(httpx2.TransportError):
            truth.ask(client, self.books, rng)

    def _damage(self, whole: bytes) -> tuple[bytes | None, str]:
        match self.rng.choice(["flipped", "flipped", "truncated", "gone"]):
            case "flipped":
                changed = bytearray(whole)
                for _ in range(self.rng.choice([1, 1, 8])):
                    changed[self.rng.randrange(len(whole))] ^= 1 << self.rng.randrange(8)
                return bytes(changed), "flipped"
            case "truncated":
                return whole[: self.rng.randrange(len(whole))], "truncated"
            case _:
                return None, "gone"

    def _process_killed(self, fault: Fault) -> str:
        workers = self.server.workers()
        if not workers:
            self._submit(self.server.client(), self.rng)
            time.sleep(0.3)
            workers = self.server.workers()
        if not workers:
            return "none there"
        chosen = self.rng.choice(workers)
        together = self.rng.random() < 0.3
        kind = "a job's all" if together else "runner" if "service.jobs.runner" in _command(chosen) else "stage"
        fault.about.add(chosen.job)
        for one in workers if together else [chosen]:
            if one.job == chosen.job:
                with suppress(ProcessLookupError):
                    os.kill(one.process.pid, 9)
        return kind

    def _server_killed(self, _fault: Fault) -> str:
        when = self.rng.choice(["as it is", "queued", "first stage", "second stage", "between", "ending", "submitting"])
        client = self.server.client()
        if when == "submitting":
            sender = threading.Thread(
                target=self._submit, args=(self.server.client(), random.Random(self.rng.random()))
            )
            sender.start()
            time.sleep(self.rng.uniform(0, 0.03))
            self._restart()
            sender.join()
            return when
        if when != "as it is":
            job = self._submit(client, self.rng, 2, 0.3)
            marks = {"first stage": "s0 begin", "second stage": "s1 begin", "between": "s0 end", "ending": "s1 end"}
            if job is not None and when in marks:
                self._until(job, *marks[when].split())
                time.sleep(self.rng.choice([0, 0, self.rng.uniform(0, 0.2)]))
        self._restart()
        return when

    def _until(self, job: str, stage: str, mark: str) -> None:
        end = time.monotonic() + 10
        while time.monotonic() < end:
            for line in (self.server.books / "ledger").read_text().splitlines()[-30:]:
                if line.startswith(f"{job} {stage} ") and line.endswith(mark):
                    return
            time.sleep(0.02)

    def _restart(self) -> None:
        self.server.kill()
        if self.rng.random() < 0.2:  # killed again while it starts
            self.server.launch()
            time.sleep(self.rng.uniform(0, 1.5))
            self.server.kill()
        self.server.start()

    def _database_locked(self, _fault: Fault) -> str:
        seconds = self.rng.choices([0.3, 1.0, 3.0, 11.5], [8, 6, 3, 1])[0]
        database = sqlite3.connect(self.server.settings.home / "rgrl.sqlite", timeout=20, isolation_level=None)
        with suppress(sqlite3.OperationalError):
            database.execute("BEGIN IMMEDIATE")
        time.sleep(seconds)
        database.close()
        return f"{seconds} s"

    def _disk_full(self, _fault: Fault) -> str:
        seconds = self.rng.choice([0.2, 0.5, 1.5])
        client, rng = self.server.client(), random.Random(self.rng.random())
        with self.server.full_disk(self.mounted):
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                self._asked_of(self.rng.choice(self.truths), client, rng)
                with suppress(httpx2.TransportError):
                    self.books.saw(client.put("/v1/aliases/other", json={"embedding": self.truths[0].ref}))
        return f"{seconds} s"


def _command(worker) -> str:
    with suppress(Exception):
        return " ".join(worker.process.cmdline())
    return ""
