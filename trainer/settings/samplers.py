"""The back ends of neighbour sampling, and how to get those that a plain install lacks."""

from __future__ import annotations

from typing import Literal

__all__ = ["SAMPLER_SOURCES", "SamplerKind"]

SamplerKind = Literal["auto", "numba", "pyg-lib", "torch-sparse"]

SAMPLER_SOURCES = {
    "pyg-lib": (
        "pip install pyg-lib -f https://data.pyg.org/whl/torch-VERSION+cpu.html, with torch's version, and cuNNN for "
        "cpu in a CUDA build; PyPI has none"
    ),
    "torch-sparse": (
        "pip install --no-build-isolation torch-scatter torch-sparse: compiles for half an hour or more, and needs a "
        "C++ compiler"
    ),
}
"""How to get a distribution, by its name."""
