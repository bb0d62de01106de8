"""``python -m preprocessing STAGE SPEC.json``: a stage of ``STAGES`` as a process of its own."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

from preprocessing.stage import Emitter, run_stage

__all__: list[str] = []


# A stage's libraries are imported when it runs, so that none waits for another's.
def _ingest(spec: dict[str, Any], emitter: Emitter) -> Mapping[str, Any]:
    from preprocessing.ingest import ingest

    return ingest(spec, emitter)


def _append(spec: dict[str, Any], emitter: Emitter) -> Mapping[str, Any]:
    from preprocessing.append import append

    return append(spec, emitter)


def _induce(spec: dict[str, Any], emitter: Emitter) -> Mapping[str, Any]:
    from preprocessing.induced import induce

    return induce(spec, emitter)


def _preprocess(spec: dict[str, Any], emitter: Emitter) -> Mapping[str, Any]:
    from preprocessing.ppr import preprocess

    return preprocess(spec, emitter)


def _generate(spec: dict[str, Any], emitter: Emitter) -> Mapping[str, Any]:
    from preprocessing.generate import generate

    return generate(spec, emitter)


def _split_edges(spec: dict[str, Any], emitter: Emitter) -> Mapping[str, Any]:
    from preprocessing.edge_split import split_edges

    return split_edges(spec, emitter)


STAGES = {
    "ingest": _ingest,
    "append": _append,
    "induce": _induce,
    "preprocess": _preprocess,
    "generate": _generate,
    "split-edges": _split_edges,
}


def _stage(name: str, spec: dict[str, Any], emitter: Emitter) -> Mapping[str, Any]:
    from preprocessing.compiling import compiling_told

    with compiling_told(emitter):
        return STAGES[name](spec, emitter)


if __name__ == "__main__":
    sys.exit(run_stage({name: partial(_stage, name) for name in STAGES}, sys.argv[1:]))
