"""The API against its own OpenAPI document: requests that fit it and requests that do not, made up by schemathesis.

Nothing answers 500, with a status or a content type that is not documented, or with a body that does not fit its
schema; nothing that the document forbids is accepted; every failure is a problem document.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

import uvicorn
from service_harness import wait_for
from service_world import DIM, World, world

ROOT = Path(__file__).parents[2]
EXAMPLES = 8

CONFIG = f"""
[generation]
deterministic = true
max-examples = {EXAMPLES}
database = "none"
[phases.examples]
enabled = false
[phases.stateful]
enabled = false
[checks]
# What fits its schema may still break a rule that no schema can tell, or an If-Match.
positive_data_acceptance.expected-statuses = ["2xx", 401, 403, 404, 406, 409, 412, 422, 429]
"""


def test_answers_are_as_documented(tmp_path: Path) -> None:
    (tmp_path / "schemathesis.toml").write_text(CONFIG)
    with world(tmp_path, max_queued=10_000) as filled, serving(filled) as url:
        names = {field.name for field in fields(World)} - {"client", "tokens"}
        told = {name: getattr(filled, name) for name in names} | {"dim": DIM}
        done = subprocess.run(
            [
                *(sys.executable, "-m", "schemathesis.cli", "--config-file", tmp_path / "schemathesis.toml"),
                *("run", ROOT / "docs" / "openapi.json", "--url", url, "--continue-on-failure"),
                *("-H", f"Authorization: Bearer {filled.tokens['admin']}"),
            ],
            env=os.environ
            | {
                "SCHEMATHESIS_HOOKS": "schema_fuzz_hooks",
                "PYTHONPATH": str(Path(__file__).parent),
                "RGRL_FUZZ_WORLD": json.dumps(told),
            },
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2000:]


@contextmanager
def serving(filled: World) -> Iterator[str]:
    """The server's app on a port of its own, by uvicorn."""
    server = uvicorn.Server(uvicorn.Config(filled.client.app, port=0, log_config=None, lifespan="off"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_for(lambda: server.started, "for the server")
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
