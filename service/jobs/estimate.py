"""What a job will roughly take, from the counts of its graph: for a dry run.

The figures are sums of what each stage must hold, write and compute, at rates typical of one core, and of what its
process takes to start. Memory is what must stay resident: pages of mapped files, which the kernel may drop, are none of
it. They are meant to tell minutes from days and a laptop from a cluster; benchmarks/estimates.py sets them beside real
runs and holds them to a factor of two.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from preprocessing.bundle import DEGREE_WEIGHTS, PPR
from preprocessing.settings import GraphSettings
from service.jobs.graph_size import GraphSize, table_bytes
from service.search.embedding_set import PROJECTION
from service.search.index_settings import ProjectionSettings
from service.search.knn_index import KNN_INDEX
from trainer.settings import TrainSettings

__all__ = ["Estimate", "estimate"]

# Rates of one core of this machine, fitted to processor time of real runs (benchmarks/estimates.py).
FLOPS_PER_CORE = 5e10
SPARSE_FLOPS_PER_CORE = 5e9
# Of distances, and of products of small matrices.
SMALL_FLOPS_PER_CORE = 5e9
PPR_ROWS_PER_CORE = 1e4
# Rows times the arcs of the graph, where rows are solved until they are proved (``ppr.exact_arcs``): that takes some
# sweeps over all arcs for each. 600 rows a second of 200,000 arcs were measured, and 130 of 400,000 with hubs.
PPR_EXACT_ARCS_PER_CORE = 8e7
INGEST_BYTES_PER_S = 5e7
# Nodes that a mini-batch holds rows of for each of its queries, and that it computes every layer of.
HELD_A_QUERY = 25
COMPUTED_A_QUERY = 5
# Matrices of queries by anchors of both views, their gradients counted.
SIMILARITY_COPIES = 10
# Numbers of the vectors that one block of an exact search holds.
SCORED_AT_ONCE = 2**22
# Distances taken for each candidate that an HNSW build weighs.
HNSW_DISTANCES = 10
# Memory in MiB and seconds of a stage whose graph is next to nothing: imports, threads, kernels from their cache.
START = {
    "ingest": (120, 1.5),
    "append": (200, 1.5),
    "preprocess": (190, 2.3),
    "train": (380, 6.0),
    "embed": (300, 4.0),
    "evaluate": (370, 4.5),
    "index": (65, 0.6),
}
# Bytes to start with and for each point, seconds likewise, on one core, as measured with 128 numbers a point
# (t-SNE and PCA 2026-11-29, UMAP 2026-11-30, whose kernels compile in part every time); UMAP's neighbours come besides.
MAP = {"pca": (0, 32, 0.1, 5e-6), "tsne": (100 << 20, 60_000, 2.0, 5e-3), "umap": (300 << 20, 1_000, 17.0, 1e-3)}
# A node's: in a table of its own, and to be drawn by.
WEIGHT_BYTES = 60
PROBE_STEP_FLOPS = 6.0
NO_SIZE = "the graph is not ingested yet, and no file of this machine tells its size"


_Cost = tuple[float, float, float]


@dataclass(frozen=True)
class Estimate:
    """Bytes of memory at the peak, bytes written, seconds on this machine; None where ``basis`` says why not.

    ``home_bytes`` are written in the server's home, ``bundle_bytes`` in the graph's folder.
    """

    memory_bytes: int | None
    disk_bytes: int | None
    seconds: float | None
    basis: str
    home_bytes: int = 0
    bundle_bytes: int = 0


def estimate(
    stages: Iterable[str],
    spec: dict[str, Any],
    size: GraphSize | None,
    dim: int | None,
    cores: int,
    layers: list[int] | None = None,
    made: Collection[str] = (),
    compile_s: float = 0.0,
) -> Estimate:
    """Add up the stages of a job on a graph; ``dim`` is the width of the embedding set that it is about.

    ``layers`` are the widths of the encoder that it embeds by. What is ``made`` already (``service.jobs.kept``) its
    stages keep: it costs nothing. ``compile_s`` are the seconds that its kernels compile (``service.jobs.compiling``).
    """
    if size is None:
        return Estimate(None, None, None, NO_SIZE)
    dim = int(spec["train"]["encoder"]["layers"][-1]) if "train" in spec else dim or 0
    if layers is not None:
        spec = spec | {"embed": spec["embed"] | {"layers": layers}}
    spec = spec | {stage: spec[stage] | {"made": made} for stage in ("preprocess", "index") if stage in spec}
    parts = {stage: _stage(stage, size, spec.get(stage, {}), dim, cores) for stage in stages}
    written = int(sum(disk for _, disk, _ in parts.values()))
    in_bundle = int(sum(disk for stage, (_, disk, _) in parts.items() if stage in {"ingest", "preprocess"}))
    about = "by its source's files, not ingested yet: about " if size.guessed else ""
    kept = f"; there already: {', '.join(sorted(part.replace('_', ' ') for part in made))}" if made else ""
    compiled = f"; kernels to compile first, about {compile_s:.0f} s" if compile_s else ""
    return Estimate(
        int(max((memory for memory, _, _ in parts.values()), default=0)),
        written,
        round(sum(seconds for _, _, seconds in parts.values()) + compile_s, 1),
        f"{about}{size.nodes:,} nodes, {size.arcs:,} arcs, {size.columns:,} feature columns; "
        f"{cores} cores of {FLOPS_PER_CORE:.0e} flop/s{compiled}{kept}",
        written - in_bundle,
        in_bundle,
    )


def _ingest(size: GraphSize, _spec: dict[str, Any], _dim: int, _cores: int) -> _Cost:
    """Arcs are sorted and features copied within the memory that is the default; what is sorted is on disk."""
    memory = min(float(GraphSettings().memory), 2 * size.read_bytes + 32 * size.arcs)
    return memory, size.bytes + 24 * size.nodes, size.read_bytes / INGEST_BYTES_PER_S


def _append(size: GraphSize, spec: dict[str, Any], _dim: int, _cores: int) -> _Cost:
    """Old and new are written twice, sorted in between, within the memory that the settings allow."""
    source = spec["source"]
    tables = [source["edges"], source["nodes"], *source["relations"].values()]
    total = size.bytes + sum(table_bytes(table) for table in tables if table is not None)
    return min(float(spec["memory"]), 2 * total), 2 * total, total / INGEST_BYTES_PER_S


def _embed(size: GraphSize, spec: dict[str, Any], dim: int, cores: int) -> _Cost:
    """One pass of products and SpMM; a layer's rows are on disk, and the vectors there twice."""
    widths = spec["layers"]
    products = size.values * widths[0] + sum(size.nodes * a * b for a, b in pairwise(widths))
    disk = size.nodes * (4 * max(widths) + 9 * dim)
    seconds = 2 * (products / FLOPS_PER_CORE + size.arcs * sum(widths) / SPARSE_FLOPS_PER_CORE) / cores
    return size.bytes + 4 * size.nodes * max(widths), disk, seconds


def _stage(stage: str, size: GraphSize, spec: dict[str, Any], dim: int, cores: int) -> _Cost:
    """What grows with the graph, and the start."""
    memory, disk, seconds = _STAGES[stage](size, spec, dim, cores)
    held, start = START[stage]
    return memory + held * 2**20, disk, seconds + start


def _preprocess(size: GraphSize, spec: dict[str, Any], _dim: int, cores: int) -> _Cost:
    """Rows of K neighbours and scores; a push a row. Degree weights come beside them."""
    weights = 0 if DEGREE_WEIGHTS in spec["made"] else WEIGHT_BYTES * size.nodes
    if PPR in spec["made"]:
        return (size.bytes if weights else 0) + weights / 4, weights, 0.0
    threads = min((spec.get("threads") or cores) * max(spec.get("num_workers", 0), 1), cores)
    disk = size.nodes * (12 * spec["ppr"]["top_k"] + 40) + weights
    exact = size.arcs <= spec["ppr"]["exact_arcs"]
    rate = min(PPR_EXACT_ARCS_PER_CORE / max(size.arcs, 1), PPR_ROWS_PER_CORE) if exact else PPR_ROWS_PER_CORE
    return size.bytes + disk / 4, disk, size.nodes / (rate * threads)


def _train(size: GraphSize, spec: dict[str, Any], dim: int, cores: int) -> _Cost:
    """Two views, forward and backward online and forward on the target: seven passes of products and SpMM a step.

    At the end one pass more makes the embeddings.
    """
    settings = TrainSettings.model_validate(spec).for_graph(size.nodes)
    widths, hidden, full = settings.encoder.layers, settings.encoder.predictor_hidden, settings.batch.mode == "full"
    queries = size.nodes if full else min(settings.batch.size, size.nodes)
    held = size.nodes if full else min(HELD_A_QUERY * queries, size.nodes)
    computed = size.nodes if full else min(COMPUTED_A_QUERY * queries, size.nodes)
    steps: float = settings.epochs * size.nodes / queries
    if settings.run.max_steps is not None:
        steps = min(steps, settings.run.max_steps * settings.optimizer.accumulate * max(settings.run.num_workers, 1))
    products = size.values * widths[0] + sum(size.nodes * a * b for a, b in pairwise(widths))
    passes = 1 + 7 * steps * computed / size.nodes
    heads = 2 * dim * hidden + _compared(settings, queries) * dim
    multiplied = 2 * (passes * products + 6 * steps * queries * heads)
    summed = 2 * passes * size.arcs * sum(widths)
    seconds = (multiplied / FLOPS_PER_CORE + summed / SPARSE_FLOPS_PER_CORE) / cores
    activations = 4 * held * (12 * sum(widths) + 2 * hidden)
    similarities = 4 * SIMILARITY_COPIES * queries * settings.anchors.num_global if settings.uses_anchors else 0
    encoder = size.columns * widths[0] + sum(a * b for a, b in pairwise(widths))
    # Weights of both networks and Adam's two moments, in those that are kept and the one that is being written.
    checkpoint = 4 * (4 * encoder + 3 * 2 * dim * hidden)
    due = int(steps * queries / size.nodes) // settings.run.checkpoint_every
    kept = min(due, settings.run.keep_checkpoints) + 1
    memory, disk = size.bytes + activations + similarities, 9 * size.nodes * dim + kept * checkpoint
    # A bank is float16 of two views; two checkpoints have a copy each.
    bank = 4 * size.nodes * dim
    match settings.anchors.bank:
        case "device":
            memory, disk = memory + bank, disk + 2 * bank
        case "disk":
            disk += 3 * bank
    return memory, disk, seconds


def _compared(settings: TrainSettings, queries: int) -> int:
    """How many nodes each of a step's queries is compared with."""
    match settings.objective:
        case "rgrl":
            return settings.anchors.num_global + settings.anchors.num_local
        case "grace" | "gca":
            return 2 * queries
        case _:
            return 0


def _evaluate(size: GraphSize, spec: dict[str, Any], dim: int, cores: int) -> _Cost:
    """Logistic regression on each split, for the embeddings and three baselines of at most their width."""
    operations = PROBE_STEP_FLOPS * spec["splits"] * spec["steps"] * size.nodes * dim * (4 if spec["baselines"] else 1)
    return 12 * size.nodes * dim + size.bytes, 1e5, operations / (SMALL_FLOPS_PER_CORE * cores)


def _index(size: GraphSize, spec: dict[str, Any], dim: int, cores: int) -> _Cost:
    """The vectors again, with links; every node added weighs ``build_effort`` candidates (none in an exact index).
    The map comes after. Recall is measured against scores of all nodes, in blocks.
    """
    exact = spec["kind"] == "exact" or (spec["kind"] == "auto" and size.nodes <= 200_000)
    drawn = ProjectionSettings.model_validate(spec.get("projection", {}))
    indexed = 0 if KNN_INDEX in spec["made"] else size.nodes
    points = 0 if drawn.method == "none" or PROJECTION in spec["made"] else min(drawn.points, size.nodes)
    held = indexed * (4 * dim + (0 if exact else 8 * spec["links"]))
    scores = 4 * spec["recall_queries"] * min(indexed, SCORED_AT_ONCE // max(dim, 1))
    weighed = 0 if exact else HNSW_DISTANCES * spec["build_effort"]
    operations = 2 * (weighed + spec["recall_queries"]) * dim * indexed
    method = drawn.method_for(points)
    start_bytes, point_bytes, start_s, point_s = MAP[method]
    map_memory = (start_bytes + point_bytes * points if points else 0) + 4 * dim * points
    map_seconds = start_s + point_s * points if points else 0
    if method == "umap":
        map_seconds += 2 * points**2 * dim / (FLOPS_PER_CORE * cores)
    seconds = operations / (SMALL_FLOPS_PER_CORE * cores) + map_seconds
    return max(2 * held + scores, map_memory), (0 if exact else held) + 16 * points, seconds


_STAGES = {
    "ingest": _ingest,
    "append": _append,
    "embed": _embed,
    "preprocess": _preprocess,
    "train": _train,
    "evaluate": _evaluate,
    "index": _index,
}
