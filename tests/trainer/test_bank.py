"""The bank of target embeddings, against the loss written as loops and against steps that compute every anchor."""

import copy
import math
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from training_bundles import Recorder, make_bundle, settings_document

from preprocessing.bundle import Bundle
from preprocessing.errors import UsageError
from trainer import bank as bank_module
from trainer import checkpoint, loop
from trainer.anchors import Anchors
from trainer.bank import FILES, Bank
from trainer.features import load_features
from trainer.launch import InProcess
from trainer.mini_batch import MiniBatch
from trainer.objectives import new_objective
from trainer.settings import TrainSettings
from trainer.train import train

CPU = torch.device("cpu")
PLACES = ["disk", "device"]
MINI = {"mode": "mini", "size": 7, "fan_out": [-1, -1]}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return make_bundle(tmp_path_factory.mktemp("bank"))


def chosen(bank: str = "disk", **parts: dict) -> TrainSettings:
    parts = {"batch": MINI, **parts}
    return TrainSettings.model_validate(
        settings_document(**{**parts, "anchors": {"bank": bank, **parts.get("anchors", {})}})
    )


def source(bundle: Bundle, settings: TrainSettings, **place: int) -> MiniBatch:
    return MiniBatch(bundle, load_features(bundle, settings.features), settings, **place, device=CPU)


def bank_for(bundle: Bundle, work: Path, place: str = "disk", width: int = 8) -> Bank:
    return Bank(place, work, (bundle.num_nodes, 2, width), CPU)


def unit_rows(seed: int, *shape: int) -> torch.Tensor:
    rows = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(rows, dim=-1)


def kl(student: list[float], teacher: list[float]) -> float:
    """KL(teacher‖student) of two rows of logits."""
    logs = [[x - math.log(math.fsum(math.exp(y - max(r)) for y in r)) - max(r) for x in r] for r in (student, teacher)]
    return math.fsum(math.exp(t) * (t - s) for s, t in zip(*logs, strict=True))


@pytest.mark.parametrize("order", ["random", "near"])
def test_a_step_with_a_bank_is_the_methods_loss_written_as_loops(bundle: Bundle, tmp_path: Path, order: str) -> None:
    """Anchors among the queries are computed; others are read, from the row of the view that is compared with."""
    settings = chosen(batch={**MINI, "order": order, "chunk": 3})
    steps, model, bank = source(bundle, settings), new_objective(12, settings), bank_for(bundle, tmp_path)
    stored = unit_rows(3, bundle.num_nodes, 2, 8)
    bank.store(np.arange(bundle.num_nodes), stored, 0)
    anchors = Anchors(bundle, settings.anchors)
    degree, met = bundle.symmetric.degrees(), {"fresh": 0, "read": 0}
    for number in range(steps.num_steps):
        step = bank.served(steps.step(1, number), steps.num_steps + number)
        queries = steps.queries(1, number)[0]
        twin = copy.deepcopy(model)
        with torch.no_grad():
            unit = torch.nn.functional.normalize
            views = [(view.features, view.adjacencies) for view in step.views]
            fresh = [unit(twin.target(*view)).double() for view in views]
            z = [unit(twin.predictor(twin.online(*view)[: len(queries)])).double() for view in views]
            _, global_part, local_part = (float(part) for part in model(step))
        # The queries are all that is computed.
        assert [len(h) for h in fresh] == [len(queries)] * 2

        def target(node: int, view: int, asked: list[int], fresh: list[torch.Tensor]) -> torch.Tensor:
            met["fresh" if node in asked else "read"] += 1
            return fresh[view][asked.index(node)] if node in asked else stored[node, view].double()

        shared = anchors.draw_global(step.draw).tolist()
        asked, globals_, locals_, counted = queries.tolist(), 0.0, 0.0, 0
        for i, query in enumerate(asked):
            near = [int(j) for j in bundle.ppr(3).neighbors[query] if j >= 0] if degree[query] else []
            counted += bool(near)
            for a, b in ((0, 1), (1, 0)):
                for nodes, temperature in ((shared, 0.01), (near, 1.0)):
                    h = [target(node, b, asked, fresh) for node in nodes]
                    part = kl([float(z[a][i] @ x) / 0.1 for x in h], [float(fresh[b][i] @ x) / temperature for x in h])
                    if nodes is shared:
                        globals_ += part / len(asked)
                    elif near:
                        locals_ += part
        assert global_part == pytest.approx(globals_, rel=5e-3)
        assert local_part == pytest.approx(locals_ / counted, rel=5e-3)
    assert min(met.values()) > 20


@pytest.mark.parametrize("place", PLACES)
def test_a_bank_of_what_would_be_computed_gives_the_loss_without_one(
    bundle: Bundle, tmp_path: Path, place: str
) -> None:
    """Of networks that stay as they are and drop nothing an embedding never changes: float16 is all the difference."""
    keep = dict.fromkeys(("drop_feature_1", "drop_feature_2", "drop_edge_1", "drop_edge_2"), 0.0)
    plain, banked = (chosen(bank, augment=keep) for bank in ("none", place))
    model, bank = new_objective(12, plain), bank_for(bundle, tmp_path, place)
    without, with_bank = source(bundle, plain), source(bundle, banked)
    for layer in model.online.layers:
        torch.nn.init.normal_(layer.weight, generator=torch.Generator().manual_seed(0))
    model.eval()
    read = []
    with torch.no_grad():
        for number in range(3 * without.num_steps):
            place_in_run = divmod(number, without.num_steps)
            step = bank.served(with_bank.step(*place_in_run), number)
            losses = model(step)
            bank.store(np.concatenate(step.bank.asked), model.query_targets_QVD, number)
            torch.testing.assert_close(losses, model(without.step(*place_in_run)), rtol=2e-3, atol=1e-4)
            assert losses[1] > 0.01
            read.append(len(step.bank.read))
    # Nothing to read at first; everything once every node was a query.
    assert read[0] == 0
    assert read[1] < min(read[without.num_steps :])


def test_what_was_not_a_query_yet_is_computed_and_ages_count_steps(bundle: Bundle, tmp_path: Path) -> None:
    settings = chosen(anchors={"num_global": 9})
    steps, bank = source(bundle, settings), bank_for(bundle, tmp_path)
    last_asked: dict[int, int] = {}
    for number in range(3 * steps.num_steps):
        place = divmod(number, steps.num_steps)
        step, (queries,) = steps.step(*place), steps.queries(*place)
        assert set(step.bank.read) <= last_asked.keys() - set(queries.tolist())
        bank.served(step, number)
        ages = [number - last_asked[node] for node in step.bank.read.tolist()]
        if ages:
            expected = {"anchor_age_mean": float(np.mean(ages)), "anchor_age_max": max(ages)}
            assert bank.staleness() == pytest.approx(expected)
            assert max(ages) < 2 * steps.num_steps
        assert bank.staleness() == {}
        seeds, computed = step.views[0].adjacencies[-1].pattern.num_rows, len(queries)
        # Those it knows of are not computed, all others are.
        whole = source(bundle, chosen("none", anchors={"num_global": 9})).step(*place)
        assert seeds == whole.views[0].adjacencies[-1].pattern.num_rows - len(step.bank.read)
        assert place[0] == 0 or seeds == computed
        bank.store(queries, unit_rows(number, len(queries), 2, 8), number)
        last_asked |= dict.fromkeys(queries.tolist(), number)


def test_workers_store_the_same_and_read_their_own(bundle: Bundle) -> None:
    settings = chosen()
    pair: list[MiniBatch] = [source(bundle, settings, rank=rank, world_size=2) for rank in (0, 1)]
    for place in [(0, 1), (1, 0)]:
        one, other = (steps.step(*place) for steps in pair)
        assert [part.tolist() for part in one.bank.asked] == [part.tolist() for part in other.bank.asked]
        assert [part.tolist() for part in one.bank.asked] == [part.tolist() for part in pair[0].queries(*place)]
        assert one.bank.read.tolist() != other.bank.read.tolist()
    # The other worker's queries are anchors like any other node: they are read.
    assert set(other.bank.read) & set(one.bank.asked[0])


def test_a_bank_is_saved_and_loaded_in_blocks_between_disk_and_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bank_module, "BLOCK_BYTES", 2 * 2 * 8 * 7)
    shape, rows = (40, 2, 8), unit_rows(0, 40, 2, 8)
    for place, other in (PLACES, PLACES[::-1]):
        folder = tmp_path / place
        folder.mkdir()
        one = Bank(place, folder, shape, CPU)
        assert list(folder.iterdir()) == []
        one.store(np.arange(30), rows[:30], 5)
        one.save(folder)
        assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
        assert np.array_equal(np.load(folder / FILES[0])[:30], rows[:30].half().numpy())
        assert np.load(folder / FILES[1]).tolist() == [5] * 30 + [-1] * 10
        two = Bank(other, folder, shape, CPU)
        two.load(folder)
        (tmp_path / "again").mkdir(exist_ok=True)
        two.save(tmp_path / "again")
        for name in FILES:
            assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()


def test_a_bank_on_disk_takes_memory_for_what_is_read_and_written_alone(tmp_path: Path) -> None:
    nodes, rows = 100_000, unit_rows(0, 200, 2, 32)
    tracemalloc.start()
    bank = Bank("disk", tmp_path, (nodes, 2, 32), CPU)
    bank.store(np.arange(0, nodes, 500), rows, 0)
    bank.save(tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (tmp_path / FILES[0]).stat().st_size > 12_000_000
    assert peak < 100_000


def test_a_run_reports_how_old_anchors_are(bundle: Bundle, tmp_path: Path) -> None:
    recorder = Recorder()
    loop.run(loop.Job(bundle.path, tmp_path, chosen(), "print"), InProcess(CPU, recorder))
    values = [line["values"] for line in recorder.of("metrics")]
    steps = source(bundle, chosen()).num_steps
    assert len(values) == 4
    assert values[0]["anchor_age_max"] < steps
    for later in values[1:]:
        assert 1 <= later["anchor_age_mean"] <= later["anchor_age_max"] < 2 * steps
    # A node's last turn as a query is an epoch ago in the mean, less those of this epoch: two thirds of one.
    assert 0.4 * steps < values[-1]["anchor_age_mean"] < 1.2 * steps
    without = Recorder()
    loop.run(loop.Job(bundle.path, tmp_path / "..", chosen("none"), "print"), InProcess(CPU, without))
    assert "anchor_age_mean" not in without.of("metrics")[-1]["values"]
    last = [run.of("metrics")[-1]["values"]["loss"] for run in (recorder, without)]
    assert last[0] == pytest.approx(last[1], rel=0.3)


def test_a_checkpoint_whose_bank_is_damaged_is_passed_over(bundle: Bundle, tmp_path: Path) -> None:
    loop.run(loop.Job(bundle.path, tmp_path, chosen(), "print"), InProcess(CPU, Recorder()))
    last = checkpoint.newest(tmp_path, "print")
    content = bytearray((last / "bank.npy").read_bytes())
    content[-1] ^= 1
    (last / "bank.npy").write_bytes(content)
    before = checkpoint.newest(tmp_path, "print")
    assert checkpoint.progress_of(before).steps < checkpoint.progress_of(last).steps


@pytest.mark.parametrize(
    ("parts", "option"),
    [({"anchors": {"bank": "disk"}}, "anchors.bank"), ({"batch": {"order": "near"}}, "batch.order")],
)
def test_what_is_for_mini_batches_is_refused_in_full_batch(
    bundle: Bundle, tmp_path: Path, parts: dict[str, Any], option: str
) -> None:
    """Where the settings say so, and where the size of the graph does."""
    with pytest.raises(ValueError, match=f"{option} is for mini-batches"):
        TrainSettings.model_validate(settings_document(**parts))
    parts["batch"] = {"mode": "auto", **parts.get("batch", {})}
    spec = {"bundle": str(bundle.path), "out": str(tmp_path / "out"), "work": str(tmp_path / "work")}
    with pytest.raises(UsageError, match=f"{option} is for mini-batches") as error:
        train(spec | {"settings": settings_document(**parts)}, Recorder())
    assert error.value.remedy
    assert error.value.pointer == "/settings/" + option.replace(".", "/")
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize("objective", ["bgrl", "grace", "gca", "cca_ssg", "dgi"])
def test_a_bank_is_refused_where_there_are_no_anchors(objective: str) -> None:
    document = settings_document(batch=MINI, anchors={"bank": "device"})
    with pytest.raises(ValueError, match="has no anchors"):
        TrainSettings.model_validate(document | {"objective": objective})
