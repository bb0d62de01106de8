"""``python deploy/lock.py``: prints deploy/requirements.txt, by the versions that this environment has.

What rgrl needs with the extras of the images, and what that needs, as far as markers say so on Linux; not torch and
faiss, which each image takes from elsewhere (deploy/Dockerfile).
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import requires, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

EXTRAS = ("postgres", "cluster")
ELSEWHERE = {"torch", "faiss-cpu"}


def closure(extras: Iterable[str] = EXTRAS) -> set[str]:
    """Names of all that is needed, in canonical form, without rgrl itself."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    texts = project["dependencies"] + [text for extra in extras for text in project["optional-dependencies"][extra]]
    new, found = list(_named(texts, "")), set[tuple[str, str]]()
    while new:
        name, extra = new.pop()
        if (name, extra) not in found:
            found.add((name, extra))
            new += _named(requires(name) or (), extra)
    return {name for name, _ in found}


def _named(texts: Iterable[str], extra: str) -> Iterator[tuple[str, str]]:
    for text in texts:
        needed = Requirement(text)
        if needed.marker is None or needed.marker.evaluate({"extra": extra}):
            yield from ((canonicalize_name(needed.name), part) for part in ("", *needed.extras))


if __name__ == "__main__":
    print("# By deploy/lock.py: what both images have beside torch, faiss and rgrl itself.")
    for name in sorted(closure() - ELSEWHERE):
        print(f"{name}=={version(name)}")
