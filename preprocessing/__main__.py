"""``python -m preprocessing ingest|induce|preprocess|generate SPEC.json``: a stage as a process of its own."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from preprocessing.stage import Emitter, run_stage

__all__: list[str] = []


# A stage's libraries are imported when it runs, so that none waits for another's.
def _ingest(spec: dict[str, Any], emitter: Emitter) -> Mapping[str, Any]:
    from preprocessing.ingest import ingest

    return ingest(spec, emitter)


def _induce(spec: dict[str, Any], emitter: Emitter) -> Mapping[str, Any]:
    from preprocessing.induced import induce

    return induce(spec, emitter)


def _preprocess(spec: dict[str, Any], emitter: Emitter) -> Mapping[str, Any]:
    from preprocessing.ppr import preprocess

    return preprocess(spec, emitter)


def _generate(spec: dict[str, Any], emitter: Emitter) -> Mapping[str, Any]:
    from preprocessing.generate import generate

    return generate(spec, emitter)


if __name__ == "__main__":
    stages = {"ingest": _ingest, "induce": _induce, "preprocess": _preprocess, "generate": _generate}
    sys.exit(run_stage(stages, sys.argv[1:]))
