"""Offline jobs that turn tables into a graph bundle: ids, CSR topology, features, PPR top-K, degree weights."""

from pathlib import Path

from preprocessing.kernel_cache import keyed_cache

_ROOT = Path(__file__).parent.parent
keyed_cache([_ROOT / "preprocessing", _ROOT / "trainer"])
