"""``python -m trainer train|embed|evaluate|export SPEC.json``: a stage as a process (``preprocessing.stage``)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

from preprocessing.stage import Emitter, run_stage
from trainer.process import tune_process

STAGES = {
    "train": "trainer.train",
    "embed": "trainer.embed",
    "evaluate": "trainer.evaluation.evaluate",
    "export": "trainer.export",
}


def _stage(name: str, spec: dict[str, Any], emitter: Emitter) -> Mapping[str, Any]:
    """Import a stage when it runs: one does not wait for what another needs."""
    from preprocessing.compiling import compiling_told

    with compiling_told(emitter):
        summary: Mapping[str, Any] = getattr(importlib.import_module(STAGES[name]), name)(spec, emitter)
    return summary


if __name__ == "__main__":
    tune_process()
    sys.exit(run_stage({name: partial(_stage, name) for name in STAGES}, sys.argv[1:]))
