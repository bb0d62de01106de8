"""Commands that ask a server: jobs, lookups, graphs, embedding sets and aliases."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from embedding_fixtures import add_set, write_bundle, write_set
from rich.console import Console
from service_harness import Server, job_of, settings_in, submit, wait_end, wait_for

from service.cli.demo import _remove as remove_last
from service.client import Client
from service.search.filter_schemas import Condition, Filter, Match
from service.store import Store


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(settings_in(tmp_path_factory.mktemp("cli"))) as server:
        yield server


@pytest.fixture(scope="module")
def embedding(server: Server) -> str:
    vectors = np.random.default_rng(4).standard_normal((30, 12)).astype(np.float32)
    store = Store(server.settings)
    try:
        return add_set(store, write_set(server.settings.embeddings / "set", vectors))
    finally:
        store.close()


@pytest.fixture
def remote(
    server: Server, rgrl: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    monkeypatch.setenv("RGRL_SERVER", str(server.client.base_url))
    return rgrl


def test_jobs_from_submit_to_cancel(server: Server, remote: Callable[..., tuple[int, str, str]]) -> None:
    graph = server.settings.data_roots[0] / "graph.npz"
    graph.touch()
    stages_label = 'fake=[["one", {"steps": 2, "health": [["stalled", "the loss never moved"]]}]]'
    submit = ("jobs", "submit", "pipeline", "--graph", graph, "--label", stages_label)
    code, out, err = remote(*submit, "--set", "train.run.epochs=3", "--watch", "--json")
    assert code == 0, err
    assert "the loss never moved" in err
    job = json.loads(out)
    assert (job["status"], job["kind"], job["health"]["state"]) == ("succeeded", "pipeline", "stalled")
    code, out, _ = remote("jobs", "list", "--status", "succeeded", "--json")
    assert [found["id"] for found in json.loads(out)] == [job["id"]]
    (row,) = [line for line in remote("jobs", "list")[1].splitlines() if job["id"] in line]
    assert "stalled" in row
    shown = remote("jobs", "show", job["id"])[1]
    assert "succeeded" in shown
    assert re.search(r"^stage_seconds\.one +[\d.]+ *$", shown, re.MULTILINE)
    assert remote("jobs", "watch", job["id"])[0] == 0
    assert remote("jobs", "logs", job["id"])[0] == 0
    code, _, err = remote("jobs", "cancel", job["id"])
    assert (code, "ended already (succeeded)" in err) == (1, True), err
    assert (remote("jobs", "delete", job["id"], "--json")[0], remote("jobs", "show", job["id"])[0]) == (0, 3)
    failing = 'fake=[["one", {"error": {"code": "input_invalid", "message": "no good"}, "exit": 3}]]'
    code, out, _ = remote(
        "jobs", "submit", "pipeline", "--graph", job["graph"], "--label", failing, "--watch", "--json"
    )
    told = json.loads(out)
    assert (code, told["status"], told["error"]["message"]) == (3, "failed", "no good")


def test_graphs_of_one_name_are_told_apart(
    server: Server, remote: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = server.settings.data_roots[0]
    folders = [root / "one" / "twin", root / "two" / "twin", root / "other"]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "edges.csv").write_text("source,target\n0,1\n")
    label = ("--label", 'fake=[["one", {}]]')
    one, two, other = (remote("jobs", "submit", "pipeline", "--graph", folder, *label, "--json") for folder in folders)
    assert (one[0], two[0], other[0]) == (0, 0, 0)
    first, second = (json.loads(out)["graph"] for _, out, _ in (one, two))
    assert (one[2], other[2]) == ("", "")
    assert f"note: {second} is named 'twin' like {first}; their ids tell them apart" in two[2]
    with monkeypatch.context() as patched:
        asked: list[str | None] = []
        patched.setattr(Client, "graphs", lambda _, *, name=None: asked.append(name) or iter(()))
        remote("graphs", "register", folders[2])
        assert asked == ["other"]
    # The name of a folder is its own also where it is spelled by dots.
    monkeypatch.chdir(folders[0])
    code, out, err = remote("graphs", "register", ".")
    assert (code, "twin" in out, f"like {second}, {first}; " in err) == (0, True, True), err
    code, _, err = remote("graphs", "register", "../twin", "--name", "no twin")
    assert (code, err) == (0, "")
    code, _, err = remote("jobs", "submit", "pipeline", "--graph", "../twin", *label, "--dry-run")
    assert (code, err) == (0, ""), "a dry run leaves no graph"


def test_a_demo_run_again_deletes_what_it_made_alone_and_says_so(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(server.settings)
    try:
        made = [write_set(tmp_path / name, np.eye(3, 4, dtype=np.float32)) for name in ("last", "kept", "other")]
        last, kept, other = (add_set(store, path) for path in made)
        store.put_alias("kept", kept)
    finally:
        store.close()
    with Client(str(server.client.base_url)) as client:
        for ref in (last, kept):
            remove_last(client, client.embedding(ref), Console(stderr=True))
        left = {one.id for one in client.embeddings()}
        client.delete_alias("kept")
    assert {last, kept, other} & left == {kept, other}
    said = capsys.readouterr().err
    assert f"{last} is deleted" in said
    assert said.rstrip().endswith("is used by more, and stays.")


def test_server_errors_have_exit_codes(remote: Callable[..., tuple[int, str, str]], embedding: str) -> None:
    assert remote("jobs", "show", "job_none")[0] == 3
    code, _, err = remote("jobs", "submit", "train", "--graph", "graph_x", "--set", "train.optimizer.lr=-1")
    assert (code, "error: train.optimizer.lr: " in err) == (2, True)
    assert remote("neighbors", embedding, "nobody")[0] == 3
    code, out, _ = remote("neighbors", embedding, 1, "-k", 100_000, "--json")
    assert (code, json.loads(out)["error"]["code"]) == (2, "limit_exceeded")


@pytest.mark.parametrize(
    ("arguments", "once"),
    [
        (["neighbors", "SET", "nobody"], ["there is no node", "nobody"]),
        (["neighbors", "SET", "1", "-k", "100000"], ["more neighbours a query", "100000"]),
        (
            ["neighbors", "SET", "1", "--filter", '{"must": [{"key": "age", "is_null": true}]}'],
            ["a whole graph bundle"],
        ),
        (["jobs", "show", "job_none"], ["there is no such job"]),
        (["jobs", "watch", "job_none"], ["there is no such job"]),
        (["jobs", "delete", "job_none"], ["there is no such job"]),
        (["graphs", "delete", "none"], ["there is no such graph"]),
        (["embeddings", "delete", "none"], ["there is no such embedding"]),
        (["jobs", "list", "--status", "lost"], ["status", "must be"]),
        (["jobs", "submit", "train", "--graph", "graph_none"], ["there is no such graph"]),
        (["jobs", "submit", "train", "--set", "train.optimizer.lr=-1"], ["graph: Field required", "greater than 0"]),
        (["jobs", "submit", "index", "--set", "index.links=1"], ["embedding: Field required", "greater than"]),
        (
            ["jobs", "submit", "train", "--graph", "graph_none", "--set", "train.objective=rgl"],
            ["train.objective: must be 'rgrl', ", "did you mean 'rgrl'?"],
        ),
        (["graphs", "show", "none"], ["there is no such graph"]),
        (["embeddings", "show", "none"], ["there is no such embedding"]),
        (["aliases", "delete", "none"], ["there is no such alias"]),
    ],
)
def test_a_fault_is_told_once_and_in_words_of_the_command_line(
    remote: Callable[..., tuple[int, str, str]], embedding: str, arguments: list[str], once: list[str]
) -> None:
    code, out, err = remote(*(embedding if argument == "SET" else argument for argument in arguments))
    assert (code != 0, out) == (True, "")
    assert {words: err.count(words) for words in once} == dict.fromkeys(once, 1), err
    assert [word for word in ("GET ", "POST ", "/v1", "query/", "  /") if word in err] == [], err


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (["jobs", "show", "nope"], "`rgrl jobs list`"),
        (["jobs", "logs", "nope"], "`rgrl jobs list`"),
        (["graphs", "show", "nope"], "`rgrl graphs list` tells the ids"),
        (["jobs", "submit", "train", "--graph", "graph_nope"], "`rgrl graphs list`"),
        (["neighbors", "nope", "1"], "`rgrl embeddings list` and `rgrl aliases list`"),
        (["lookup", "nope", "1"], "`rgrl embeddings list` and `rgrl aliases list`"),
        (["aliases", "set", "mine", "nope"], "`rgrl embeddings list` and `rgrl aliases list`"),
        (["aliases", "delete", "nope"], "`rgrl aliases list`"),
    ],
)
def test_what_there_is_not_is_told_with_what_was_given_and_where_to_look(
    remote: Callable[..., tuple[int, str, str]], arguments: list[str], remedy: str
) -> None:
    code, _, err = remote(*arguments)
    assert (code, f"given: {'graph_' * ('--graph' in arguments)}nope\n" in err, remedy in err) == (3, True, True), err
    assert ("a graph's id, not its name" in err) is ("graph" in remedy)


def test_lookup_and_neighbors(remote: Callable[..., tuple[int, str, str]], embedding: str) -> None:
    code, out, _ = remote("lookup", embedding, 3, "nobody", "--json")
    known, unknown = json.loads(out)["items"]
    assert (code, known["found"], len(known["vector"]), unknown["vector"]) == (3, True, 12, None)
    code, out, _ = remote("lookup", embedding, 3)
    assert (code, "(12 numbers)" in out) == (0, True)
    code, out, _ = remote("neighbors", embedding, 3, 4, "-k", 2, "--json")
    answers = json.loads(out)
    assert (code, [answer["returned"] for answer in answers]) == (0, [2, 2])
    for text in ("{", "[]"):
        code, _, err = remote("neighbors", embedding, 3, "--filter", text)
        assert (code, "not a JSON object" in err) == (2, True), err
    code, out, _ = remote("neighbors", embedding, 3, "-k", 2)
    assert (code, answers[0]["results"][0]["id"] in out, "exact_no_index" in out) == (0, True, True)


@pytest.mark.parametrize("command", ["lookup", "neighbors"])
@pytest.mark.parametrize(
    ("ids", "asked", "unknown", "kind"),
    [
        ([10, 20, 30, 40], [30, "nobody", 20, 31], "nobody, 31", "integers, as 10, 20, 30"),
        (["a", "b c"], ["a", 7], "7", 'strings, as "a", "b c"'),
        (["a", "b" * 41], ["c"], "c", f'strings, as "a", "{"b" * 40}…"'),
        ([1], [1, *range(2, 14)], "2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 2 more", "integers, as 1"),
    ],
)
def test_unknown_ids_are_named_with_what_ids_there_are(
    server: Server,
    remote: Callable[..., tuple[int, str, str]],
    tmp_path: Path,
    command: str,
    ids: list[Any],
    asked: list[Any],
    unknown: str,
    kind: str,
) -> None:
    store = Store(server.settings)
    try:
        made = write_set(tmp_path / "set", np.eye(len(ids), 4, dtype=np.float32) + 1, ids)
        ref = add_set(store, made)
    finally:
        store.close()
    code, out, err = remote(command, ref, *asked)
    assert (code, out.count("not found")) == (3, 0 if command == "neighbors" else sum(one not in ids for one in asked))
    told = dict(re.findall("^  (given|remedy): (.*)$", err, re.MULTILINE))
    assert told["given"] == unknown
    assert told["remedy"] == ("correct these ids, or leave them out" if len(asked) > 1 else "correct the id")
    assert f"which are {kind}\n" in err
    code, out, _ = remote(command, ref, *asked, "--json")
    assert (code, "embedding" in json.loads(out)) == (3, command == "lookup")


def test_the_help_of_filters_shows_filters_of_every_kind(rgrl: Callable[..., tuple[int, str, str]]) -> None:
    code, out, _ = rgrl("neighbors", "--help")
    examples = re.findall(r"^ +[a-z ]+: +(\{.*?\]\})$", out, re.MULTILINE | re.DOTALL)
    filters = [Filter.model_validate_json(text) for text in examples]
    assert (code, len(filters)) == (0, 6)
    used = {name for one in filters for name in one.model_fields_set}
    conditions = [part for one in filters for parts in one.clauses.values() for part in parts]
    assert used == set(Filter.model_fields)
    assert {name for part in conditions for name in part.model_fields_set} == set(Condition.model_fields)
    matches = [part.match for part in conditions if isinstance(part, Condition) and part.match is not None]
    assert {name for match in matches for name in match.model_fields_set} == set(Match.model_fields)


def test_neighbors_that_pass_a_filter(server: Server, remote: Callable[..., tuple[int, str, str]]) -> None:
    data = server.settings.data_roots[0]
    content = write_bundle(data / "linked", 6, [(0, 1), (2, 3)])
    path = write_set(data / "linked set", np.eye(6, dtype=np.float32), content=content)
    store = Store(server.settings)
    try:
        ref = add_set(store, path, data / "linked")
    finally:
        store.close()
    wanted = json.dumps({"must": [{"key": "degree", "match": {"value": 1}}]})
    code, out, err = remote("neighbors", ref, 0, "--filter", wanted, "--json")
    assert code == 0, err
    [answer] = json.loads(out)
    assert ([found["id"] for found in answer["results"]], answer["complete"]) == (["1", "2", "3"], False)
    wanted = json.dumps({"must": [{"key": "age", "match": {"value": 1}}]})
    code, _, err = remote("neighbors", ref, 0, "--filter", wanted)
    assert (code, "no attribute of this name" in err, "degree" in err) == (3, True, True), err


def test_submit_names_the_columns_of_tables(server: Server, remote: Callable[..., tuple[int, str, str]]) -> None:
    folder = server.settings.data_roots[0] / "tables"
    folder.mkdir()
    for name in ("edges.csv", "nodes.csv"):
        (folder / name).touch()
    nodes = ("--id-column", "key", "--label-column", "y", "--feature-column", "x1", "--feature-column", "x2")
    kept = ("--split-column", "part", "--attribute-column", "year", "--attribute-column", "city")
    edges = ("--source-column", "a", "--weight-column", "w")
    code, out, err = remote("jobs", "submit", "pipeline", "--graph", folder, *nodes, *kept, *edges, "--json")
    assert code == 0, err
    code, made, err = remote("graphs", "register", folder, *nodes, *kept, *edges, "--json")
    assert code == 0, err
    named = ("node_id", "label", "features", "split", "attributes", "source", "target", "weight")
    for graph in (json.loads(out)["graph"], json.loads(made)["id"]):
        source = server.client.get(f"/v1/graphs/{graph}").json()["source"]
        told = ["key", "y", ["x1", "x2"], "part", ["year", "city"], "a", None, "w"]
        assert [source[option] for option in named] == told
    code, _, err = remote("graphs", "register", folder / "edges.csv", "--attribute-column", "year")
    assert (code, "attribute column year" in err) == (3, True), err


def test_a_dry_run_tells_what_a_job_takes_and_leaves_nothing(
    server: Server, remote: Callable[..., tuple[int, str, str]]
) -> None:
    def everything() -> list[int]:
        return [len(server.client.get(f"/v1/{what}").json()["items"]) for what in ("graphs", "jobs")]

    path = server.settings.data_roots[0] / "edges.csv"
    path.write_text("source,target\n1,2\n2,3\n")
    before = everything()
    submit = ("jobs", "submit", "ingest", "--graph", path, "--dry-run")
    code, out, err = remote(*submit)
    assert code == 0, err
    facts = dict(line.split(None, 1) for line in out.splitlines())
    assert (facts["stages"].strip(), facts["estimate.memory_bytes"].split()[1]) == ("ingest", "MiB"), out
    code, out, _ = remote(*submit, "--json")
    told = json.loads(out)
    assert (code, told["stages"], told["estimate"]["memory_bytes"] > 0) == (0, ["ingest"], True)
    assert everything() == before
    assert remote(*submit, "--watch")[0] == 2
    code, _, err = remote(*submit, "--set", "resources.cores=60000")
    assert (code, "cores" in err, everything()) == (3, True, before), err


def test_a_priority_is_that_of_the_job(server: Server, remote: Callable[..., tuple[int, str, str]]) -> None:
    graph = server.settings.data_roots[0] / "urgent.npz"
    graph.touch()
    code, out, err = remote("jobs", "submit", "pipeline", "--graph", graph, "--priority", 7, "--json")
    assert code == 0, err
    job = json.loads(out)["id"]
    assert server.client.get(f"/v1/jobs/{job}").json()["priority"] == 7


def test_a_waiting_job_is_edited(server: Server, remote: Callable[..., tuple[int, str, str]], embedding: str) -> None:
    graph = server.client.get(f"/v1/embeddings/{embedding}").json()["graph"]
    first = submit(server.client, graph, ("one", {"seconds": 60}))
    job = submit(server.client, graph, name="before", priority=3)
    assert remote("jobs", "edit", job, "--label", "team=search", "--priority", 0)[0] == 0
    told = job_of(server.client, job)
    assert (told["name"], told["priority"], told["labels"]) == ("before", 0, {"team": "search"})
    assert json.loads(remote("jobs", "edit", job, "--name", "after", "--json")[1])["name"] == "after"
    assert job_of(server.client, job)["labels"] == {"team": "search"}
    for one in (job, first):
        server.client.post(f"/v1/jobs/{one}/cancel")
        wait_end(server.client, one)


def test_a_graph_from_register_to_delete(server: Server, remote: Callable[..., tuple[int, str, str]]) -> None:
    data = server.settings.data_roots[0]
    (data / "mine.csv").write_text("source,target\n1,2\n")
    write_bundle(data / "whole", 3, [(0, 1)])
    options = ("--reverse", "--feature-dtype", "float16", "--name", "my graph")
    code, out, err = remote("graphs", "register", data / "mine.csv", *options, "--json")
    assert code == 0, err
    graph = json.loads(out)["id"]
    told = server.client.get(f"/v1/graphs/{graph}").json()
    assert [told[what] for what in ("direction", "feature_dtype", "name")] == ["reverse", "float16", "my graph"]
    code, out, _ = remote("graphs", "register", data / "whole", "--json")
    bundle = json.loads(out)
    assert (code, bundle["name"], bundle["state"]) == (0, "whole", "ready")
    for identity in (graph, bundle["id"]):
        code, out, _ = remote("graphs", "delete", identity, "--json")
        assert (code, json.loads(out)) == (0, {"deleted": identity})
        assert remote("graphs", "show", identity)[0] == 3
    assert (data / "whole").exists()
    assert remote("graphs", "register", data / "mine.csv", "--reverse", "--directed")[0] == 2


def test_a_running_job_is_cancelled_and_said_to_be(
    server: Server, remote: Callable[..., tuple[int, str, str]], embedding: str
) -> None:
    graph = server.client.get(f"/v1/embeddings/{embedding}").json()["graph"]
    job = submit(server.client, graph, ("one", {"seconds": 60, "stubborn": True}))
    wait_for(lambda: job_of(server.client, job)["progress"], "for its first step")
    code, out, err = remote("jobs", "cancel", job)
    assert code == 0, err
    status = dict(line.split(None, 1) for line in out.splitlines())["status"].strip()
    assert status in {"cancelling", "cancelled"}
    assert (f"rgrl jobs watch {job}" in err) == (status == "cancelling")
    assert wait_end(server.client, job)["status"] == "cancelled"


def test_ctrl_c_leaves_the_job_and_says_how_to_go_on(
    server: Server, remote: Callable[..., tuple[int, str, str]], embedding: str
) -> None:
    graph = server.client.get(f"/v1/embeddings/{embedding}").json()["graph"]
    job = submit(server.client, graph, ("one", {"seconds": 60, "health": [["stalled", "it stands"]]}))
    # Whoever runs the tests in the background has this signal ignored.
    command = "import signal, service.cli; signal.signal(signal.SIGINT, signal.default_int_handler); service.cli.main()"
    argv = [sys.executable, "-c", command, "jobs", "watch", job]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as watching:
        assert watching.stderr is not None
        assert "it stands" in watching.stderr.readline()
        watching.send_signal(signal.SIGINT)
        try:
            _, err = watching.communicate(timeout=30)
        finally:
            watching.kill()
    assert watching.returncode == 130, err
    assert [
        word for word in ("it goes on", f"rgrl jobs watch {job}", f"rgrl jobs cancel {job}") if word not in err
    ] == []
    assert job_of(server.client, job)["status"] in {"queued", "running"}
    server.client.post(f"/v1/jobs/{job}/cancel")
    wait_end(server.client, job)


def test_a_refused_submit_leaves_no_graph_behind(server: Server, remote: Callable[..., tuple[int, str, str]]) -> None:
    (server.settings.data_roots[0] / "refused.npz").touch()
    path = server.settings.data_roots[0] / "refused.npz"
    for wrong in (("--preset", "coro"), ("--set", "train.run.epochs=x"), ("--alias", "my alias")):
        code, _, err = remote("jobs", "submit", "pipeline", "--graph", path, *wrong)
        assert code == 2, err
    names = [graph["name"] for graph in server.client.get("/v1/graphs").json()["items"]]
    assert path.name not in names


def test_graphs_embeddings_and_aliases(remote: Callable[..., tuple[int, str, str]], embedding: str) -> None:
    def told(*arguments: str) -> Any:
        code, out, err = remote(*arguments, "--json")
        assert code == 0, err
        return json.loads(out)

    shown = told("embeddings", "show", embedding)
    assert (shown["id"], shown["counts"]) == (embedding, {"nodes": 30, "dim": 12})
    assert embedding in [one["id"] for one in told("embeddings", "list", "--graph", shown["graph"])]
    assert told("graphs", "show", shown["graph"])["id"] == shown["graph"]
    assert shown["graph"] in [one["id"] for one in told("graphs", "list")]
    assert len(told("graphs", "list", "--limit", "1")) == 1
    assert told("aliases", "set", "mine", embedding)["version"] == 1
    assert remote("aliases", "set", "mine", embedding, "--if-version", 9)[0] == 1
    assert [one["name"] for one in told("aliases", "list")] == ["mine"]
    assert (told("aliases", "show", "mine")["embedding"], remote("aliases", "show", "none")[0]) == (embedding, 3)
    for command in (("embeddings", "list"), ("aliases", "list"), ("embeddings", "show", "mine")):
        assert embedding in remote(*command)[1]
    assert shown["graph"] in remote("graphs", "list")[1]
    assert remote("embeddings", "delete", embedding)[0] == 1, "an alias names it"
    assert told("aliases", "delete", "mine") == {"deleted": "mine"}
    for command in (("aliases", "delete", "mine"), ("embeddings", "show", "mine"), ("graphs", "show", "none")):
        assert remote(*command)[0] == 3


def test_a_server_that_is_not_there_is_an_error_with_a_remedy(
    rgrl: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.client.transport.FIRST_WAIT_S", 0.001)
    for command in (("jobs", "list"), ("jobs", "watch", "job_none")):
        code, _, err = rgrl(*command, "--server", "http://127.0.0.1:9")
        assert (code, "rgrl serve" in err, "goes on" in err) == (1, True, False), err


def test_a_set_made_here_is_registered_and_listed(
    server: Server, remote: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    data = server.settings.data_roots[0]
    content = write_bundle(data / "ring", 30, [(0, 1), (1, 2)])
    path = write_set(data / "set", np.ones((30, 3), np.float32), content=content)
    with Client(str(server.client.base_url)) as client:
        graph = client.register_graph(bundle="ring").id
    code, out, _ = remote("embeddings", "register", path, "--graph", graph, "--name", "mine", "--json")
    made = json.loads(out)
    assert (code, made["name"], made["path"]) == (0, "mine", str(path))
    code, out, _ = remote("embeddings", "list", "--graph", graph, "--json")
    assert (code, json.loads(out)) == (0, [made])
    (row,) = [line for line in remote("embeddings", "list")[1].splitlines() if made["id"] in line]
    assert "mine" in row
    code, _, err = remote("embeddings", "register", tmp_path, "--graph", graph)
    assert (code, "data root" in err) == (1, True)
    code, out, _ = remote("embeddings", "delete", made["id"], "--json")
    assert (code, json.loads(out), path.exists()) == (0, {"deleted": made["id"]}, True)
    assert remote("embeddings", "show", made["id"])[0] == 3
