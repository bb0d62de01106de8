"""A thousand random faults against a real server: no job lost, failed or run twice without a fault that explains it, no
wrong answer, no refusal without a reason, no failure without a cause in the log.
``python benchmarks/faults.py [--faults 1000] [--seed N] [--quick]``; exit code 1 on any violation.

Faults: clients gone in the middle of a request or an answer, the server killed at every phase of a job, runners and
stages killed, the database locked, the disk full, artefacts replaced by damaged ones or damaged in place. Beside them
jobs are sent, and answers compared with what numpy says of the vectors that this script made.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import httpx2
from faults_books import ENDED, Books, Truth, retried
from faults_kinds import Faults
from faults_world import Server, make_set, small_disk, write_tables

from service.settings import ServiceSettings
from service.store import Store

UNFINISHED = 6
RESOURCES = {"cores": 1, "gpus": 0, "memory_bytes": 1, "disk_bytes": 0}
TINY = {"encoder": {"layers": [8, 8]}, "run": {"epochs": 2}}


class Storm:
    """Sends jobs and questions in threads of their own while ``run`` breaks one thing after another."""

    def __init__(self, server: Server, truths: list[Truth], sets: Path, mounted: bool, seed: int) -> None:
        self.server, self.truths, self.seed = server, truths, seed
        self.books = Books()
        self.faults = Faults(server, truths, sets, mounted, self.books, random.Random(seed), self._submit)
        self.stages: dict[str, int] = {}
        self.graphs: dict[str, str] = {}  # a set's -> id
        self.graph_of: dict[str, str] = {}  # idempotency key -> whose graph the job works on
        self.over = threading.Event()
        self.moment = threading.Lock()
        self.sent = 0
        self.took: Counter = Counter()

    def run(self, faults: int) -> None:
        """Everything: the faults, then the peace after them, in which the books are closed."""
        client = self.server.client()
        listed = client.get("/v1/graphs").json()["items"]
        self.graphs = {graph["name"]: graph["id"] for graph in listed}
        threads = [threading.Thread(target=work, daemon=True) for work in (self._question, self._send_jobs)]
        for thread in threads:
            thread.start()
        for number in range(faults):
            began = time.monotonic()
            what = self.faults.one()
            self.books.faults[what] += 1
            self.took[what.split(":")[0]] += time.monotonic() - began
            if (number + 1) % 50 == 0:
                print(
                    f"{number + 1} faults, {len(self.books.jobs)} jobs",
                    {kind: round(s) for kind, s in self.took.items()},
                )
                sys.stdout.flush()
            self._still_there(what)
        self.over.set()
        for thread in threads:
            thread.join(timeout=120)
            if thread.is_alive():
                self.books.wrong(f"{thread.name} did not come to an end")
        self._close()

    def _still_there(self, after: str) -> None:
        process = self.server.process
        assert process is not None
        if process.poll() is not None:
            self.books.wrong(f"the server ended by itself ({process.returncode}) after {after}")
            self.server.kill()
            self.server.start()
        elif not self.server.answers():
            self.books.wrong(f"the server does not answer after {after}")

    # Beside the faults.

    def _question(self) -> None:
        rng, client = random.Random(self.seed + 1), self.server.client()
        while not self.over.is_set():
            self._asked(client, rng)
            time.sleep(0.05)

    def _asked(self, client: httpx2.Client, rng: random.Random) -> None:
        epoch = self.server.epoch
        try:
            rng.choice(self.truths).ask(client, self.books, rng)
        except httpx2.TransportError as error:
            time.sleep(0.2)
            if epoch % 2 == 0 and epoch == self.server.epoch and self.server.process.poll() is None:
                self.books.wrong(f"a question was not answered: {error!r}")
        except Exception as error:
            self.books.wrong(f"an answer could not be read: {error!r}")

    def _send_jobs(self) -> None:
        rng, client = random.Random(self.seed + 2), self.server.client()
        while not self.over.is_set():
            try:
                answer = client.get("/v1/jobs", params={"status": ["queued", "running"], "limit": 100})
                self.books.saw(answer)
                if answer.status_code == 200 and len(answer.json()["items"]) < UNFINISHED:
                    job = self._submit(client, rng)
                    if job is not None and rng.random() < 0.05:
                        self.books.cancelled.add(job)
                        self.books.saw(client.post(f"/v1/jobs/{job}/cancel"))
            except httpx2.TransportError:
                pass
            except Exception as error:
                self.books.wrong(f"a job could not be sent: {error!r}")
            time.sleep(0.2)

    def _submit(self, client: httpx2.Client, rng: random.Random, stages: int = 0, seconds: float = 0.0) -> str | None:
        """Send a job until it is confirmed, by one key; None when the storm is over before."""
        with self.moment:
            self.sent += 1
            key = f"key-{self.sent}"
        body = {
            "kind": "index",
            "embedding": self.truths[-1].ref,
            "index": {"kind": "hnsw"},
            "resources": RESOURCES,
            "labels": {"key": key},
        }
        if self.sent % 150 == 40:
            graph = retried(lambda: client.post("/v1/graphs", json={"source": {"kind": "npz", "path": "ring.npz"}}))
            body |= {"kind": "pipeline", "graph": graph.json()["id"], "train": TINY}
            del body["embedding"], body["index"]
        elif self.sent % 60 != 20:
            self.stages[key] = stages or rng.randint(1, 3)
            labels = {"stages": str(self.stages[key]), "seconds": str(seconds or rng.uniform(0.05, 0.5))}
            self.graph_of[key] = rng.choice(self.truths).ref
            graph_id = self.graphs[self.graph_of[key]]
            body |= {"kind": "preprocess", "graph": graph_id, "labels": labels | {"key": key}}
            del body["embedding"], body["index"]

        def send() -> httpx2.Response:
            answer = client.post("/v1/jobs", json=body, headers={"Idempotency-Key": key})
            self.books.saw(answer, self.graph_of.get(key))
            return answer

        answer = retried(send)
        while answer.status_code in {409, 422}:  # its set or graph is corrupted at this moment, or the disk is full
            if answer.json()["code"] == "validation_failed":
                raise ValueError(f"the benchmark itself is wrong: {answer.text}")
            time.sleep(0.3)
            if self.over.is_set():
                print(f"not accepted: {answer.text}")
                return None
            answer = retried(send)
        job = str(answer.json()["id"])
        self.books.accepted(key, job)
        return job

    # The end.

    def _close(self) -> None:
        """Wait until every job has ended, and compare what the server says with the books."""
        client = self.server.client()
        end, found = time.monotonic() + 180, []
        while time.monotonic() < end:
            found = self._all_jobs(client)
            if all(job["status"] in ENDED for job in found):
                break
            time.sleep(0.5)
        by_id = {job["id"]: job for job in found}
        keys = Counter(job["labels"]["key"] for job in found)
        for key, job in self.books.jobs.items():
            if job not in by_id:
                self.books.wrong(f"{job} of {key} is lost")
            elif by_id[job]["status"] not in ENDED:
                self.books.wrong(f"{job} did not end: {by_id[job]['status']} {by_id[job]['waiting_for']}")
        for key, count in keys.items():
            if count > 1:
                self.books.wrong(f"{key} is there {count} times")
        statuses = {name: job["status"] for name, job in by_id.items()}
        self.books.check_ledger(self.server.books / "ledger", statuses, self.stages)
        for job in found:
            if job["status"] == "failed":
                graph = self.graph_of.get(job["labels"]["key"])
                self.books.check_failed(job, graph, self.server.settings.max_attempts)
        self.books.explain(self.server.log)
        errors = Counter((job["error"] or {}).get("code") for job in found if job["status"] == "failed")
        ends = Counter((job["kind"], job["status"]) for job in found)
        self.ends = {f"{kind} {status}": count for (kind, status), count in sorted(ends.items())}
        print(f"jobs: {self.ends}; failed by {dict(errors)}")
        for job in [job for job in found if job["kind"] != "preprocess" and job["status"] == "failed"][:3]:
            print("failed:", job["kind"], json.dumps(job["error"])[:600])
        self._leftovers(client, list(by_id))

    def _all_jobs(self, client: httpx2.Client) -> list[dict]:
        found, cursor = [], None
        while True:
            given = {"limit": 200} | ({"cursor": cursor} if cursor else {})
            page = retried(lambda given=given: client.get("/v1/jobs", params=given)).json()
            found += page["items"]
            cursor = page["next_cursor"]
            if cursor is None:
                return found

    def _leftovers(self, client: httpx2.Client, jobs: list[str]) -> None:
        """No process, no file of a deleted job, and no descriptor that nobody needs."""
        for job in jobs:
            answer = client.delete(f"/v1/jobs/{job}")
            if answer.status_code != 204:
                self.books.wrong(f"{job} could not be deleted: {answer.text}")
        for worker in self.server.workers():
            self.books.wrong(f"process {worker.process.pid} of {worker.job} is left")
        assert self.server.process is not None
        held = len(list(Path(f"/proc/{self.server.process.pid}/fd").iterdir()))
        if held > 150:
            self.books.wrong(f"the server holds {held} descriptors")
        home = self.server.settings.home
        for path in home.rglob("*"):
            about = path.relative_to(home)
            if about.parts[0] == "jobs" and len(about.parts) > 1:
                self.books.wrong(f"left behind: {about}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--faults", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--quick", action="store_true", help="60 faults: within a minute or two")
    parser.add_argument("--keep", action="store_true", help="keep the scratch folder, with the server's log")
    given = parser.parse_args()
    faults = 60 if given.quick else given.faults
    scratch = Path(tempfile.mkdtemp(prefix="rgrl-faults-"))
    print(f"seed {given.seed}, {faults} faults, in {scratch}", flush=True)
    began = time.monotonic()
    with small_disk(scratch / "disk") as mounted:
        (scratch / "data").mkdir()
        write_tables(scratch / "data" / "ring.npz")
        settings = ServiceSettings(
            home=scratch / "disk" / "home",
            data_roots=[scratch / "data"],
            poll_s=0.1,
            cancel_grace_s=0.5,
            retry_after_s=0.1,
            max_attempts=10,
            max_running=4,
            max_cores=4,
            body_timeout_s=3,
        )
        store = Store(settings)
        sets = scratch / "sets"
        truths = [
            make_set(sets / "strings", store, "strings", 300, "exact"),
            make_set(sets / "numbers", store, "numbers", 2000, "hnsw"),
            make_set(sets / "indexed", store, "indexed", 1000, "hnsw"),  # again and again, by jobs; never corrupted
        ]
        store.close()
        server = Server(scratch, settings)
        storm = Storm(server, truths, sets, mounted, given.seed)
        try:
            server.start()
            storm.run(faults)
            server.stop()
        finally:
            if server.process is not None and server.process.poll() is None:
                server.kill()
            for worker in server.workers():
                with suppress(ProcessLookupError):
                    os.kill(worker.process.pid, 9)
    if not given.keep and not storm.books.violations:
        shutil.rmtree(scratch)
    return report(storm, faults, given.seed, mounted, time.monotonic() - began)


def report(storm: Storm, faults: int, seed: int, mounted: bool, seconds: float) -> int:
    """Print the table and the line of JSON; the exit code."""
    books = storm.books
    for what, count in sorted(books.faults.items()):
        print(f"{count:6d}  {what}")
    print(f"answers by status: {dict(sorted(books.answers.items()))}; starts of the server: {storm.server.starts}")
    for what in books.violations:
        print("VIOLATION", what[:500])
    settings = {
        "seed": seed,
        "disk": "tmpfs" if mounted else "RLIMIT_FSIZE",
        "seconds": round(seconds),
        "jobs": storm.ends,
        "faults": dict(sum((Counter({what.split(":")[0]: n}) for what, n in books.faults.items()), Counter())),
    }
    result = {
        "claim": "violations in so many random faults",
        "ours": len(books.violations),
        "peer": faults,
        "ratio": len(books.violations) / faults,
        "unit": "violations",
        "settings": settings,
        "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores",
        "date": datetime.now(UTC).date().isoformat(),
    }
    print(json.dumps(result))
    return 1 if books.violations else 0


if __name__ == "__main__":
    sys.exit(main())
