"""The command line: exit codes, messages, JSON, and stages run as processes."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from embedding_fixtures import write_set

from service.cli.doctor import examine
from service.cli.local import run_here
from service.jobs import stages


def tables(folder: Path, *, nodes: Any = None, edges: Any = None) -> list[object]:
    """Two tables of three nodes and two edges, or what a test puts in their place; the options that name them."""
    given = {
        "nodes": pa.table({"id": [1, 2, 3], "x": [0.5, 1.5, 2.5]}) if nodes is None else nodes,
        "edges": pa.table({"source": [1, 2], "target": [2, 3]}) if edges is None else edges,
    }
    options: list[object] = []
    for name, table in given.items():
        path = folder / f"{name}.parquet"
        if isinstance(table, bytes):
            path.write_bytes(table)
        else:
            pq.write_table(table, path)
        options += [f"--{name}", path]
    return options


def truncated() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"source": list(range(100)), "target": list(range(100))}), sink)
    whole: bytes = sink.getvalue().to_pybytes()
    return whole[: len(whole) // 2]


BAD_TABLES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "edge to an unknown node": (
        {"edges": pa.table({"source": [1, 2], "target": [2, 9]})},
        ["edges.parquet", "row", "target", "9"],
    ),
    "NaN feature": (
        {"nodes": pa.table({"id": [1, 2, 3], "x": [0.5, float("nan"), 1.0]})},
        ["nodes.parquet", "row", "'x'", "nan"],
    ),
    "text in a number column": (
        {"nodes": pa.table({"id": [1, 2, 3], "x": [0.5, 1.0, 2.0], "y2": ["1", "two", "3"]})},
        ["nodes.parquet", "row", "'y2'", "two"],
    ),
    "ragged features": (
        {"nodes": pa.table({"id": [1, 2, 3], "x": [[0.5, 1.0], [0.5], [1.0, 2.0]]})},
        ["nodes.parquet", "row", "'x'"],
    ),
    "missing column": ({"edges": pa.table({"source": [1, 2]})}, ["edges.parquet", "target"]),
    "empty table": (
        {"nodes": pa.table({"id": pa.array([], pa.int64()), "x": pa.array([], pa.float32())})},
        ["nodes.parquet"],
    ),
    "duplicate node id": (
        {"nodes": pa.table({"id": [1, 2, 2], "x": [0.5, 1.0, 2.0]})},
        ["nodes.parquet", "row", "'id'", "2"],
    ),
    "truncated Parquet": ({"edges": truncated()}, ["edges.parquet"]),
}


@pytest.fixture(scope="module")
def refusals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, dict[str, Any], list[str]]]:
    """Each fault given to the real command, two at a time: exit code, error, and the folders left behind."""

    root = tmp_path_factory.mktemp("faults")

    def refuse(fault: str) -> tuple[int, dict[str, Any], list[str]]:
        folder = root / fault
        folder.mkdir()
        given, _ = BAD_TABLES[fault]
        extra = ["--feature", "x", "--feature", "y2"] if fault.startswith("text") else []
        arguments = ["ingest", *map(str, tables(folder, **given)), *extra, str(folder / "bundle"), "--json"]
        done = subprocess.run([sys.executable, "-m", "service.cli", *arguments], capture_output=True, text=True)
        left = [path.name for path in folder.iterdir() if path.is_dir()]
        return done.returncode, json.loads(done.stdout)["error"], left

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(BAD_TABLES, pool.map(refuse, BAD_TABLES), strict=True))


@pytest.mark.parametrize("fault", BAD_TABLES)
def test_bad_input_ends_with_3_and_says_where_and_what_to_do(
    fault: str, refusals: dict[str, tuple[int, dict[str, Any], list[str]]]
) -> None:
    code, error, left = refusals[fault]
    assert code == 3, error
    told = " ".join(str(error[part]) for part in ("message", "where", "given", "expected"))
    assert [word for word in BAD_TABLES[fault][1] if word not in told] == [], told
    assert error["remedy"], error
    assert left == []


def test_ingest_says_what_it_made(tmp_path: Path, rgrl: Callable[..., tuple[int, str, str]]) -> None:
    arguments = ("ingest", *tables(tmp_path), "--directed", tmp_path / "bundle")
    code, out, err = rgrl(*arguments)
    assert code == 0, err
    facts = dict(line.split(None, 1) for line in out.splitlines())
    assert facts["counts.nodes"].strip() == "3"
    assert facts["counts.arcs"].strip() == "2"
    assert not re.search(r"[0-9a-f]{32}", out), "hashes are for --json"
    code, out, _ = rgrl(*arguments, "--json")
    assert (code, json.loads(out)["counts"]["nodes"]) == (0, 3)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "b", "o", "--set", "optimizer.lr=-1"], ["optimizer.lr", "greater than 0"]),
        (["train", "b", "o", "--set", "optimizer.rate=1"], ["optimizer.rate", "unknown"]),
        (
            ["train", "b", "o", "--set", "run.epochs=many"],
            ["run.epochs: must be a whole number\n  given: many"],
        ),
        (["train", "b", "o", "--set", "objective=rgl"], ["must be 'rgrl', ", "remedy: did you mean 'rgrl'?"]),
        (["train", "b", "o", "--set", "run.epochs"], ["--set", "run.epochs"]),
        (["train", "b", "o", "--set", "run=1", "--set", "run.epochs=2"], ["--set run.epochs"]),
        (["train", "b", "o", "--preset", "nobody"], ["no such preset", "nobody", "cora"]),
        (["preprocess", "b", "--teleport", "1.5"], ["ppr.teleport", "less than 1"]),
        (["preprocess", "b", "--num-workers", "-1"], ["num_workers", "greater than or equal to 0"]),
        (["preprocess", "b", "--from", "a", "--tolerance", "-1"], ["tolerance", "greater than or equal to 0"]),
        (["preprocess", "b", "--tolerance", "1e-3"], ["--tolerance", "--from"]),
        (["split-edges", "b", "o", "--set", "train_share=0.8"], ["train_share and validation_share"]),
        (
            ["evaluate", "e", "--bundle", "b", "--task", "links", "--set", "links.features=sum"],
            ["links.features", "l2"],
        ),
        (["index", "e", "--set", "links=1"], ["links", "greater than or equal to 4"]),
        (["ingest", "--edges", "e", "--npz", "n", "o"], ["one graph", "--edges --npz"]),
        (["ingest", "--npz", "n", "--label", "y", "o"], ["--label", "--npz"]),
        (["ingest", "--edges", "e", "--directed", "--reverse", "o"], ["direction"]),
        (["jobs", "list", "--server", "nowhere"], ["server address", "nowhere"]),
        (["jobs", "submit", "train", "--label", "x"], ["--label"]),
        (["jobs", "submit", "train", "--graph", "graph_x", "--label-column", "y"], ["no tables", "--graph"]),
    ],
)
def test_bad_usage_ends_with_2_and_names_the_option(
    arguments: list[str], words: list[str], rgrl: Callable[..., tuple[int, str, str]]
) -> None:
    code, out, err = rgrl(*arguments)
    assert (code, out) == (2, "")
    assert [word for word in words if word not in err] == [], err
    code, out, _ = rgrl(*arguments, "--json")
    assert (code, json.loads(out)["error"]["code"]) == (2, "usage_invalid")


@pytest.mark.parametrize(
    "arguments", [["train"], ["nonsense"], ["evaluate", "e", "--task", "edges"], ["serve", "--port", "x"]]
)
def test_what_is_no_command_ends_with_2(arguments: list[str], rgrl: Callable[..., tuple[int, str, str]]) -> None:
    assert rgrl(*arguments)[0] == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["jobs", "submit", "pipline"], ["'kind': 'pipline' is not one of", "'pipeline'. Did you mean 'pipeline'?"]),
        (["serve", "--port", "x"], ["must be a whole number."]),
    ],
)
def test_an_argument_is_refused_in_plain_words(
    arguments: list[str], words: list[str], rgrl: Callable[..., tuple[int, str, str]]
) -> None:
    code, _, err = rgrl(*arguments)
    assert (code, [word for word in words if word not in err], "Value error" in err) == (2, [], False), err


def test_settings_are_typed_by_their_model(
    tmp_path: Path, rgrl: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    specs: list[tuple[str, dict[str, Any]]] = []

    def note(stage: str, spec: dict[str, Any], _: object) -> stages.StageOutcome:
        specs.append((stage, spec))
        return stages.StageOutcome(0, {}, None, "")

    monkeypatch.setattr(stages, "run_stage", note)
    options = ("optimizer.lr=5e-3", "run.epochs=7", "encoder.layers=[8,4]", "run.device=cpu", "batch.fan_out=null")
    sets = [part for option in options for part in ("--set", option)]
    code, _, err = rgrl("train", tmp_path / "b", tmp_path / "o", "--preset", "cora", *sets)
    assert code == 0, err
    [(stage, spec)] = specs
    chosen = spec["settings"]
    assert stage == "train"
    assert (chosen["optimizer"]["lr"], chosen["run"]["epochs"], chosen["encoder"]["layers"]) == (5e-3, 7, [8, 4])
    # What the preset says and no option overrules.
    assert (chosen["anchors"]["num_global"], chosen["augment"]["drop_feature_1"]) == (128, 0.3)
    assert spec["work"] == str(tmp_path / ".o.work")


def test_a_split_column_is_read_and_cut_by(tmp_path: Path, rgrl: Callable[..., tuple[int, str, str]]) -> None:
    nodes = pa.table({"id": [1, 2, 3, 4], "x": [0.5, 1.5, 2.5, 3.5], "part": ["train", "train", "val", None]})
    given = tables(tmp_path, nodes=nodes)
    assert rgrl("ingest", *given, tmp_path / "whole")[0] == 0
    code, _, err = rgrl("induce", tmp_path / "whole", tmp_path / "cut")
    assert (code, "no published split" in err, "split column" in err) == (3, True, True), err
    assert rgrl("ingest", *given, "--split", "part", tmp_path / "parted")[0] == 0
    told = rgrl("ingest", *given, "--split", "part", tmp_path / "parted")[1]
    assert re.search(r"^split\.train +2 *$", told, re.MULTILINE), told
    code, out, err = rgrl("induce", tmp_path / "parted", tmp_path / "cut", "--json")
    assert (code, json.loads(out)["counts"]["nodes"]) == (0, 2), err
    split = {"train": 2, "validation": 1, "test": 0}
    assert json.loads(out)["cut_from"] == {"nodes": 4, "labels": None, "split": split}
    assert rgrl("ingest", "--npz", "g.npz", "--split", "part", tmp_path / "other")[0] == 2


def test_preprocess_keeps_rows_of_the_graph_before(tmp_path: Path, rgrl: Callable[..., tuple[int, str, str]]) -> None:
    arguments, old, new = tables(tmp_path), tmp_path / "old", tmp_path / "new"
    for bundle in (old, new):
        assert rgrl("ingest", *arguments, bundle)[0] == 0
    code, _, err = rgrl("preprocess", new, "--from", old)
    assert code == 3
    assert f"rgrl preprocess {old}" in err
    assert rgrl("preprocess", old, "--threads", "1")[0] == 0
    code, out, err = rgrl("preprocess", new, "--from", old, "--tolerance", "1e-3", "--threads", "1", "--json")
    assert code == 0, err
    code, _, err = rgrl("preprocess", new, "--from", old, "--set", "ppr.exact_arcs=0", "--set", "ppr.epsilon=0.01")
    assert code == 2
    given, expected = (next(line for line in err.splitlines() if word in line) for word in ("given:", "expected:"))
    assert ("ppr.epsilon = 0.01, ppr.exact_arcs = 0" in given, "ppr.exact_arcs = 1000000" in expected) == (True, True)
    assert "same ppr settings" in expected
    assert "ppr setting" in rgrl("preprocess", "--help")[1]
    previous = json.loads(out)["ppr"]["previous"]
    assert (previous["kept"], previous["recomputed"], previous["tolerance"]) == (3, 0, 1e-3)


def test_index_runs_and_missing_artefacts_end_with_3(tmp_path: Path, rgrl: Callable[..., tuple[int, str, str]]) -> None:
    path = write_set(tmp_path / "set", np.random.default_rng(0).standard_normal((300, 8)).astype(np.float32))
    code, out, err = rgrl("index", path, "--kind", "hnsw", "--set", "recall_queries=50", "--json")
    assert code == 0, err
    assert json.loads(out)["recall"] == {"k": 10, "queries": 50, "value": 1.0}
    code, out, _ = rgrl("index", path, "--kind", "hnsw", "--set", "recall_queries=50")
    told = dict(line.split(None, 1) for line in out.splitlines())
    assert {name: told[name].strip() for name in ("path", "index", "rows", "dim", "recall@10")} == {
        "path": str(path / "index"),
        "index": "hnsw",
        "rows": "300",
        "dim": "8",
        "recall@10": "1",
    }
    assert not re.search(r"[0-9a-f]{32}", out), "hashes are for --json"
    assert rgrl("index", tmp_path / "none")[0] == 3
    assert rgrl("evaluate", tmp_path / "none")[0] == 3


@pytest.mark.parametrize(
    ("command", "name", "remedy"),
    [
        ("preprocess", "graph.npz", "rgrl ingest --npz {} OUT"),
        ("preprocess", "edges.parquet", "rgrl ingest --edges {} OUT"),
        ("preprocess", "folder", "rgrl ingest --nodes NODES --edges EDGES OUT"),
        ("preprocess", "nothing", "rgrl ingest --nodes NODES --edges EDGES OUT"),
        ("induce", "graph.npz", "rgrl ingest --npz {} OUT"),
        ("split-edges", "graph.npz", "rgrl ingest --npz {} OUT"),
        ("train", "graph.npz", "rgrl ingest --npz {} OUT"),
    ],
)
def test_what_is_no_bundle_is_told_with_how_to_make_one(
    tmp_path: Path, rgrl: Callable[..., tuple[int, str, str]], command: str, name: str, remedy: str
) -> None:
    path = tmp_path / name
    if name == "folder":
        path.mkdir()
    elif name != "nothing":
        path.touch()
    code, _, err = rgrl(command, path, *([] if command == "preprocess" else [tmp_path / "out"]))
    assert (code, "a whole graph bundle" in err, f"`{remedy.format(path)}`" in err) == (3, True, True), err


SLOW_STAGE = """
import sys, time
from preprocessing.stage import run_stage
def slow(spec, emit):
    emit.progress(1, 100, "naps")
    print("said on the way", flush=True)
    if spec.get("die"):
        import os
        os.kill(os.getpid(), 9)
    if spec.get("raise"):
        from preprocessing.errors import RgrlError
        kinds = {"known": RgrlError("no good", given="7", remedy="mend it"), "unknown": TypeError("no good")}
        raise kinds[spec["raise"]]
    if spec.get("deaf"):
        import signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        emit.metrics(2, {})
        return {"naps": 2}
    while True:
        time.sleep(0.01)
sys.exit(run_stage({"index": slow}, sys.argv[1:]))
"""


@pytest.fixture
def slow_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    script = tmp_path / "slow.py"
    script.write_text(SLOW_STAGE)
    monkeypatch.setattr(stages, "stage_command", lambda stage: [sys.executable, str(script), stage])
    return script


def test_signals_reach_the_stage_and_its_exit_code_comes_back(slow_stage: Path) -> None:
    def interrupt(event: dict[str, Any]) -> None:
        if event["event"] == "progress":
            os.kill(os.getpid(), signal.SIGTERM)

    outcome = stages.run_stage("index", {}, interrupt)
    assert outcome.exit_code == 130
    assert outcome.error is not None
    assert outcome.error["code"] == "interrupted"
    assert "said on the way" in outcome.log
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", ["metrics", "result"])
def test_a_signal_is_heeded_where_the_stage_ends_well_all_the_same(
    slow_stage: Path, number: signal.Signals, moment: str
) -> None:
    """It came too late for the stage: whoever would start the next one must still hear of it."""

    def interrupt(event: dict[str, Any]) -> None:
        if event["event"] == moment:
            os.kill(os.getpid(), number)

    outcome = stages.run_stage("index", {"deaf": True}, interrupt)
    assert (outcome.exit_code, outcome.summary) == (130, {"naps": 2})
    assert outcome.error is not None
    assert outcome.error["message"] == f"interrupted by {number.name}"


def test_a_stage_that_is_killed_is_a_failure_with_its_log(slow_stage: Path) -> None:
    outcome = stages.run_stage("index", {"die": True}, lambda _: None)
    assert (outcome.exit_code, outcome.error, outcome.summary) == (1, None, None)
    assert "said on the way" in outcome.log


@pytest.mark.parametrize("kind", ["known", "unknown"])
def test_a_failure_with_its_log_is_told_once(
    slow_stage: Path, kind: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(typer.Exit) as ended:
        run_here("index", {"raise": kind}, as_json=False)
    err = capsys.readouterr().err
    assert ended.value.exit_code == 1
    assert "said on the way" in err
    assert ("Traceback" in err) == (kind == "unknown")
    # A traceback quotes the line that raised.
    assert len([line for line in err.splitlines() if "no good" in line and "kinds" not in line]) == 1, err
    assert err.count("remedy: ") == 1


def test_a_stage_does_not_outlive_a_command_that_is_killed(
    tmp_path: Path, spawn: Callable[..., subprocess.Popen[Any]]
) -> None:
    script = tmp_path / "slow.py"
    script.write_text(SLOW_STAGE)
    command = f"""
import sys
from service.client import Client
from service.jobs import stages
stages.stage_command = lambda stage: [sys.executable, {str(script)!r}, stage]
stages.run_stage("index", {{}}, lambda event: print(event["event"], flush=True))
"""
    process = spawn([sys.executable, "-c", command], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "progress\n"
    [stage] = psutil.Process(process.pid).children()
    process.kill()
    stage.wait(30)


def test_ctrl_c_ends_a_command_with_130(tmp_path: Path, spawn: Callable[..., subprocess.Popen[Any]]) -> None:
    path = write_set(tmp_path / "set", np.random.default_rng(0).standard_normal((200_000, 32)).astype(np.float32))
    process = spawn(
        [sys.executable, "-m", "service.cli", "index", str(path), "--kind", "hnsw"],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    # The build folder appears once the stage is at work, which handles signals by then.
    while not list(path.glob(".index.partial")):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "interrupted by SIGINT" in err
    assert not (path / "index").exists()


def test_keys_are_made_listed_and_revoked(tmp_path: Path, rgrl: Callable[..., tuple[int, str, str]]) -> None:
    code, out, _ = rgrl("keys", "create", "ops", "--scope", "admin", "--home", tmp_path, "--json")
    made = json.loads(out)
    assert (code, made["scopes"]) == (0, ["admin"])
    assert rgrl("keys", "create", "reader", "--home", tmp_path)[1].startswith("rgrl_")
    listed = json.loads(rgrl("keys", "list", "--home", tmp_path, "--json")[1])
    assert [key["name"] for key in listed] == ["ops", "reader"]
    assert made["key"] not in json.dumps(listed)
    assert rgrl("keys", "revoke", made["id"], "--home", tmp_path)[0] == 0
    assert rgrl("keys", "revoke", made["id"], "--home", tmp_path)[0] == 1
    assert "reader" in rgrl("keys", "list", "--home", tmp_path)[1]


@pytest.mark.parametrize("command", [["list"], ["revoke", "key_1"]])
def test_keys_of_no_home_make_none(
    tmp_path: Path, rgrl: Callable[..., tuple[int, str, str]], command: list[str]
) -> None:
    (tmp_path / "empty").mkdir()
    for home in (tmp_path / "none", tmp_path / "empty"):
        code, out, err = rgrl("keys", *command, "--home", home)
        assert (code, out, "no home here" in err, str(home) in err, "--home" in err) == (2, "", True, True, True), err
    assert [path.name for path in tmp_path.rglob("*")] == ["empty"]


def test_a_key_is_revoked_by_a_name_that_is_its_alone(
    tmp_path: Path, rgrl: Callable[..., tuple[int, str, str]]
) -> None:
    def made(name: str) -> str:
        key: str = json.loads(rgrl("keys", "create", name, "--home", tmp_path, "--json")[1])["id"]
        return key

    def revoked(ref: str) -> tuple[int, str, str]:
        return rgrl("keys", "revoke", ref, "--home", tmp_path, "--json")

    first, second = made("reader"), made("reader")
    code, out, _ = revoked("reader")
    assert (code, first in out, second in out) == (2, True, True)
    assert json.loads(revoked(first)[1]) == {"revoked": first}
    assert json.loads(revoked("reader")[1]) == {"revoked": second}
    assert revoked("reader")[0] == 1
    # A key whose name is another's id does not stand in its way.
    third = made("writer")
    made(third)
    assert json.loads(revoked(third)[1]) == {"revoked": third}


@pytest.mark.parametrize("terminal", [False, True])
def test_serve_says_where_in_a_line_like_the_others(
    tmp_path: Path, spawn: Callable[..., subprocess.Popen[Any]], terminal: bool
) -> None:
    reads, writes = os.openpty() if terminal else os.pipe()
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "service.cli", "serve", "--home", str(tmp_path / "home"), "--port", str(port)]
    server = spawn(command, stdout=writes, stderr=writes if not terminal else subprocess.DEVNULL)
    os.close(writes)
    said: list[str] = []
    with open(reads, encoding="utf-8", errors="replace") as lines:  # noqa: PTH123 (a descriptor)
        for line in lines:
            said.append(line)
            if str(port) in line:
                break
        if terminal:
            assert said == [f"rgrl serves http://127.0.0.1:{port} from {tmp_path / 'home'}; stop it with Ctrl-C\n"]
        else:
            told = [json.loads(line) for line in said][-1]
            assert (told["event"], told["url"]) == ("serving", f"http://127.0.0.1:{port}")
        server.terminate()
        assert server.wait(30) in (0, -signal.SIGTERM)


def test_serve_refuses_an_open_address_without_keys(tmp_path: Path, rgrl: Callable[..., tuple[int, str, str]]) -> None:
    code, _, err = rgrl("serve", "--home", tmp_path, "--host", "0.0.0.0", "--port", 8001)
    assert (code, "--insecure" in err) == (2, True)


def test_doctor_names_what_is_there(tmp_path: Path, rgrl: Callable[..., tuple[int, str, str]]) -> None:
    code, out, _ = rgrl("doctor", "--home", tmp_path / "home", "--json")
    found = {finding["name"]: finding for finding in json.loads(out)}
    assert code == 0, out
    assert {"python", "torch", "faiss-cpu", "/dev/shm", "disk", "sampler", "cuda"} <= set(found)
    assert found["disk"]["detail"].endswith(str(tmp_path))


@pytest.mark.parametrize("name", ["pyg-lib", "torch-sparse"])
def test_doctor_says_how_to_get_a_sampler_that_is_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def installed(package: str) -> str:
        if package == name:
            raise PackageNotFoundError(package)
        return "1.2.3"

    monkeypatch.setattr("service.cli.doctor.version", installed)
    found = {finding.name: finding for finding in examine(tmp_path)}
    other = {"pyg-lib": "torch-sparse", "torch-sparse": "pyg-lib"}[name]
    absent, present = found[f"sampler {name}"], found[f"sampler {other}"]
    assert (absent.state, present.state, present.detail, present.remedy) == ("ok", "ok", "1.2.3", None)
    assert absent.remedy is not None
    assert absent.remedy.startswith("pip install ")


def test_help_imports_nothing_heavy() -> None:
    script = "import sys, service.cli; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    heavy = {
        "torch",
        "ray",
        "numba",
        "numpy",
        "pyarrow",
        "pydantic",
        "fastapi",
        "sqlalchemy",
        "faiss",
        "rich",
        "httpx2",
    }
    assert heavy & set(done.stdout.split()) == set()


@pytest.mark.parametrize(
    ("setting", "expected"), [("run.nonsense=3", "epochs"), ("optimiser.lr=3", "optimizer"), ("nonsense=1", "encoder")]
)
def test_an_unknown_setting_is_told_its_siblings(
    tmp_path: Path, rgrl: Callable[..., tuple[int, str, str]], setting: str, expected: str
) -> None:
    code, _, told = rgrl("train", str(tmp_path), str(tmp_path / "out"), "--set", setting)
    assert code == 2
    assert "unknown" in told
    assert expected in told.split("expected:")[1]


@pytest.mark.parametrize(
    ("setting", "meant"),
    [("optimiser.lr=3", "optimizer"), ("optimizer.epochs=3", "run.epochs"), ("lr=1", "optimizer.lr")],
)
def test_an_unknown_setting_is_told_what_is_meant(
    tmp_path: Path, rgrl: Callable[..., tuple[int, str, str]], setting: str, meant: str
) -> None:
    told = rgrl("train", str(tmp_path), str(tmp_path / "out"), "--set", setting)[2]
    assert f"`{meant}`" in told.split("remedy:")[1]
