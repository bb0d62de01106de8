"""What jobs leave half made is gone once they have ended for good, and there as long as somebody goes on with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from service_harness import add_graph, job_of, running_app, settings_in, submit, wait_end, wait_for

from service.settings import ServiceSettings


def halves(settings: ServiceSettings) -> list[str]:
    """Everything hidden among the server's artefacts."""
    folders = (settings.embeddings, settings.graphs)
    return sorted(path.name for folder in folders for path in folder.rglob(".*"))


@pytest.mark.parametrize(("stage", "made"), [("train", "embeddings"), ("embed", "embeddings"), ("append", "bundle")])
@pytest.mark.parametrize("end", ["failed", "cancelled"])
def test_an_unfinished_artefact_ends_with_its_job(tmp_path: Path, stage: str, made: str, end: str) -> None:
    settings = settings_in(tmp_path)
    gate = tmp_path / "gate"
    with running_app(settings) as client:
        job = submit(client, add_graph(client, tmp_path), (stage, {"leave": made, "gate": str(gate), "exit": 9}))
        wait_for(lambda: halves(settings))
        if end == "cancelled":
            client.post(f"/v1/jobs/{job}/cancel")
        else:
            gate.touch()
        assert wait_end(client, job)["status"] == end
        assert wait_for(lambda: not halves(settings))
        assert not (settings.graphs / job.replace("job_", "graph_")).exists()


def test_an_attempt_that_is_made_again_finds_what_the_one_before_left(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, retry_after_s=600)
    with running_app(settings) as client:
        job = submit(client, add_graph(client, tmp_path), ("train", {"leave": "embeddings", "signal": 9}))
        wait_for(lambda: job_of(client, job)["retry_at"])
        assert any(name.endswith(".partial") for name in halves(settings))


def test_half_an_ingest_stays_for_the_next_job_on_the_graph(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    with running_app(settings) as client:
        job = submit(client, add_graph(client, tmp_path), ("ingest", {"leave": "bundle", "exit": 9}))
        assert wait_end(client, job)["status"] == "failed"
        assert ".bundle.partial" in halves(settings)
    with running_app(settings):
        assert ".bundle.partial" in halves(settings)


def test_a_server_that_died_before_it_tidied_up_does_so_at_its_next_start(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    with running_app(settings) as client:
        job = submit(client, add_graph(client, tmp_path), ("train", {"exit": 9}))
        wait_end(client, job)
    left = settings.embeddings / f".{job.replace('job_', 'emb_')}.partial"
    another = settings.embeddings / ".emb_of_nobody.partial"
    for folder in (left, another):
        folder.mkdir(parents=True)
    with running_app(settings):
        wait_for(lambda: not left.exists())
        assert another.exists()
