"""How long a job's stages compile kernels before they begin: none where an earlier job of this version has."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from preprocessing.kernel_cache import kept

__all__ = ["KERNELS", "compile_seconds"]

KERNELS = {
    "topology": (3.0, {"ingest", "append"}),
    "push": (37.0, {"preprocess"}),
    "sparse": (9.0, {"train", "embed", "evaluate"}),
}
"""By a module of theirs: seconds of one core, where those above are compiled (2026-11-30), and the stages that use
them.
"""


def compile_seconds(stages: Iterable[str], made: Collection[str] = ()) -> float:
    """Seconds that stages which run on this machine, with this process's cache of kernels, compile.

    Where the rows of PPR are ``made`` already (``service.jobs.kept``), nothing is for them.
    """
    wanted = set(stages) - ({"preprocess"} if "ppr_rows" in made else set())
    return sum(seconds for module, (seconds, users) in KERNELS.items() if wanted & users and not kept(module))
