"""What the demo shows in the end: quality beside baselines, collapse, recall, and a few neighbour queries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from preprocessing.bundle import Bundle
from service.client import Client, Embedding, Neighbors

__all__ = ["figures", "print_report"]

QUERIES = 3
SHOWN = 5
ROWS = {
    "raw_features": "raw features",
    "ppr_smoothed": "PPR-smoothed features",
    "random_encoder": "random encoder",
}


def figures(client: Client, embedding: Embedding) -> dict[str, Any]:
    """Everything the report prints, as JSON."""
    report = json.loads((Path(embedding.path) / "report.json").read_text(encoding="utf-8"))
    probe = report["probe"]
    accuracy = {}
    if probe is not None:
        scores = {**probe["baselines"], "rgrl": probe["trained"]["last"]}
        accuracy = {
            name: {"mean": score["test_mean"], "std": score["test_std"]} for name, score in scores.items() if score
        }
    index = embedding.index or {}
    graph = client.graph(embedding.graph)
    return {
        "graph": {"id": graph.id, "name": graph.name, "counts": graph.counts, "bundle": graph.bundle},
        "embedding": embedding.id,
        "dim": embedding.counts["dim"],
        "accuracy": accuracy,
        "effective_rank": report["collapse"]["effective_rank"],
        "notes": report["notes"],
        "index": {"kind": index.get("index"), "recall": index.get("recall")},
        "queries": _queries(client, embedding, Bundle(graph.bundle)),
    }


def _queries(client: Client, embedding: Embedding, bundle: Bundle) -> list[dict[str, Any]]:
    """A few nodes spread over the graph and their neighbours, the last asked for strangers only."""
    rows = np.linspace(0, bundle.num_nodes - 1, QUERIES + 2).astype(np.int64)[1:-1]
    ids = bundle.ids.external(rows)
    asked = [(node, False) for node in ids] + [(ids[-1], True)]
    shown = []
    for node, strangers in asked:
        [answer] = client.neighbors(embedding.id, [{"id": node}], SHOWN, exclude_connected=strangers)
        shown.append(
            {"id": node, "label": _label(bundle, node), "exclude_connected": strangers} | _answer(bundle, answer)
        )
    return shown


def _answer(bundle: Bundle, answer: Neighbors) -> dict[str, Any]:
    results = [{**found.model_dump(), "label": _label(bundle, found.id)} for found in answer.results]
    return {"strategy": answer.strategy, "results": results}


def _label(bundle: Bundle, node: str) -> str | None:
    row = bundle.ids.row(node)
    if bundle.labels is None or row is None or bundle.labels.codes[row] < 0:
        return None
    return bundle.labels.names[int(bundle.labels.codes[row])]


def print_report(report: dict[str, Any]) -> None:
    """The tables, on standard output."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    counts = report["graph"]["counts"]
    console.print(
        f"\n[bold]{report['graph']['name']}[/]: {counts['nodes']:,} nodes, {counts['edges']:,} edges, "
        f"embedded in {report['dim']} dimensions, {report['seconds']} s in all\n"
    )
    if report["accuracy"]:
        table = Table("linear probe on", "accuracy", "± deviation", box=None, padding=(0, 3, 0, 0))
        for name, label in {**ROWS, "rgrl": "[bold]RGRL[/]"}.items():
            if name in report["accuracy"]:
                score = report["accuracy"][name]
                table.add_row(label, f"{100 * score['mean']:.2f} %", f"{100 * score['std']:.2f}")
        console.print(table)
    recall = report["index"]["recall"] or {}
    console.print(f"\neffective rank  {report['effective_rank']:.1f} of {report['dim']}")
    console.print(f"recall@{recall.get('k')} of the {report['index']['kind']} index  {recall.get('value', 0):.4f}")
    for note in report["notes"]:
        console.print(f"note: {note}", highlight=False)
    for query in report["queries"]:
        console.print(_sentence(query), highlight=False)


def _sentence(query: dict[str, Any]) -> str:
    what = "nearest that it shares no edge with" if query["exclude_connected"] else "nearest"
    found = "  ".join(f"{_named(result)} {result['score']:.3f}" for result in query["results"])
    return f"\n{_named(query)}, {what} ({query['strategy']}):\n  {found}"


def _named(node: dict[str, Any]) -> str:
    return f"[bold]{node['id']}[/]" + ("" if node["label"] is None else f" ({node['label']})")
