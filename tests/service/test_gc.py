"""What nothing needs goes, and nothing else, while a server runs and jobs write."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from home_fixtures import Filled, add_job, add_made_set, fill
from service_harness import Server, add_graph, job_of, settings_in, submit, wait_end, wait_for
from sqlalchemy import text

from preprocessing.artifact import build, verify
from preprocessing.errors import UsageError
from service.jobs.plan import embedding_id
from service.settings import ServiceSettings
from service.store import Store
from service.upkeep.garbage import TRASH, collect, old_embeddings, remove_embeddings

Run = Callable[..., tuple[int, str, str]]
NOBODY = "01a22a2e72bb7abcb24eed5c9e4cbc52"


@pytest.fixture
def home(tmp_path: Path) -> ServiceSettings:
    return settings_in(tmp_path)


@pytest.fixture
def filled(home: ServiceSettings) -> Filled:
    return fill(home)


def litter(home: ServiceSettings, filled: Filled) -> list[Path]:
    """Something of every kind that nothing needs; one file of 100 bytes each."""
    bundle, made = home.graphs / filled.graph / "bundle", home.embeddings / filled.embedding
    folders = [
        home.graphs / f"graph_{NOBODY}",
        home.embeddings / f"emb_{NOBODY}",
        home.embeddings / f".emb_{NOBODY}.partial",
        home.jobs / f"job_{NOBODY}",
        made / ".index.partial",
        made / ".index.old",
        home.embeddings / TRASH / "left",
    ]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "file").write_bytes(bytes(100))
    torn = made / ".report.json.abcd1234"
    torn.write_bytes(bytes(100))
    assert bundle.is_dir()
    return [*folders, torn]


def everything(home: ServiceSettings) -> list[Path]:
    return sorted(path for path in home.home.rglob("*") if "rgrl.sqlite" not in path.name)


def test_all_of_it_goes_and_nothing_else(home: ServiceSettings, filled: Filled, rgrl: Run) -> None:
    before = everything(home)
    junk = litter(home, filled)
    checkpoints = home.jobs / filled.ended / "train"
    gone = {checkpoints, *checkpoints.rglob("*")}
    littered = everything(home)
    code, out, _ = rgrl("gc", "--home", home.home, "--dry-run", "--json")
    told = json.loads(out)
    assert (code, told["dry_run"], everything(home)) == (0, True, littered)
    assert sorted(item["path"] for item in told["items"]) == sorted(map(str, [*junk, checkpoints]))
    assert told["bytes"] == 100 * len(junk) + 1000 == sum(item["bytes"] for item in told["items"])
    code, out, _ = rgrl("gc", "--home", home.home)
    assert (code, out.splitlines()[-1]) == (0, "1.76 KiB in 9 places were removed")
    assert everything(home) == [path for path in before if path not in gone]
    verify(home.embeddings / filled.embedding, "embedding_set")
    # Of the job that runs, all stays.
    assert (home.jobs / filled.running / "train" / "checkpoints" / "encoder.safetensors").exists()
    code, out, _ = rgrl("gc", "--home", home.home)
    assert out == "0 bytes in 0 places were removed\n"


def test_what_an_unfinished_job_makes_or_uses_stays(home: ServiceSettings, filled: Filled) -> None:
    made = embedding_id(filled.running)
    kept = [
        home.embeddings / made,
        home.embeddings / f".{made}.partial",
        home.graphs / f"graph_{filled.running.removeprefix('job_')}" / ".bundle.partial",
        home.graphs / filled.graph / ".bundle.partial",
        home.graphs / filled.graph / "bundle" / ".ppr.partial",
    ]
    for folder in kept:
        folder.mkdir(parents=True)
    store = Store(home)
    found = collect(store, home, dry_run=False)
    assert all(folder.is_dir() for folder in kept)
    assert [one.path for one in found] == [home.jobs / filled.ended / "train"]
    store.transition(store.job(filled.running), "failed")
    collect(store, home, dry_run=False)
    assert not any(folder.exists() for folder in kept)
    verify(home.graphs / filled.graph / "bundle" / "ppr", "ppr_rows")
    store.close()


def test_what_a_command_is_building_stays_and_a_replaced_one_that_is_the_only_one(
    home: ServiceSettings, filled: Filled
) -> None:
    store = Store(home)
    made = home.embeddings / filled.embedding
    with build(made / "other", "knn_index", "x") as making:
        collect(store, home, dry_run=False)
        assert making.path.is_dir()
        making.publish({})
    (made / "index").rename(made / ".index.old")
    collect(store, home, dry_run=False)
    assert (made / ".index.old" / "manifest.json").exists()
    store.close()


def test_what_is_not_the_servers_stays(home: ServiceSettings, filled: Filled) -> None:
    others = [home.graphs / "mine", home.embeddings / "lost+found", home.jobs / "notes.txt", home.home / "own.partial"]
    for other in others:
        other.mkdir()
    store = Store(home)
    collect(store, home, dry_run=False)
    store.close()
    assert all(other.exists() for other in others)


def aged(store: Store, identity: str) -> None:
    with store.writing() as connection:
        connection.execute(
            text("UPDATE embeddings SET created_at = '2020-01-01 00:00:00.000000' WHERE id = :id"), {"id": identity}
        )


def test_old_sets_without_an_alias_go_when_asked(home: ServiceSettings, filled: Filled, rgrl: Run) -> None:
    store = Store(home)
    old, young = (
        add_made_set(store, home, filled.graph, add_job(store, home, filled.graph, "succeeded")) for _ in range(2)
    )
    for identity in (filled.embedding, old):
        aged(store, identity)
    rgrl("gc", "--home", home.home)
    assert len(store.list_embeddings().items) == 3
    code, out, _ = rgrl("gc", "--home", home.home, "--unaliased-days", "30", "--dry-run")
    assert (code, old in out, young in out, filled.embedding in out) == (0, True, False, False)
    assert len(store.list_embeddings().items) == 3
    rgrl("gc", "--home", home.home, "--unaliased-days", "30")
    assert [one.id for one in store.list_embeddings().items] == [young, filled.embedding]
    assert not (home.embeddings / old).exists()
    store.close()


def test_the_server_itself_deletes_what_it_serves(tmp_path: Path, rgrl: Run) -> None:
    settings = settings_in(tmp_path)
    filled = fill(settings)
    store = Store(settings)
    old = add_made_set(store, settings, filled.graph, add_job(store, settings, filled.graph, "succeeded"))
    aged(store, old)
    with Server(settings) as server, Server(settings_in(tmp_path, home=tmp_path / "other")) as other:
        server.client.headers["Authorization"] = f"Bearer {filled.key}"
        neighbors = {"queries": [{"id": 10}], "k": 2}
        assert server.client.post(f"/v1/embeddings/{old}/neighbors", json=neighbors).status_code == 200
        command = ("gc", "--home", settings.home, "--unaliased-days", "1", "--key", filled.key, "--server")
        code, _, err = rgrl(*command, other.client.base_url)
        assert (code, "has not the embedding sets of this home" in err) == (2, True)
        code, out, _ = rgrl(*command, server.client.base_url)
        assert (code, old in out) == (0, True)
        assert server.client.post(f"/v1/embeddings/{old}/neighbors", json=neighbors).status_code == 404
        assert server.client.post("/v1/embeddings/live/neighbors", json=neighbors).status_code == 200
    store.close()


def test_beside_a_server_whose_jobs_make_and_leave_halves(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, max_running=2, max_cores=4)
    with Server(settings) as server:
        graph = add_graph(server.client, tmp_path)
        wait_end(server.client, submit(server.client, graph, ("ingest", {"make": "bundle"})))
        # An attempt that was killed and is to be made again: what it left half made is gone on with.
        waiting = submit(
            server.client, graph, ("train", {"leave": "embeddings", "signal": 9, "once": str(tmp_path / "once")})
        )
        stop, store = threading.Event(), Store(settings)

        def sweep() -> None:
            while not stop.is_set():
                collect(store, settings, dry_run=False)

        sweeper = threading.Thread(target=sweep)
        sweeper.start()
        try:
            wait_end(server.client, waiting)
            for _ in range(3):
                job = submit(server.client, graph, ("train", {"make": "embeddings"}))
                ended = wait_end(server.client, job)
                assert ended["status"] == "succeeded", ended["error"]
                verify(settings.embeddings / ended["embedding"], "embedding_set")
        finally:
            stop.set()
            sweeper.join()
        verify(Path(store.graph(graph).bundle), "graph_bundle")
        gone = settings.embeddings / f"emb_{NOBODY}"
        gone.mkdir()
        collect(store, settings, dry_run=False)
        assert not gone.exists()
        assert job_of(server.client, waiting)["attempt"] > 1
        wait_for(lambda: server.client.get("/readyz").json()["status"] == "ok")
        store.close()


def test_no_home_and_no_meaning(tmp_path: Path, home: ServiceSettings, filled: Filled, rgrl: Run) -> None:
    code, _, err = rgrl("gc", "--home", tmp_path / "nowhere")
    assert (code, "no home here" in err) == (2, True)
    assert not (tmp_path / "nowhere").exists()
    code, _, err = rgrl("gc", "--home", home.home, "--unaliased-days", "-1")
    assert code == 2


@pytest.mark.parametrize("days", ["inf", "-inf", "nan", "1e300", "1e7", "36501"])
def test_days_that_cannot_have_gone_by_are_one_clear_error(
    home: ServiceSettings, filled: Filled, rgrl: Run, days: str
) -> None:
    code, _, err = rgrl("gc", "--home", home.home, f"--unaliased-days={days}")
    too_low = "--unaliased-days': must be greater than or equal to 0"
    assert (code, (too_low if days in {"-inf", "nan"} else "expected: days from 0 to 36500") in err) == (2, True)
    assert rgrl("gc", "--home", home.home, "--unaliased-days=36500")[0] == 0
    assert (home.embeddings / filled.embedding).exists()


@pytest.mark.parametrize("part", ["", "graphs", "embeddings", "jobs"])
@pytest.mark.parametrize("options", [[], ["--dry-run"], ["--unaliased-days=0"]])
def test_a_read_only_home_is_told_as_one(
    home: ServiceSettings, filled: Filled, rgrl: Run, part: str, options: list[str]
) -> None:
    folder = home.home / part
    bind = ["mount", "--bind", folder, folder]
    if os.geteuid() != 0 or subprocess.run(bind, check=False, capture_output=True).returncode != 0:
        pytest.skip("no file system may be mounted here")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
        code, out, err = rgrl("gc", "--home", home.home, *options)
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
    assert (code, out) == (2, "")
    assert f"error: the home cannot be written to\n  given: {folder}\n" in err


def test_the_server_is_asked_while_the_home_is_its(home: ServiceSettings, filled: Filled) -> None:
    with (home.home / "scheduler.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        asked: list[str] = []
        store = Store(home)
        store.delete_alias("live")
        aged(store, filled.embedding)
        removed = remove_embeddings(old_embeddings(store, home, 1), store, home, asked.append)
        assert asked == [filled.embedding] == [one.path.name for one in removed]
        store.close()


def test_a_half_restored_home_is_left_alone(home: ServiceSettings, filled: Filled, rgrl: Run) -> None:
    (home.home / "restoring.json").write_text("{}")
    code, _, err = rgrl("gc", "--home", home.home)
    assert (code, "half of it was" in err) == (2, True)
    with pytest.raises(UsageError):
        Store(home)
