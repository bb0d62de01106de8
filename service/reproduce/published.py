"""The figures that the paper prints, as it prints them: (mean, deviation), None where it prints no deviation.

Accuracies and the F1 of Reddit and PPI are percent, link prediction and multiplex scores fractions of 1. What the paper
calls OOM is left out.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["HIGHEST_LINEAR_PROBE", "PUBLISHED", "Figure"]

Figure = tuple[float, float | None]


def _columns(datasets: str, rows: Mapping[str, list[Figure | None]]) -> dict[str, dict[str, Figure]]:
    """A printed table by data set, then by method."""
    return {
        dataset: {method: figure for method, row in rows.items() if (figure := row[column]) is not None}
        for column, dataset in enumerate(datasets.split())
    }


_MAIN = _columns(
    "wikics computers photo cs physics",
    {
        "raw_features": [(71.98, 0.0), (73.81, 0.0), (78.53, 0.0), (90.37, 0.0), (93.58, 0.0)],
        "dgi": [(75.35, 0.14), (83.95, 0.47), (91.61, 0.22), (92.15, 0.63), (94.51, 0.52)],
        "grace": [(78.25, 0.65), (88.15, 0.43), (92.52, 0.32), (92.60, 0.11), None],
        "gca": [(78.30, 0.62), (88.49, 0.51), (92.99, 0.27), (92.76, 0.16), None],
        "cca_ssg": [(77.88, 0.41), (87.01, 0.41), (92.59, 0.25), (92.77, 0.17), (95.16, 0.10)],
        "bgrl": [(79.60, 0.60), (89.23, 0.34), (93.06, 0.30), (92.90, 0.15), (95.43, 0.09)],
        "rgrl": [(80.29, 0.72), (89.70, 0.44), (93.43, 0.31), (92.94, 0.13), (95.46, 0.10)],
    },
)

_OTHER = _columns(
    "cora citeseer pubmed corafull",
    {
        "grace": [(83.38, 0.95), (70.79, 0.83), (83.96, 0.29), (64.19, 0.36)],
        "gca": [(82.79, 1.01), (70.70, 0.91), (84.19, 0.32), (64.34, 0.42)],
        "cca_ssg": [(83.01, 0.66), (70.35, 1.23), (84.81, 0.22), (64.09, 0.37)],
        "bgrl": [(82.82, 0.86), (69.06, 0.80), (86.16, 0.19), (63.94, 0.39)],
        "rgrl": [(83.98, 0.78), (71.29, 0.87), (85.33, 0.20), (64.62, 0.39)],
    },
)


def _pairs(rows: Mapping[str, list[tuple[float, float] | None]], column: int) -> dict[str, dict[str, Figure]]:
    """One of two figures of every cell of a table over the four sets of link prediction."""
    return _columns(
        "computers photo cs physics",
        {method: [None if pair is None else (pair[column], None) for pair in row] for method, row in rows.items()},
    )


_RANDOM: dict[str, list[tuple[float, float] | None]] = {
    "grace": [(0.939, 0.939), (0.962, 0.960), (0.970, 0.970), None],
    "gca": [(0.954, 0.954), (0.965, 0.960), (0.971, 0.970), None],
    "cca_ssg": [(0.961, 0.959), (0.973, 0.970), (0.949, 0.950), (0.943, 0.936)],
    "bgrl": [(0.964, 0.961), (0.978, 0.976), (0.952, 0.948), (0.952, 0.947)],
    "rgrl": [(0.974, 0.972), (0.983, 0.981), (0.967, 0.968), (0.964, 0.963)],
}
_HARD: dict[str, list[tuple[float, float] | None]] = {
    "grace": [(0.933, 0.933), (0.939, 0.929), (0.870, 0.868), None],
    "gca": [(0.938, 0.929), (0.948, 0.939), (0.874, 0.869), None],
    "cca_ssg": [(0.954, 0.952), (0.947, 0.943), (0.847, 0.835), (0.871, 0.856)],
    "bgrl": [(0.959, 0.956), (0.959, 0.956), (0.845, 0.832), (0.903, 0.892)],
    "rgrl": [(0.969, 0.968), (0.967, 0.964), (0.878, 0.881), (0.923, 0.919)],
}

PUBLISHED: Mapping[str, Mapping[str, Mapping[str, Figure]]] = {
    "accuracy": _MAIN | _OTHER,
    "random_auc": _pairs(_RANDOM, 0),
    "random_ap": _pairs(_RANDOM, 1),
    "hard_auc": _pairs(_HARD, 0),
    "hard_ap": _pairs(_HARD, 1),
    "macro_f1": {"imdb": {"bgrl": (0.631, None), "rgrl": (0.653, None)}},
    "micro_f1": {"imdb": {"bgrl": (0.634, None), "rgrl": (0.658, None)}},
}
"""By measure, data set and method (paper, Tables 3 to 6)."""

HIGHEST_LINEAR_PROBE: Mapping[str, float] = {"photo": 94.21, "computers": 91.11, "cs": 93.61, "physics": 95.75}
"""The highest published accuracies of a linear probe: BGRL or GRACE with Half-Hop (Azabou et al., 2023)."""
