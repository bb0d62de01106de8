"""The server that faults.py breaks: ``python faults_server.py SETTINGS_JSON``, and the stages of its made-up jobs.

A job with the label ``stages`` runs so many stages of this file; one without runs those of the real pipeline. A stage
holds a lock of its job's while it lives, so that a second one at the same time is seen, and writes what it did down.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from service.jobs.plan import StagePlan
    from service.settings import ServiceSettings
    from service.store import Job, Store


def plan(job: Job, store: Store, settings: ServiceSettings) -> list[StagePlan]:
    """The stages that the job's labels ask for."""
    from service.jobs.plan import StagePlan, plan_job

    if "stages" not in job.labels:
        return plan_job(job, store, settings)
    books = os.environ["RGRL_TEST_BOOKS"]
    return [
        StagePlan(
            f"s{number}",
            [sys.executable, "-S", __file__],
            {"name": f"s{number}", "books": books, "seconds": float(job.labels["seconds"])},
        )
        for number in range(int(job.labels["stages"]))
    ]


def stage(spec: dict) -> int:
    """Be a stage for ``seconds``: mark the begin and the end in the books, which lie on another disk than the home."""
    name, job, books = spec["name"], os.environ["RGRL_JOB"], Path(spec["books"])

    def note(mark: str) -> None:
        with (books / "ledger").open("a") as file:
            file.write(f"{job} {name} {os.getpid()} {time.time()} {mark}\n")

    def emit(event: str, **fields: object) -> None:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())
        with Path(os.environ["RGRL_EVENTS"]).open("a") as file:
            file.write(json.dumps({"time": moment, "event": event, "stage": name, **fields}) + "\n")

    with (books / f"{job}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            note("overlap")
            return 1
        note("begin")
        steps = 4
        for step in range(steps):
            time.sleep(spec["seconds"] / steps)
            emit("progress", done=step + 1, total=steps, unit="steps", rate=1.0, eta_s=0.0)
        # What is on disk when the result is told is done; a kill between the two runs the stage again, which may be.
        note("end")
        emit("result", summary={"name": name})
    return 0


if __name__ == "__main__":
    if sys.argv[1].startswith("{"):
        from service.api.serve import serve
        from service.settings import ServiceSettings

        os.environ.pop("RGRL_HOME", None)
        serve(ServiceSettings.model_validate_json(sys.argv[1]), plan=plan)
    else:
        try:
            sys.exit(stage(json.loads(Path(sys.argv[1]).read_text())))
        except OSError as error:  # a full disk
            print(f"the stage cannot write: {error}", flush=True)
            sys.exit(1)
